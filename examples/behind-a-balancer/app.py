from http.server import BaseHTTPRequestHandler, HTTPServer


class Application(BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"Hello {self.headers['X-Forwarded-For']}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", len(text))
        self.end_headers()
        self.wfile.write(text)


HTTPServer(("127.0.0.1", 3000), Application).serve_forever()

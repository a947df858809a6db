import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port = int(sys.argv[1])


class Application(BaseHTTPRequestHandler):
    def do_GET(self):
        text = f"server {port}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", len(text))
        self.end_headers()
        self.wfile.write(text)


ThreadingHTTPServer(("127.0.0.1", port), Application).serve_forever()

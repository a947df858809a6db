"""The echo application on Python's own HTTP server: sends each request's body back.

python3 echo.py --listen 127.0.0.1:PORT [--cert FILE --key FILE]
"""

import argparse
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one write

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024

    def handle_error(self, *_):
        """A client that leaves is not worth a trace."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", required=True)
    parser.add_argument("--cert")
    parser.add_argument("--key")
    options = parser.parse_args()
    host, port = options.listen.rsplit(":", 1)
    server = Server((host, int(port)), Echo)
    if options.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(options.cert, options.key)
        # The handshake belongs to the connection's thread, not to the one that accepts.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


main()

"""An application that answers at once, and on …/slow over three seconds."""

import http.server
import time


class Answers(http.server.BaseHTTPRequestHandler):
    """One answer of a known length."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        parts = 30 if self.path.endswith("/slow") else 1
        self.send_response(200)
        self.send_header("Content-Length", str(1000 * parts))
        self.end_headers()
        for part in range(parts):
            if part:
                time.sleep(0.1)
            self.wfile.write(b"x" * 1000)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Answers)
print("ready", flush=True)
server.serve_forever()

"""Clients of https://localhost/app until SIGTERM: new connections, kept ones, and slow responses. Ends with 1 at the first fault.

A kept connection that the server has announced to close (`Connection: close`) is followed by another, as clients do; one that is
closed without a word is a fault.
"""

import http.client
import signal
import socket
import ssl
import sys
import threading
import time

stopping = threading.Event()
faults = []
counts = {"fresh": 0, "kept": 0, "slow": 0}
context = ssl.create_default_context(cafile=sys.argv[1])


class Connection(http.client.HTTPSConnection):
    """A connection to port 443 of this machine; the certificate is that of localhost."""

    def __init__(self):
        super().__init__("localhost", 443, timeout=30, context=context)

    def connect(self):
        raw = socket.create_connection(("127.0.0.1", 443), timeout=30)
        self.sock = context.wrap_socket(raw, server_hostname="localhost")


def get(connection, path):
    """Returns True if the connection may be used again."""
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    expected = 30_000 if path == "/app/slow" else 1_000
    if response.status != 200 or len(body) != expected:
        raise OSError(f"{path}: status {response.status}, {len(body)} bytes")
    return not response.will_close


def client(kind):
    connection, usable = None, False
    while not stopping.is_set():
        try:
            if not usable or kind == "fresh":
                if connection:
                    connection.close()
                connection = Connection()
            usable = get(connection, "/app/slow" if kind == "slow" else "/app")
            counts[kind] += 1
            if kind == "kept":
                time.sleep(0.005)
        except Exception as fault:  # whatever it is, a client has noticed
            faults.append(f"{kind}: {fault!r}")
            stopping.set()


signal.signal(signal.SIGTERM, lambda *_: stopping.set())
kinds = ["fresh"] * 2 + ["kept"] * 4 + ["slow"] * 4
threads = [threading.Thread(target=client, args=[kind]) for kind in kinds]
for thread in threads:
    thread.start()
while not all(counts[kind] for kind in ["fresh", "kept"]) and not stopping.is_set():
    time.sleep(0.01)
if not faults:
    print("ready", flush=True)
while not stopping.is_set():
    time.sleep(0.05)
for thread in threads:
    thread.join()
if faults:
    print("\n".join(faults))
    sys.exit(1)
print(", ".join(f"{count} {kind}" for kind, count in counts.items()) + " requests, none failed")

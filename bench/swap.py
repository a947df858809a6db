#!/usr/bin/env python3
"""How long a change of many routes takes, and how late requests on open connections are meanwhile.

Usage: bench/swap.py OFFRAMP [--routes 1000] [--rounds 10]

Offramp runs with two workers and so many routes, each with a backend of its own with two servers. Two clients ask, each
on one connection, once a millisecond. The configuration is written anew and SIGHUP sent, so many times; every route has
another path then. Told are the milliseconds from the signal to `READY=1`, which Offramp sends to its service manager
after the change, and the latencies of the requests, with and without changes.
"""
import argparse, os, signal, socket, ssl, statistics, tempfile, threading, time
from pathlib import Path

from many_routes import Offramp, configuration, free_port


class Client(threading.Thread):
    """Asks once a millisecond; `latencies` are in milliseconds."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.latencies, self.ends = port, [], False

    def run(self):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(socket.create_connection(("127.0.0.1", self.port)), server_hostname="localhost") as tls:
            while not self.ends:
                begun, said = time.monotonic(), b""
                tls.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                while b"\r\n\r\n" not in said or not said.endswith(b"\n"):
                    said += tls.recv(4096)
                self.latencies.append((time.monotonic() - begun) * 1000)
                time.sleep(0.001)

    def take(self):
        taken, self.latencies = self.latencies, []
        return taken


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def told(clients):
    latencies = [latency for client in clients for latency in client.take()]
    return f"p50 {share(latencies, 0.5):.2f}, p99 {share(latencies, 0.99):.2f}, max {max(latencies):.1f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("offramp")
    parser.add_argument("--routes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    binary = Path(given.offramp).resolve()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        port, file, notify = free_port(), Path(folder, "offramp.toml"), str(Path(folder, "notify"))
        notices.bind(notify)
        notices.settimeout(60)

        def ready():
            while "READY=1" not in notices.recv(4096).decode():
                pass

        texts = [configuration(port, given.routes, round, f"{round}/") for round in range(given.rounds + 1)]
        file.write_text(texts[0])
        environment = dict(os.environ, NOTIFY_SOCKET=notify)
        offramp = Offramp(binary, folder, file, environment)
        try:
            ready()
            clients = [Client(port), Client(port)]
            for client in clients:
                client.start()
            time.sleep(2)
            quiet = told(clients)
            changes = []
            for text in texts[1:]:
                file.write_text(text)
                # Offramp obeys SIGHUP once a second.
                time.sleep(1.1)
                begun = time.monotonic()
                offramp.process.send_signal(signal.SIGHUP)
                ready()
                changes.append((time.monotonic() - begun) * 1000)
            busy = told(clients)
            for client in clients:
                client.ends = True
                client.join(10)
            assert b"refused" not in offramp.log.read_bytes(), offramp.log.read_text()
        finally:
            offramp.stop()
    print(f"{given.routes} routes: median {statistics.median(changes):.1f} ms, {min(changes):.1f} to {max(changes):.1f}")
    print(f"requests while nothing changes: {quiet}")
    print(f"requests during the changes:    {busy}")


main()

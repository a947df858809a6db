#!/usr/bin/env python3
"""CPU time of a proxy per MiB, and per small message, that it passes through by the server name.

Usage, as root: bench/passthrough.py NAME=OFFRAMP... [--rounds 5] [--mib 1024] [--messages 20000]

Each contestant is an Offramp binary; HAProxy is there with its defaults and with `option splice-auto`. The proxies have
the second core, load and server the first. All are in a network namespace of their own with cubic. They take turns
within a round. What is told is CPU time of the proxy's process (schedstat): median, least and greatest.
"""
import argparse, json, os, signal, socket, statistics, subprocess, sys, tempfile, threading, time
from pathlib import Path

HELLO = (Path(__file__).parent.parent / "crates/wire/tests/data/chromium.bin").read_bytes()
NAME = "chromium.example.org"
MIB = 1 << 20

OFFRAMP = """state_dir = "state"
workers = 1
{user}[access_log]
output = "none"
[[listener]]
address = "127.0.0.1:{port}"
[[certificate]]
local = true
names = ["localhost"]
[[route]]
host = "%s"
passthrough = "127.0.0.1:{server}"
""" % NAME
HAPROXY = """global
    nbthread 1
defaults
    mode tcp
    timeout client 60s
    timeout server 60s
    timeout connect 5s
    {option}
frontend f
    bind 127.0.0.1:{port}
    tcp-request inspect-delay 5s
    tcp-request content accept if {{ req.ssl_hello_type 1 }}
    use_backend b if {{ req.ssl_sni -i %s }}
backend b
    server s 127.0.0.1:{server}
""" % NAME


def exact(stream, count, room=bytearray(MIB)):
    while count > 0:
        n = stream.recv_into(room, min(count, len(room)))
        if n == 0:
            raise SystemExit("a connection ended early")
        count -= n


def serve(listener):
    """Per connection a line `down BYTES`, `up BYTES` or `echo COUNT SIZE` follows the hello."""
    block = bytes(MIB)

    def one(stream):
        exact(stream, len(HELLO))
        line = b""
        while not line.endswith(b"\n"):
            line += stream.recv(1)
        what, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if what == b"down":
            for _ in range(numbers[0] // MIB):
                stream.sendall(block)
        elif what == b"up":
            exact(stream, numbers[0])
            stream.sendall(b".")
        else:
            message = bytes(numbers[1])
            for _ in range(numbers[0]):
                exact(stream, numbers[1])
                stream.sendall(message)
        stream.close()

    while True:
        stream, _ = listener.accept()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=one, args=(stream,), daemon=True).start()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def cpu_ns(pid):
    """Of all threads."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


class Proxy:
    def __init__(self, name, command, folder, port):
        self.name, self.port, self.figures = name, port, {}
        log = open(folder / "log", "w")
        self.process = subprocess.Popen(
            ["taskset", "-c", "1", *command], cwd=folder, stdout=log, stderr=log)

    def connect(self, line):
        for _ in range(200):
            try:
                stream = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.05)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(HELLO + line.encode() + b"\n")
        return stream

    def measure(self, kind, amount, size=0):
        before = cpu_ns(self.process.pid)
        if kind == "down":
            stream = self.connect(f"down {amount * MIB}")
            exact(stream, amount * MIB)
        elif kind == "up":
            stream = self.connect(f"up {amount * MIB}")
            block = bytes(MIB)
            for _ in range(amount):
                stream.sendall(block)
            exact(stream, 1)
        else:
            stream = self.connect(f"echo {amount} {size}")
            message = bytes(size)
            for _ in range(amount):
                stream.sendall(message)
                exact(stream, size)
        stream.close()
        spent = (cpu_ns(self.process.pid) - before) / 1000 / amount
        self.figures.setdefault(f"{kind} {size}" if size else kind, []).append(spent)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("offramp", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--messages", type=int, default=20000)
    options = parser.parse_args()
    if os.environ.get("OFFRAMP_BENCH_NETWORK") != "own":
        script = "ip link set lo up; sysctl -qw net.ipv4.tcp_congestion_control=cubic; exec \"$@\""
        os.environ["OFFRAMP_BENCH_NETWORK"] = "own"
        os.execvp("unshare", ["unshare", "--net", "sh", "-c", script, "sh", sys.executable, *sys.argv])
    os.sched_setaffinity(0, {0})
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = listener.getsockname()[1]
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    user = 'user = "root"\n' if os.getuid() == 0 else ""
    proxies = []
    with tempfile.TemporaryDirectory() as root:
        def start(name, text, command):
            folder = Path(root) / name.replace(" ", "-")
            folder.mkdir()
            port = free_port()
            (folder / "conf").write_text(text.format(port=port, server=server, user=user))
            proxies.append(Proxy(name, [*command, "conf"], folder, port))
        try:
            for pair in options.offramp:
                name, binary = pair.split("=")
                start(name, OFFRAMP, [os.path.abspath(binary), "run", "--config"])
            for name, option in [("haproxy", ""), ("haproxy splice", "option splice-auto")]:
                start(name, HAPROXY.replace("{option}", option), ["haproxy", "-db", "-f"])
            for round in range(options.rounds + 1):
                for proxy in proxies:
                    proxy.measure("down", options.mib)
                    proxy.measure("up", options.mib)
                    for size in (100, 4096):
                        proxy.measure("echo", options.messages, size)
                    if round == 0:
                        proxy.figures.clear()  # to warm up
            for what in proxies[0].figures:
                print(f"{what}: CPU µs per {'message' if 'echo' in what else 'MiB'}")
                for proxy in proxies:
                    seen = proxy.figures[what]
                    print(f"  {proxy.name:16} {statistics.median(seen):8.2f} ({min(seen):.2f}–{max(seen):.2f})")
        finally:
            for proxy in proxies:
                proxy.process.send_signal(signal.SIGKILL)
                proxy.process.wait()


main()

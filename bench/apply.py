#!/usr/bin/env python3
"""How long `offramp ctl apply` takes for one changed route, and where the time goes.

Usage: bench/apply.py OFFRAMP [--rounds 200] [--routes 50] [--load]

Offramp runs with so many routes and two workers. A configuration in which one route has another body is applied, so many
times. With `--load`, two processes of wrk on the last core ask meanwhile: one over kept connections, one with a handshake
for each request. Told are the milliseconds of the whole command, of the request to the admin interface (made here, over
its socket), and of the phases, which the log tells at the level debug, with those of the slowest changes.
"""
import argparse, re, socket, statistics, subprocess, tempfile, time
from pathlib import Path

from many_routes import Offramp, configuration, free_port, wrk


def put(path, text):
    """Milliseconds from the connection to the whole answer."""
    begun, body, said = time.monotonic(), text.encode(), b""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(60)
        asked.connect(str(path))
        head = f"PUT /v1/config HTTP/1.1\r\nHost: offramp\r\nContent-Type: application/toml\r\n" \
               f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        asked.sendall(head.encode() + body)
        while piece := asked.recv(65536):
            said += piece
    assert said.startswith(b"HTTP/1.1 200"), said
    return (time.monotonic() - begun) * 1000


def share(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def tell(name, values):
    print(f"{name:<30} median {statistics.median(values):7.1f}   p90 {share(values, 0.9):7.1f}   "
          f"p99 {share(values, 0.99):7.1f}   worst {max(values):7.1f} ms")


def phases(log):
    """The phases of each change, as the log has them."""
    for line in log.read_text(errors="replace").splitlines():
        if "a change took" in line:
            yield {name: float(value) for name, value in re.findall(r"(\w+)_ms=([\d.]+)", line)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("offramp")
    parser.add_argument("--routes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--load", action="store_true")
    given = parser.parse_args()
    binary = Path(given.offramp).resolve()
    with tempfile.TemporaryDirectory() as folder:
        port, file = free_port(), Path(folder, "offramp.toml")
        new, admin = Path(folder, "new.toml"), Path(folder, "state", "admin.sock")
        file.write_text(configuration(port, given.routes, 0))
        offramp, load = Offramp(binary, folder, file), []
        try:
            offramp.until(b"started")
            if given.load:
                load = [wrk(port), wrk(port, "-H", "Connection: close")]
                time.sleep(1)
            commands, requests = [], []
            for round in range(1, given.rounds + 1):
                text = configuration(port, given.routes, round)
                if round % 2:
                    requests.append(put(admin, text))
                else:
                    new.write_text(text)
                    begun = time.monotonic()
                    subprocess.run([binary, "ctl", "--admin", f"unix:{admin}", "apply", new], check=True,
                                   stdout=subprocess.DEVNULL)
                    commands.append((time.monotonic() - begun) * 1000)
        finally:
            for one in load:
                one.terminate()
                one.wait(10)
            offramp.stop()
        tell("offramp ctl apply", commands)
        tell("the request alone", requests)
        changes = list(phases(offramp.log))
        for name in changes[0] if changes else []:
            tell(f"  {name}", [change[name] for change in changes])
        for change in sorted(changes, key=lambda change: -change["all"])[:5]:
            print("slow:", "  ".join(f"{name} {value:.1f}" for name, value in change.items()))


main()

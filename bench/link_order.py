#!/usr/bin/env python3
"""Writes crates/cli/link-order.txt: the functions that run at the start and for requests.

Usage: bench/link_order.py OFFRAMP

OFFRAMP is a release with its symbols (`cargo build --release -p offramp`). It runs under callgrind, until it has started
with the certificates of a run before, and then with the requests below. crates/cli/build.rs has the linker place what ran next to each other, so that
a running Offramp maps pages of code that it uses, and not a page here and there of all 17 MB. A name that does not exist
any more does no harm; a function that is not listed stays where it was. Write the list anew when the memory at the start
grows for no other reason.

Needs valgrind, curl and openssl.
"""
import collections, os, re, signal, socket, subprocess, sys, tempfile, threading, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import instructions

LIST = Path(__file__).parent.parent / "crates/cli/link-order.txt"
CONFIG = """state_dir = "{dir}/state"
workers = 2
[[listener]]
name = "http"
address = "127.0.0.1:{http}"
mode = "http"
[[listener]]
name = "relay"
address = "127.0.0.1:{relay}"
[[certificate]]
local = true
names = ["localhost"]
[[route]]
listener = "http"
path = "/files"
root = "{dir}/www"
[[route]]
listener = "http"
server = "{server}"
[[route]]
listener = "relay"
server = "{server}"
"""
# A pattern stands for every instance of a generic function. One that has so many bytes more than ran is of no use.
TOO_MUCH = 200 * 1024
# Patterns with so many bytes more come behind the others, so that these stay close together.
MUCH = 4096


def pattern(symbol):
    """The symbol without what another compiler or another version of a library would call it."""
    symbol = re.sub(r"17h[0-9a-f]{16}E", "17h*E", symbol)
    symbol = re.sub(r"Cs[0-9A-Za-z]{8,13}_", "Cs*_", symbol)
    return re.sub(r"(aws_lc|ring_core)_\d+_\d+_\d+_", r"\1_*_", symbol)


def symbols(binary):
    """Address and size of each function."""
    found = {}
    for line in subprocess.run(["nm", "-S", "--defined-only", binary], check=True, capture_output=True, text=True).stdout.splitlines():
        parts = line.split()
        if len(parts) == 4 and parts[2] in "tTwW":
            found[parts[3]] = int(parts[0], 16), int(parts[1], 16)
    return found


def ask(ports, work):
    """What clients do most."""
    file = work / "www/files/file.txt"
    curl = ["curl", "-sSk", "--noproxy", "*", "--max-time", "120", "-o", "/dev/null"]
    http, relay = (f"https://localhost:{ports[name]}" for name in ("http", "relay"))
    for version in ("--http1.1", "--http2", "--tls-max=1.2"):
        version = version.split("=")
        urls = [f"{http}/", f"{http}/", f"{http}/files/file.txt"]
        subprocess.run([*curl, *version, *urls[:1], *("-o /dev/null " * 2).split(), *urls[1:]], check=True)
        subprocess.run([*curl, *version, "--data-binary", f"@{file}", f"{http}/"], check=True)
    subprocess.run([*curl, "--http1.1", f"{relay}/"], check=True)
    for kind in ("full", "resumed"):
        for port in ports.values():
            head = ("GET / HTTP/1.1\r\n" + "\r\n".join(instructions.BROWSER) + "\r\n\r\n").encode()
            instructions.ask(port, 5, head, b"", handshakes=kind, http2=False)


def trace(binary, server, work, load):
    """The functions that ran."""
    ports = {name: instructions.free_port() for name in ("http", "relay")}
    (work / "www/files").mkdir(parents=True, exist_ok=True)
    for path in work.glob("out.*"):
        path.unlink()
    (work / "www/files/file.txt").write_text("x" * 20_000)
    (work / "offramp.toml").write_text(CONFIG.format(dir=work, server=server, **ports))
    command = ["valgrind", "--tool=callgrind", "--demangle=no", "--compress-strings=no", "-q"]
    command += [f"--callgrind-out-file={work}/out.%p", os.path.abspath(binary), "run", "-c", str(work / "offramp.toml")]
    with open(work / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=work, preexec_fn=instructions.refuse_auxv)
    try:
        deadline = time.monotonic() + 120
        while b"started" not in (work / "log").read_bytes():
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit((work / "log").read_text(errors="replace")[-2000:])
            time.sleep(0.1)
        if load:
            ask(ports, work)
        # Timers and the report of late workers run too.
        time.sleep(3)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=120)
    ran = set()
    for path in work.glob("out.*"):
        for line in open(path, errors="replace"):
            if line.startswith("fn="):
                ran.add(re.sub(r"'\d+$", "", line[3:].rstrip("\n")))
    return ran


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    binary = sys.argv[1]
    known = symbols(binary)
    with tempfile.TemporaryDirectory(prefix="offramp-link-order-") as work:
        os.chmod(work, 0o755)
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=instructions.serve, args=(listener,), daemon=True).start()
        server = "127.0.0.1:%d" % listener.getsockname()[1]
        # The first run makes the local CA and its certificate, which those after it find.
        trace(binary, server, Path(work), False)
        start = trace(binary, server, Path(work), False) & known.keys()
        requests = trace(binary, server, Path(work), True) & known.keys() - start
    if len(start) < 500 or len(requests) < 100:
        raise SystemExit(f"{len(start)} functions at the start and {len(requests)} for requests: has {binary} its symbols?")

    whole, ran = collections.Counter(), collections.Counter()
    for symbol, (_, size) in known.items():
        whole[pattern(symbol)] += size
        if symbol in start or symbol in requests:
            ran[pattern(symbol)] += size
    groups, done = {"start": [], "requests": [], "shared names": []}, set()
    for name, symbols_of in (("start", start), ("requests", requests)):
        for symbol in sorted(symbols_of, key=lambda symbol: (known[symbol][0], symbol)):
            text = pattern(symbol)
            more = whole[text] - ran[text]
            if text not in done and more <= TOO_MUCH:
                done.add(text)
                groups["shared names" if more > MUCH else name].append(text)
    with open(LIST, "w") as file:
        file.write("# Written by bench/link_order.py, which says what this is.\n")
        for name, patterns in groups.items():
            print(f"{name}: {len(patterns)} patterns, {sum(whole[text] for text in patterns):,} bytes")
            file.write(f"# {name}\n")
            file.writelines(f"{text}\n" for text in patterns)


if __name__ == "__main__":
    main()

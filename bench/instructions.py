#!/usr/bin/env python3
"""Instructions of the worker in user space per HTTP request, by callgrind: no clock, and the same on a busy machine.

Usage: bench/instructions.py [NAME=]OFFRAMP... [--fields browser|host] [--requests 1000] [--upload BYTES] [--http2] [--unix]
                             [--top 25]
       bench/instructions.py [NAME=]OFFRAMP... --handshakes full|resumed [--requests 1000]

Each Offramp serves one TLS connection of one client, request after request, from an application that answers with ten
bytes. It runs twice under callgrind, with 200 requests and with so many more; the difference of the two counts, over the
requests, is the figure. With more than one binary the ratio to the first is told: give the older one first. The part outside
the libraries of cryptography is told apart: which one is used is decided anew at each start, and is worth 3 %. `--top`
lists the functions, and the source files whose code was inlined anywhere, by their share. A binary whose file is called
`nginx` is measured in the same way, with the configuration of the benchmark. With `--handshakes` each connection is a new
one that makes its handshake and one request. With `--http2` the client speaks HTTP/2, one stream after the other.

Needs valgrind. Every binary must be of the same profile, or the ratio says nothing.
"""
import argparse, collections, ctypes, os, re, signal, socket, ssl, struct, subprocess, sys, tempfile, threading, time
from pathlib import Path

BEFORE = 200
HOST = ["Host: localhost"]
BROWSER = HOST + [
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Connection: keep-alive",
    "Referer: https://localhost/index.html",
    "Cookie: session=0123456789abcdef0123456789abcdef",
    "Cache-Control: max-age=0",
]
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n\r\n0123456789"
CONFIG = """state_dir = "{dir}/state"
workers = 1
[access_log]
output = "none"
[[listener]]
address = "127.0.0.1:{port}"
mode = "http"
[[certificate]]
local = true
names = ["localhost"]
[[route]]
server = "{server}"
"""


def refuse_auxv():
    """valgrind shows the program other values than the kernel would: prctl(PR_GET_AUXV) is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    step = lambda code, yes, no, value: struct.pack("HBBI", code, yes, no, value)
    load, equal, give = 0x20, 0x15, 0x06
    steps = [
        step(load, 0, 0, 0),  # the number of the system call
        step(equal, 0, 3, 157),  # prctl on x86-64
        step(load, 0, 0, 16),  # its first argument
        step(equal, 0, 1, 0x41555856),
        step(give, 0, 0, 0x0005_0000 | 22),  # EINVAL
        step(give, 0, 0, 0x7FFF_0000),
    ]
    room = ctypes.create_string_buffer(b"".join(steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(room))
    libc.prctl(38, 1, 0, 0, 0)  # no new privileges
    if libc.prctl(22, 2, ctypes.c_char_p(program)) != 0:
        raise OSError(ctypes.get_errno(), "no filter for system calls")


def serve(listener):
    """Answers each request with ten bytes, whatever it is."""

    def one(stream):
        waiting = b""
        while True:
            end = waiting.find(b"\r\n\r\n")
            if end < 0:
                more = stream.recv(1 << 18)
                if not more:
                    return
                waiting += more
                continue
            length = re.search(rb"content-length: (\d+)", waiting[:end], re.I)
            left = (int(length[1]) if length else 0) - (len(waiting) - end - 4)
            waiting = waiting[end + 4 + int(length[1]) :] if left <= 0 and length else waiting[end + 4 :] if left <= 0 else b""
            while left > 0:
                left -= len(stream.recv(min(left, 1 << 18)))
            stream.sendall(RESPONSE)

    while True:
        try:
            stream, _ = listener.accept()
        except OSError:
            return
        if stream.family == socket.AF_INET:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=one, args=(stream,), daemon=True).start()


class Http2:
    """A client of HTTP/2 with one stream at a time. Its fields are in the dynamic table after the first request."""

    def __init__(self, stream, fields):
        self.stream, self.fields, self.number, self.buffer = stream, fields, 1, b""
        self.first, self.window = 65535, 65535  # of a stream, and of the connection
        stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self.frame(4, 0, 0, b""))

    @staticmethod
    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def block(self):
        if self.number > 1:  # the latest field has index 62
            return bytes(0x80 | 61 + len(self.fields) - at for at in range(len(self.fields)))
        text = lambda value: (bytes([len(value)]) if len(value) < 127 else bytes([127, len(value) - 127])) + value
        return b"".join(b"\x40" + text(name) + text(value) for name, value in self.fields)

    def receive(self):
        """The next frame; answers those of the connection."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            more = self.stream.recv(65536)
            if not more:
                raise SystemExit("the connection ended")
            self.buffer += more
        length, kind, flags = int.from_bytes(self.buffer[:3], "big"), self.buffer[3], self.buffer[4]
        stream, payload = int.from_bytes(self.buffer[5:9], "big"), self.buffer[9 : 9 + length]
        self.buffer = self.buffer[9 + length :]
        if kind in (4, 6) and not flags & 1:
            self.stream.sendall(self.frame(kind, 1, 0, payload if kind == 6 else b""))
        if kind == 4:
            for at in range(0, length, 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                if name == 4:
                    self.room, self.first = self.room + value - self.first, value
        if kind == 8 and stream == 0:
            self.window += int.from_bytes(payload, "big")
        if kind == 8 and stream == self.number:
            self.room += int.from_bytes(payload, "big")
        if kind in (3, 7):
            raise SystemExit(f"the request was refused: {kind} {payload!r}")
        return kind, flags, stream, payload

    def exchange(self, body):
        self.room, got, ended = self.first, b"", False
        head = self.frame(1, 4 if body else 5, self.number, self.block())
        self.stream.sendall(head)
        at = 0
        while at < len(body):
            n = min(len(body) - at, self.room, self.window, 16384)
            if n <= 0:
                self.receive()
                continue
            end = at + n == len(body)
            self.stream.sendall(self.frame(0, int(end), self.number, body[at : at + n]))
            at, self.room, self.window = at + n, self.room - n, self.window - n
        while not ended:
            kind, flags, stream, payload = self.receive()
            if stream == self.number and kind in (0, 1):
                got, ended = got + payload * (kind == 0), flags & 1
        if got != b"0123456789":
            raise SystemExit(f"the request was refused: {got!r}")
        self.stream.sendall(self.frame(8, 0, 0, struct.pack(">I", len(got))))
        self.number += 2


def ask(port, count, head, body, handshakes, http2):
    context = ssl.create_default_context()
    if http2:
        context.set_alpn_protocols(["h2"])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    deadline = time.monotonic() + 120
    while True:
        try:
            raw = socket.create_connection(("127.0.0.1", port), timeout=120)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise SystemExit("it does not listen")
            time.sleep(0.1)
    session = None
    for number in range(count):
        if number == 0 or handshakes:
            raw = raw or socket.create_connection(("127.0.0.1", port), timeout=120)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream = context.wrap_socket(raw, server_hostname="localhost", session=session)
            if stream.session_reused != (session is not None):
                raise SystemExit("the server did not resume the session")
            client = Http2(stream, http2) if http2 else None
        if client:
            client.exchange(body)
        else:
            exchange(stream, head, body)
        if handshakes:
            # The tickets of TLS 1.3 have come with the response.
            session = stream.session if handshakes == "resumed" else None
            stream.close()
            raw = None
    stream.close()


def exchange(stream, head, body):
    stream.sendall(head)
    if body:
        stream.sendall(body)
    got = b""
    while not got.endswith(b"0123456789"):
        more = stream.recv(65536)
        if not more:
            raise SystemExit(f"the connection ended: {got!r}")
        got += more
    if not got.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"the request was refused: {got!r}")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def nginx(port, server, work):
    """The configuration of the benchmark, in one process."""
    subject = ["-nodes", "-days", "30", "-subj", "/CN=localhost", "-keyout", work / "key.pem", "-out", work / "chain.pem"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run(["openssl", "req", "-x509", *curve, *subject], check=True, capture_output=True)
    text = (Path(__file__).parent.parent / "crates/bench/peers/nginx-http.conf").read_text()
    values = {
        "dir": work, "listen": f"127.0.0.1:{port}", "workers": 1, "cert": work / "chain.pem", "key": work / "key.pem",
        "backend_nginx": server, "descriptors": 1000, "user_line": "user root;", "reuseport": "", "nginx_http2": "",
        "protocol": "TLSv1.3", "ciphers12": "ECDHE-ECDSA-AES128-GCM-SHA256",
    }
    for name, value in values.items():
        text = text.replace("{{%s}}" % name, str(value))
    (work / "nginx.conf").write_text(text.replace("daemon off;", "daemon off; master_process off;"))
    return ["-p", str(work), "-e", str(work / "error.log"), "-c", str(work / "nginx.conf")]


def run(binary, count, head, body, handshakes, http2, server, work):
    """The costs of a run: per thread, by function and by source file."""
    work = Path(tempfile.mkdtemp(dir=work))
    os.chmod(work, 0o755)
    port = free_port()
    if Path(binary).name == "nginx":
        arguments = nginx(port, server, work)
    else:
        (work / "offramp.toml").write_text(CONFIG.format(dir=work, port=port, server=server))
        arguments = ["run", "-c", str(work / "offramp.toml")]
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={work}/out", "-q"]
    command += [os.path.abspath(binary), *arguments]
    with open(work / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=work, preexec_fn=refuse_auxv)
    try:
        ask(port, count, head, body, handshakes, http2)
    except BaseException:
        process.kill()
        sys.stderr.write((work / "log").read_text(errors="replace")[-2000:])
        raise
    process.send_signal(signal.SIGTERM)
    process.wait(timeout=120)
    return {path.suffix + path.name: costs(path) for path in sorted(work.glob("out-*"))}


def costs(path):
    """Self cost by (function, source file), where inlined code counts for its own file."""
    names, where = {}, {}
    found = collections.Counter()
    called = False

    def name(kind, text):
        number, _, rest = text.partition(" ")
        if rest:
            names[kind, number] = rest
        return names.get((kind, number), text)

    for line in open(path, errors="replace"):
        line = line.rstrip("\n")
        key, eq, text = line.partition("=")
        if eq and key in ("fl", "fi", "fe"):
            file = name("file", text)
            if key == "fl":
                where["fl"] = file
            where["file"] = file
        elif eq and key == "fn":
            where["fn"] = name("fn", text)
            where["file"] = where.get("fl", "")
        elif eq and key in ("cfi", "cfl"):
            name("file", text)
        elif eq and key == "cfn":
            name("fn", text)
        elif eq and key in ("ob", "cob"):
            name("ob", text)
        elif key == "calls":
            called = True
        elif cost := re.fullmatch(r"(?:[+-]?\d+|\*) (\d+)(?: \d+)*", line):
            if not called:
                found[where.get("fn", ""), where.get("file", "")] += int(cost[1])
            called = False
    return found


def worker(few, many, count):
    """What each request cost the thread that worked most for them. Random numbers of another thread are no such work."""
    best, most = collections.Counter(), 0
    for thread, found in many.items():
        grown = collections.Counter(found)
        grown.subtract(few.get(thread, {}))
        work = sum(cost for (function, file), cost in grown.items() if crate(file, function) not in CHOSEN)
        if work > most:
            best, most = grown, work
    return collections.Counter({key: cost / count for key, cost in best.items()})


def crate(file, function):
    """Where a line of source belongs."""
    file = file.replace("\\", "/")
    if match := re.search(r"crates/([a-z0-9]+)/src/(.*)$", file):
        return f"{match[1]}/{match[2]}"
    if match := re.search(r"/registry/src/[^/]*/([a-z0-9_-]+?)-\d[^/]*/", file):
        return match[1]
    if "/library/" in file or file.startswith("library/"):
        return "std"
    if re.search(r"mem(cpy|move|set|cmp|chr)", function):
        return "libc: memory"
    if re.search(r"malloc|free|realloc|calloc", function):
        return "libc: malloc"
    if re.search(r"aes|gcm|ghash|aws_lc|ring_core|chacha|poly1305|jent_|keccak|rol64|ptr_to_le|^(CRYPTO|EVP|RAND)_", function, re.I):
        return "cryptography"
    return "other"


# Offramp chooses between two libraries by their speed at its start, and one of them draws random numbers anew now and then.
CHOSEN = {"cryptography", "ring", "aws-lc-rs", "aws-lc-sys"}


def plain(function):
    return re.sub(r"::h[0-9a-f]{16}$", "", function)


def table(title, costs, top, total):
    print(f"\n{title}")
    for name, cost in costs.most_common(top):
        print(f"{cost:9.0f}  {cost / total:6.1%}  {name[:150]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", nargs="+", metavar="[NAME=]OFFRAMP")
    parser.add_argument("--fields", choices=["browser", "host"], default="browser")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--upload", type=int, default=0, metavar="BYTES")
    parser.add_argument("--handshakes", choices=["full", "resumed"])
    parser.add_argument("--http2", action="store_true")
    parser.add_argument("--unix", action="store_true", help="the application listens on a Unix socket")
    parser.add_argument("--top", type=int, default=0)
    options = parser.parse_args()
    fields = BROWSER if options.fields == "browser" else HOST
    line = "GET / HTTP/1.1"
    if options.upload:
        line, fields = "POST / HTTP/1.1", [*fields, f"Content-Length: {options.upload}"]
    head = "\r\n".join([line, *fields, "", ""]).encode()
    body = b"x" * options.upload
    http2 = None
    if options.http2:
        pairs = [field.split(": ", 1) for field in fields if not field.startswith(("Host:", "Connection:"))]
        pseudo = [(":method", line.split()[0]), (":scheme", "https"), (":authority", "localhost"), (":path", "/")]
        http2 = [(name.lower().encode(), value.encode()) for name, value in [*pseudo, *pairs]]
    with tempfile.TemporaryDirectory(prefix="offramp-instructions-") as work:
        os.chmod(work, 0o755)
        if options.unix:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{work}/app.sock")
            os.chmod(f"{work}/app.sock", 0o666)
            listener.listen(64)
            server = f"unix:{work}/app.sock"
        else:
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            server = "127.0.0.1:%d" % listener.getsockname()[1]
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        first, own_first = None, None
        for given in options.binaries:
            name, _, binary = given.rpartition("=")
            few = run(binary, BEFORE, head, body, options.handshakes, http2, server, work)
            many = run(binary, BEFORE + options.requests, head, body, options.handshakes, http2, server, work)
            each = worker(few, many, options.requests)
            total = sum(each.values())
            own = sum(cost for (function, file), cost in each.items() if crate(file, function) not in CHOSEN)
            first, own_first = first or total, own_first or own
            print(f"{name or binary}: {total:,.0f} instructions per request, {total / first:.3f} of the first; outside libraries of "
                  f"cryptography {own:,.0f}, {own / own_first:.3f}")
            if options.top:
                functions, files = collections.Counter(), collections.Counter()
                for (function, file), cost in each.items():
                    functions[plain(function)] += cost
                    files[crate(file, function)] += cost
                table("by function, without what it calls", functions, options.top, total)
                table("by source, wherever it was inlined", files, options.top, total)


if __name__ == "__main__":
    main()

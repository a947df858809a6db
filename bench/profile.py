#!/usr/bin/env python3
"""Where the CPU time of a request goes, in Offramp and beside it in nginx and HAProxy.

Usage, as root: bench/profile.py [NAME=OFFRAMP ...] [--load small] [--seconds 10] [--connections 64] [--detail 0]

Each proxy ends TLS 1.3 on the first core, in front of an nginx that answers from memory; the load comes from the second core:
small   GET of ten bytes over HTTP/1.1, by wrk
upload  POST of 1 MiB over HTTP/1.1, on 8 connections, by wrk
http2   GET of ten bytes over HTTP/2, on 8 connections of 10 streams, by h2load
grpc    POST of ten bytes in the same way, with HTTP/2 to the application as well
files   GET of 1,000 files of 8 KiB in turn over HTTP/1.1, by wrk; without HAProxy, which serves none
`perf record -e cpu-clock` samples the proxy's processes. A sample belongs to a part by where it was taken: the kernel,
a cryptographic library, or else the source file whose code it is in, wherever that was inlined (Offramp), or the name
of the function (nginx and HAProxy, whose binaries export many). Functions without a name are not attributed. The result is a table
in Markdown: shares, and CPU time in microseconds.

Offramp has to be a build with debug = "line-tables-only", as of the release profile. Needs perf, addr2line or
llvm-symbolizer, wrk, h2load, nginx and openssl; HAProxy is left out where it is not installed.
"""
import argparse, collections, os, re, shutil, signal, socket, subprocess, tempfile, time
from pathlib import Path

PEERS = Path(__file__).parent.parent / "crates/bench/peers"
PARTS = [
    "kernel: TCP, sockets, epoll",
    "cryptography and records",
    "parsing",
    "routing, facts and forwarding",
    "writing",
    "waiting: event loop, sockets, clocks",
    "memory",
    "not attributed",
]
KERNEL, CRYPTO, PARSING, ROUTING, WRITING, WAITING, MEMORY, REST = range(len(PARTS))

# The first that matches a source file decides.
FILES = [
    (r"/(aws-lc|ring)[^/]*/|/crates/(record|tls)/", CRYPTO),
    (r"/crates/http/src/(head\.rs|head/(request|response)\.rs)", WRITING),
    (r"/crates/http/src/(field|h1|head|hpack|host|scan|target)", PARSING),
    (r"/crates/(upstream/src/http/line/(encode|outbound)|proxy/src/l7/h1/(response|outbox))", WRITING),
    (r"/crates/(upstream/src/http/line/inbound|proxy/src/l7/intake)", PARSING),
    (r"/crates/net/|/(tokio|mio|rustix|parking_lot)[^/]*/|/library/std/src/sys/(time|pal)|/library/core/src/task", WAITING),
    (r"/crates/", ROUTING),
    (r"/(bytes|arc-swap|http|hyper|hashbrown)-\d", ROUTING),
]
# The same for functions, where there is no source file or it is one of the standard library.
FUNCTIONS = [
    (r"aes|gcm|ghash|chacha|poly1305|aws_lc|ring_core|CRYPTO_|EVP_|^SSL_|^ssl|^ngx_ssl|^ngx_http_ssl|BIO_|^ha_ssl|OPENSSL", CRYPTO),
    (r"malloc|calloc|realloc|free|memcpy|memmove|memset|memcmp|ngx_p?n?alloc|ngx_pcalloc|ngx_.*_pool|ngx_palloc", MEMORY),
    (r"^_*pool_|^offer_buffers|^b_(alloc|free)", MEMORY),
    (r"^hpack_dec|^hpack_idx|^h1_(headers|parse|process)|^h2_(make_htx|process_demux|rcv|parse)|^h2c_|^http_(wait|parse)|^huff_dec", PARSING),
    (r"^hpack_enc|^h2s_|^h2_(snd|send|encode|resume)|^h1_(snd|send|make|format)|^htx_|^http_(add|replace|remove)_header", WRITING),
    (r"poll|^fd_|^_?_?task|process_runnable|run_tasks|wake|^clock_|^eb\d|^eb32|raw_sock|^conn_(recv|send|io)|^sock_", WAITING),
    (r"^(http|htx|sess|stream|process_stream|sample|smp|acl|pattern|lf|be|srv|back|front|connect|conn|sc|si|cs|channel|vars)_", ROUTING),
    (r"^process_stream|^http_process|^h2_|^h1_|^session", ROUTING),
    (r"offramp_http::(field|h1|host|scan|target)|ngx_http_parse|ngx_http_process_request|ngx_http_process_header", PARSING),
    (r"ngx_http_proxy_process|ngx_http_upstream_process_header|ngx_http_read_request", PARSING),
    (r"offramp_http::head|line::(encode|outbound)|ngx_http_write|ngx_http_header_filter|ngx_chain|ngx_output|ngx_.*send|_filter", WRITING),
    (r"ngx_http_proxy_create_request|ngx_linux_sendfile|ngx_unix_send|ngx_writev|ngx_readv|ngx_unix_recv", WRITING),
    (r"tokio|mio::|epoll|ngx_epoll|ngx_event|ngx_process_events|ngx_time|ngx_rbtree|ngx_worker|clock|Timespec|Instant", WAITING),
    (r"offramp_(record|tls)", CRYPTO),
    (r"offramp|ngx_http", ROUTING),
]
OBJECTS = [(r"libcrypto|libssl", CRYPTO), (r"libc\.so|libc-", MEMORY), (r"\[vdso\]|\[vdso", WAITING)]


def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def fill(text, values):
    for name, value in values.items():
        text = text.replace("{{%s}}" % name, value)
    return text


def wait(address, process):
    for _ in range(300):
        if process.poll() is not None:
            raise SystemExit(f"{process.args}: it ended")
        with socket.socket() as one:
            if one.connect_ex(address) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{process.args}: it does not listen")


def start(command, core, log):
    pin = lambda: os.sched_setaffinity(0, {core})
    return subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=pin)


def tree(pid):
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid] + [one for child in children for one in tree(int(child))]


def cpu(pids):
    """CPU seconds of these processes, by the scheduler's own clock."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def symbolize(program, addresses):
    """For each address of a program the frames, innermost first, as (function, file)."""
    addresses = sorted(addresses)
    tool = shutil.which("llvm-symbolizer")
    command = [tool, "--output-style=GNU", f"--obj={program}"] if tool else ["addr2line", "-e", program]
    text = "".join(f"{address:#x}\n" for address in addresses)
    said = subprocess.run([*command, "-a", "-i", "-f", "-C"], input=text, capture_output=True, text=True, check=True)
    found, now = {}, []
    lines = iter(line for line in said.stdout.splitlines() if line)
    for line in lines:
        if line.startswith("0x"):
            now = found.setdefault(int(line, 16), [])
        else:
            now.append((line, next(lines, "??")))
    return found


def by_name(function):
    return next((part for pattern, part in FUNCTIONS if re.search(pattern, function)), REST)


def part_of(frames):
    """The part of a sample: that of the innermost frame which is not of the standard library."""
    for function, file in frames:
        for pattern, part in FILES:
            if re.search(pattern, file):
                return part
    return next((part for part in (by_name(function) for function, _ in frames) if part != REST), REST)


def asking(options, work, seconds, url):
    """The command of the load."""
    if options.load in ("http2", "grpc"):
        body = work / "ten"
        body.write_bytes(b"0123456789")
        data = ["-d", str(body), "-H", "content-type: application/grpc"] if options.load == "grpc" else []
        return ["h2load", "-t1", "-c8", "-m10", f"-D{seconds}", "--tls13-ciphers=TLS_AES_128_GCM_SHA256", *data, url]
    wrk = ["wrk", "-t1", "--timeout", "10s", f"-d{seconds}s"]
    if options.load == "files":
        script = work / "files.lua"
        script.write_text(
            "local turn = 0\nrequest = function()\n  turn = (turn + 1) % 1000\n"
            '  return wrk.format("GET", string.format("/pages/%04d.html", turn))\nend\n'
        )
        return [*wrk, f"-c{options.connections}", "-s", str(script), url]
    if options.load == "upload":
        script = work / "upload.lua"
        script.write_text('wrk.method = "POST"\nwrk.body = string.rep("x", 1048576)\n')
        return [*wrk, "-c8", "-s", str(script), url]
    return [*wrk, f"-c{options.connections}", url]


def sample(name, command, address, options, work):
    """Shares of the parts, CPU microseconds per request, and the heaviest functions."""
    with open(work / f"{name}.log", "wb") as log:
        proxy = start(command, options.cores[0], log)
        try:
            wait(address, proxy)
            url = f"https://localhost:{address[1]}/"
            environment = {**os.environ, "OPENSSL_CONF": str(work / "openssl.cnf")}
            pin = lambda: os.sched_setaffinity(0, {options.cores[-1]})
            load = lambda seconds: subprocess.Popen(
                asking(options, work, seconds, url), stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=pin
            )
            load(1).communicate()
            pids = tree(proxy.pid)
            maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pid in pids}
            data = work / f"{name}.data"
            record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "2999", "-o", str(data)]
            record += ["-p", ",".join(map(str, pids)), "--", "sleep", str(options.seconds + 1)]
            recorder = subprocess.Popen(record, stdout=log, stderr=log, preexec_fn=pin)
            before = cpu(pids)
            said = load(options.seconds).communicate()[0]
            used = cpu(pids) - before
            recorder.wait()
        finally:
            proxy.send_signal(signal.SIGTERM)
            proxy.wait(30)
    requests = int(re.search(r"(\d+) (?:requests in|succeeded)", said)[1])
    script = ["perf", "script", "-i", str(data), "-F", "pid,ip,sym,dso"]
    lines = subprocess.run(script, capture_output=True, text=True).stdout.splitlines()
    return attribute(lines, maps, Path(command[0])), used / requests * 1e6


def attribute(lines, maps, program):
    counts, functions = collections.Counter(), collections.Counter()
    addresses, waiting = set(), collections.Counter()
    # Where the code of the program lies: addresses become those in its file.
    spans = {}
    for pid, text in maps.items():
        for line in text.splitlines():
            match = re.match(r"(\w+)-(\w+) \S+ (\w+) \S+ \d+\s+(\S+)", line)
            if match and match[4] == str(program):
                spans.setdefault(pid, []).append((int(match[1], 16), int(match[2], 16), int(match[3], 16)))
    base = {pid: min(low - offset for low, _, offset in all) for pid, all in spans.items()}
    # A binary without lines of source has names at the most.
    debug = program.name not in ("nginx", "haproxy")
    for line in lines:
        match = re.match(r"\s*(\d+)\s+(\w+)\s+(.*?)\s+\((.*)\)$", line)
        if not match:
            continue
        pid, address, function, object = int(match[1]), int(match[2], 16), match[3], match[4]
        pid = pid if pid in base else next(iter(base), None)
        if object.startswith("[kernel") or address >= 1 << 63:
            counts[KERNEL] += 1
            continue
        if debug and pid is not None and any(low <= address < high for low, high, _ in spans[pid]):
            waiting[address - base[pid]] += 1
            addresses.add(address - base[pid])
            continue
        part = next((part for pattern, part in OBJECTS if re.search(pattern, object)), None)
        named = by_name(function)
        counts[named if part is None or (part == MEMORY and named != REST) else part] += 1
        functions[function] += 1
    if addresses:
        known = symbolize(str(program), addresses)
        for address, times in waiting.items():
            frames = known.get(address, [])
            counts[part_of(frames)] += times
            functions[" < ".join(function for function, _ in frames[:2])] += times
    return counts, functions


def contestants(options, work):
    """Names, commands and addresses of the proxies, set up as the benchmark does it."""
    application = port()
    (work / "app.conf").write_text(
        "user root; daemon off; worker_processes 1; pid %s/app.pid; error_log %s/app-error.log;\n"
        "events { worker_connections 4096; }\n"
        "http { access_log off; keepalive_requests 100000000;\n"
        "  client_max_body_size 0; client_body_buffer_size 2m;\n"
        "  server { listen 127.0.0.1:%d%s; location / { default_type text/plain; return 200 0123456789; } } }\n"
        % (work, work, application, " http2" if options.load == "grpc" else "")
    )
    chain, key = work / "chain.pem", work / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", chain],
        check=True, capture_output=True,
    )
    (work / "openssl.cnf").write_text(
        "openssl_conf = all\n[all]\nssl_conf = programs\n[programs]\nsystem_default = tls\n"
        "[tls]\nMinProtocol = TLSv1.3\nCiphersuites = TLS_AES_128_GCM_SHA256\nGroups = X25519\n"
    )
    server = f"127.0.0.1:{application}"
    h2, kind = options.load in ("http2", "grpc"), options.load if options.load in ("grpc", "files") else "http"
    pages = work / "www" / "pages"
    pages.mkdir(parents=True)
    for number in range(1000):
        (pages / f"{number:04}.html").write_text(f"<p>page {number}, line after line</p>\n".ljust(64, "x") * 128)
    found = []

    def values(directory):
        listen = port()
        directory.mkdir()
        return listen, {
            "dir": str(directory), "root": str(work / "www"), "listen": f"127.0.0.1:{listen}", "workers": "1", "cert": str(chain), "key": str(key),
            "backend_offramp": server, "backend_nginx": server, "connections": "4096", "descriptors": "10000",
            "user_line": "user root;", "reuseport": "", "nginx_http2": " http2" if h2 else "", "protocol": "TLSv1.3",
            "ciphers12": "ECDHE-ECDSA-AES128-GCM-SHA256",
        }

    for given in options.offramp:
        name, _, binary = given.rpartition("=")
        name = name or "Offramp"
        listen, filled = values(work / name)
        config = work / name / "offramp.toml"
        config.write_text(fill((PEERS / f"offramp-{kind}.toml").read_text(), filled))
        found.append((name, [str(Path(binary).resolve()), "run", "-c", str(config)], listen))
    listen, filled = values(work / "nginx")
    config = work / "nginx" / "nginx.conf"
    config.write_text(fill((PEERS / f"nginx-{kind}.conf").read_text(), filled))
    found.append(("nginx", [shutil.which("nginx"), "-p", str(work / "nginx"), "-c", str(config)], listen))
    haproxy = shutil.which("haproxy")
    if haproxy and kind != "files":
        listen, filled = values(work / "haproxy")
        both = work / "haproxy" / "both.pem"
        both.write_text(chain.read_text() + key.read_text())
        config = work / "haproxy" / "haproxy.cfg"
        filled |= {"both": str(both), "backend_haproxy": server, "alpn": "h2,http/1.1" if h2 else "http/1.1"}
        config.write_text(fill((PEERS / f"haproxy-{kind}.cfg").read_text(), filled))
        found.append(("HAProxy", [haproxy, "-db", "-f", str(config)], listen))
    return [shutil.which("nginx"), "-c", str(work / "app.conf"), "-p", str(work)], ("127.0.0.1", application), found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("offramp", nargs="*", default=["target/release/offramp"], metavar="[NAME=]OFFRAMP")
    parser.add_argument("--load", choices=["small", "upload", "http2", "grpc", "files"], default="small")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--detail", type=int, default=0, help="so many functions of each")
    options = parser.parse_args()
    options.cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="offramp-profile-") as place:
        work = Path(place)
        os.chmod(work, 0o755)
        command, address, proxies = contestants(options, work)
        results = []
        with open(work / "app.log", "wb") as log:
            application = start(command, options.cores[-1], log)
            try:
                wait(address, application)
                for name, command, listen in proxies:
                    (counts, functions), each = sample(name, command, ("127.0.0.1", listen), options, work)
                    results.append((name, counts, functions, each))
            finally:
                application.send_signal(signal.SIGTERM)
                application.wait(30)
    print("| | " + " | ".join(f"{name}, share | µs" for name, *_ in results) + " |")
    print("| --- |" + " ---: | ---: |" * len(results))
    for at, part in enumerate(PARTS):
        cells = []
        for _, counts, _, each in results:
            share = counts[at] / max(1, sum(counts.values()))
            cells.append(f"{share:.0%} | {share * each:.2f}")
        print(f"| {part} | " + " | ".join(cells) + " |")
    print("| all | " + " | ".join(f"100% | **{each:.1f}**" for *_, each in results) + " |")
    for name, counts, functions, _ in results if options.detail else []:
        print(f"\n{name}, of {sum(counts.values())} samples, without the kernel's:")
        for function, times in functions.most_common(options.detail):
            print(f"{times / sum(counts.values()):6.1%}  {function[:140]}")


if __name__ == "__main__":
    main()

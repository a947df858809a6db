"""What the measurements of changes share: a configuration of many routes, a free port, and a process with its log."""
import os, signal, socket, subprocess, time
from pathlib import Path

HEAD = """state_dir = "state"
workers = 2
[tls]
certificates = "local"
[log]
level = "debug"
[access_log]
output = "none"
{more}[[listener]]
address = "127.0.0.1:{port}"
mode = "http"
[[route]]
respond = {{ body = "{round}\\n" }}
"""
ROUTE = """[[route]]
host = "h{host}.example.org"
path = "/{number}/{path}"
backend = "b{number}"
[backend.b{number}]
servers = ["127.0.0.1:{one}", "127.0.0.1:{two}"]
"""


def configuration(port, routes, round, path="", more=""):
    """With so many routes, each with a backend of its own with two servers; the first route answers with the round."""
    # A certificate of the local authority has at most 100 names.
    each = (ROUTE.format(host=number % 50, number=number, path=path, one=20000 + number % 100, two=20100 + number % 100)
            for number in range(routes))
    user = 'user = "root"\n' if os.geteuid() == 0 else ""
    return user + HEAD.format(port=port, round=round, more=more) + "".join(each)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Offramp:
    """A process in `folder` that writes its log there. `until` waits for a text in the log."""

    def __init__(self, binary, folder, file, environment=None):
        self.log = Path(folder, "log")
        with open(self.log, "wb") as errors:
            self.process = subprocess.Popen([binary, "run", "--config", file], cwd=folder, env=environment,
                                            stdout=subprocess.DEVNULL, stderr=errors)

    def until(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.log.read_bytes():
            assert self.process.poll() is None and time.monotonic() < end, self.log.read_text()
            time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()


def wrk(port, *more):
    """Asks on the last core, until it is terminated."""
    core = str(max(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, "wrk", "-t1", "-c32", "-d600s", *more, f"https://127.0.0.1:{port}/"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)

"""A minimal Debian in namespaces of its own, with systemd as its first process or without.

It has its own processes, network (a loopback only), control groups and files: an overlay over a folder that `debootstrap` has
made, so that a new machine costs nothing. Takes root.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent

# Runs in the new namespaces, with the folder of the machine and the command of its first process.
BOOT = r"""
set -e
root=$1; shift
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$root/upper,workdir=$root/work" "$root/root"
cd "$root/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mount -t tmpfs -o mode=1777 tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
exec env -i container=scratch PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
"""


class Machine:
    """A running machine; `with` stops it and removes its files."""

    def __init__(self, release, systemd=True):
        self.spawned = []
        base = TOP / "target/roots" / release
        subprocess.run([TOP / "scripts/debian-root", release, base, "systemd-sysv"], check=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"offramp-{release}-"))
        for name in ["upper", "work", "root"]:
            (self.folder / name).mkdir()
        first = ["/lib/systemd/systemd"] if systemd else ["sleep", "infinity"]
        self.namespaces = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net", "--cgroup",
             "sh", "-c", BOOT, "boot", self.folder, *first],
            env={**os.environ, "LOWER": str(base)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )
        children = Path(f"/proc/{self.namespaces.pid}/task/{self.namespaces.pid}/children")
        wait(lambda: children.read_text().split(), "the first process")
        self.first = children.read_text().split()[0]
        comm = Path(f"/proc/{self.first}/comm")
        wait(lambda: comm.read_text().strip() in ("systemd", "sleep"), "the first process to begin")
        if systemd:
            wait(lambda: self.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"), "systemd")
        else:
            self.run("ip", "link", "set", "lo", "up", inside=False, check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.spawned:
            process.kill()
            process.wait()
        self.namespaces.kill()
        self.namespaces.wait()
        wait(lambda: not Path(f"/proc/{self.first}").exists(), "the machine to end")
        shutil.rmtree(self.folder)

    def command(self, *command, inside=True):
        """The command line that runs something in the machine; with inside=False a program of this one in its network."""
        into = ["--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup"] if inside else ["--net"]
        # PATH, because a root of another day may lack /sbin in it.
        environment = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
                       "HOME=/root"]
        return ["nsenter", "--target", self.first, *into, "--", *(environment if inside else []), *command]

    def run(self, *command, inside=True, check=False, timeout=600):
        """Runs a command; the result has what it wrote to both outputs. The limit is for what hangs: dpkg waits for a slow disk."""
        done = subprocess.run(
            self.command(*command, inside=inside), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=timeout,
        )
        if check and done.returncode:
            raise Failed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
        return done

    def spawn(self, *command, inside=True, **more):
        """Starts a command that goes on, at most until the machine ends."""
        process = subprocess.Popen(self.command(*command, inside=inside), stdin=subprocess.DEVNULL, text=True, **more)
        self.spawned.append(process)
        return process

    def path(self, path):
        """A path of the machine, as this one sees it."""
        return Path(f"/proc/{self.first}/root") / str(path).lstrip("/")

    def copy(self, source, target):
        """Copies a file into the machine, and returns its path there."""
        shutil.copy(source, self.path(target))
        return target

    def show(self, unit, name):
        """A property of a unit."""
        return self.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()

    def curl(self, *arguments):
        """The status and the body that curl gets, by the network of the machine."""
        done = self.run("curl", "--silent", "--show-error", "--max-time", "10", "--write-out", "\n%{http_code}", *arguments,
                        inside=False)
        body, _, status = done.stdout.rpartition("\n")
        return status, body


class Failed(Exception):
    """Something that must hold does not."""


def must(condition, *about):
    if not condition:
        raise Failed("\n".join(map(str, about)))


def wait(condition, what, seconds=120):
    """Waits until a condition holds."""
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise Failed(f"waited {seconds} s for {what}")
        time.sleep(0.05)


def run_all(cases):
    """Runs cases, which are named by their functions, and ends with 1 if one has failed."""
    # So that machines end with this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    failed = 0
    for case, arguments in cases:
        began = time.monotonic()
        name = f"{case.__name__.replace('_', ' ')} ({', '.join(map(str, arguments))})" if arguments else case.__name__
        try:
            said = case(*arguments)
            print(f"ok      {name}, {time.monotonic() - began:.1f} s{': ' + said if said else ''}", flush=True)
        except Exception:  # the next case has a machine of its own
            failed += 1
            print(f"FAILED  {name}:\n{traceback.format_exc()}", flush=True)
    if failed:
        sys.exit(1)

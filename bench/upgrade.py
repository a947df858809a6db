#!/usr/bin/env python3
"""How long an upgrade takes until the new process accepts, and where the time goes.

Usage: bench/upgrade.py OFFRAMP [--rounds 20] [--load]

Offramp runs with two workers, a log store and its sandbox, and is asked for one upgrade after another (`offramp ctl
upgrade`). With `--load`, wrk on the last core asks meanwhile, with a handshake for each request. Told are the milliseconds
that the command names, from the order until the new process accepts, and the parts of the new one's start.
"""
import argparse, re, statistics, subprocess, tempfile, time
from pathlib import Path

from many_routes import Offramp, configuration, free_port, wrk

STORE = """[log_store]
url = "sqlite:state/log.db"
"""


def tell(name, values):
    print(f"{name:<28} median {statistics.median(values):6.1f}   {min(values):6.1f} to {max(values):6.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("offramp")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--load", action="store_true")
    given = parser.parse_args()
    binary = Path(given.offramp).resolve()
    with tempfile.TemporaryDirectory() as folder:
        port, file = free_port(), Path(folder, "offramp.toml")
        file.write_text(configuration(port, 0, 0, more=STORE))
        ctl = [binary, "ctl", "--admin", f"unix:{Path(folder, 'state', 'admin.sock')}"]
        offramp, load, took = Offramp(binary, folder, file), None, []
        try:
            offramp.until(b"admin address")
            if given.load:
                load = wrk(port, "-H", "Connection: close")
            for _ in range(given.rounds):
                time.sleep(0.5)
                said = subprocess.run([*ctl, "upgrade"], check=True, capture_output=True, text=True).stdout
                took.append(float(re.search(r"after ([\d.]+) ms", said).group(1)))
        finally:
            if load:
                load.terminate()
                load.wait(10)
            subprocess.run([*ctl, "stop"], stdout=subprocess.DEVNULL)
            offramp.stop()
        tell("until the new one accepts", took)
        lines = [line for line in offramp.log.read_text().splitlines() if "start took" in line]
        starts = [re.findall(r"(\w+)_ms=([\d.]+)", line) for line in lines]
        # The first one was no upgrade.
        for name in [name for name, _ in starts[0]] if len(starts) > 1 else []:
            tell(f"  {name}", [float(value) for start in starts[1:] for other, value in start if other == name])


main()

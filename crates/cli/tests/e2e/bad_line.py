"""A line between two network namespaces that loses packets and delays them. It needs no module of the kernel but tun.

bad_line.py PID LOSS DELAY_MS: the near end is in the namespace of this process, with the address 10.77.0.1, the far end
in that of PID, with 10.77.0.2. LOSS is the share of packets that are lost, by a generator with a fixed seed. Ends with
its standard output, or after five minutes.
"""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 1, 0x1000, 0x40000000
MOST_UNDERWAY = 2000


def end_of_line(address, peer):
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"line", IFF_TUN | IFF_NO_PI))
    subprocess.run(["ip", "address", "add", address, "peer", peer, "dev", "line"], check=True)
    subprocess.run(["ip", "link", "set", "line", "up"], check=True)
    return tun


def main():
    other, loss, delay = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]) / 1000
    near = end_of_line("10.77.0.1", "10.77.0.2")
    with open(f"/proc/{other}/ns/net", "rb") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    far = end_of_line("10.77.0.2", "10.77.0.1")
    print("up", flush=True)
    dice, underway, number, end = random.Random(7), [], 0, time.monotonic() + 300
    while time.monotonic() < end:
        wait = max(0, underway[0][0] - time.monotonic()) if underway else 1
        for source in select.select([near, far], [], [], wait)[0]:
            packet = os.read(source, 65536)
            # A full queue loses packets, as that of a router does.
            if dice.random() >= loss and len(underway) < MOST_UNDERWAY:
                number += 1
                target = far if source == near else near
                heapq.heappush(underway, (time.monotonic() + delay, number, target, packet))
        while underway and underway[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(underway)
            try:
                os.write(target, packet)
            except OSError:
                pass


main()

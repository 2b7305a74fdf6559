"""A slow or lossy wire between a host's link and the bridge, for kernels without netem.

`wire.py plain LINK`: switch off LINK's offloads, so that whole frames with checksums come out of it.
`wire.py run LINK TAP DELAY_MS LOSS`: carry frames between LINK and a new tap device TAP until killed.
"""

import fcntl
import heapq
import os
import random
import select
import socket
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
SIOCETHTOOL = 0x8946
# ethtool's set commands for tx checksums, scatter-gather, TSO, UFO, GSO (linux/ethtool.h)
OFFLOADS = (0x17, 0x19, 0x1F, 0x22, 0x24)
PACKET_OUTGOING = 4


def main(words: list[str]) -> None:
    """Do what the first word says."""
    if words[0] == "plain":
        make_plain(words[1])
    else:
        carry(words[1], words[2], float(words[3]) / 1000, float(words[4]))


def make_plain(link: str) -> None:
    """Switch off the offloads of a link in this network namespace."""
    import ctypes

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("=II", command, 0))
            request = struct.pack("=16sQ16x", link.encode(), ctypes.addressof(value))
            try:
                fcntl.ioctl(control, SIOCETHTOOL, request)
            except OSError as error:
                print(f"{link}: offload {command:#x}: {error}", file=sys.stderr)


def carry(link: str, tap: str, delay_s: float, loss: float) -> None:
    """Move frames both ways, each late by the delay; the same seed loses the same share in every run."""
    chance = random.Random(1)
    tap_file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap_file, TUNSETIFF, struct.pack("=16sH22x", tap.encode(), IFF_TAP | IFF_NO_PI))
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    raw.bind((link, 0))
    print("ready", flush=True)
    waiting: list[tuple[float, int, bool, bytes]] = []
    number = 0
    while True:
        pause_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([raw, tap_file], [], [], pause_s)
        for source in readable:
            if source is raw:
                frame, origin = raw.recvfrom(65536)
                if origin[2] == PACKET_OUTGOING:
                    continue
            else:
                frame = os.read(tap_file, 65536)
            if chance.random() >= loss:
                number += 1
                heapq.heappush(waiting, (time.monotonic() + delay_s, number, source is raw, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, outward, frame = heapq.heappop(waiting)
            try:
                if outward:
                    os.write(tap_file, frame)
                else:
                    raw.send(frame)
            except OSError:  # a link that is down loses the frame, as a wire would
                continue


if __name__ == "__main__":
    main(sys.argv[1:])

"""A hostile program: takes back what it wrote until nobody reads its output any more, and stays.

Whoever waits for bytes that were there a moment ago minds no timeout and hears no wish to stop.
"""

import fcntl
import os
import random
import struct
import termios
import time

TRYING = 4.0
FROZEN = 0.5
LONGEST = 60.0


def unread(end):
    return struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))[0]


def taken_back(end):
    try:
        return os.read(end, 1)
    except BlockingIOError:
        return b""


def is_frozen(end):
    os.write(1, b"\n")
    until = time.monotonic() + FROZEN
    while unread(end) and time.monotonic() < until:
        time.sleep(0.001)
    return unread(end)


def main():
    out, err = (os.open(f"/proc/self/fd/{n}", os.O_RDONLY | os.O_NONBLOCK) for n in (1, 2))
    end = time.monotonic() + TRYING
    while time.monotonic() < end:
        os.write(2, b"e")
        os.write(1, b"o" * 60_000 + b"\n")
        until = time.perf_counter() + random.random() * 0.0004
        while time.perf_counter() < until:
            pass
        if taken_back(err) and is_frozen(out):
            return


try:
    main()
finally:
    time.sleep(LONGEST)

"""Programs that behave badly, each for a bounded time."""

from __future__ import annotations

from typing import Final

STRAYS: Final = """
import os, signal, sys, time
def stray():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(60)
        os._exit(0)
    os.wait()
"""
"""Double-forked, in sessions of their own, deaf to SIGTERM, holding standard output."""

STUBBORN: Final = (
    STRAYS
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    stray()
print("ready", flush=True)
time.sleep(60)
"""
)

LEAVING: Final = (
    STRAYS
    + """
for _ in range(3):
    stray()
print("gone", flush=True)
sys.exit(5)
"""
)

COUNTING: Final = (
    STRAYS
    + """
lines, strays, code, pause, folder = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
with open(folder + "/ran", "a") as ran:
    ran.write("ran\\n")
for _ in range(strays):
    stray()
for number in range(lines):
    for file, name in ((1, "out"), (2, "err")):
        os.write(file, b"%s %d\\n" % (name.encode(), number))
    if number % 50 == 49:
        time.sleep(float(pause))
for file, name in ((1, "out"), (2, "err")):
    os.write(file, b"%s end %d\\n" % (name.encode(), lines))
sys.exit(int(code))
"""
)
"""Numbered lines on both streams, and their number at the end."""

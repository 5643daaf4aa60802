"""A program whose processes say when they lived, so that two attempts at once are seen."""

from __future__ import annotations

WORDS = """
import os, signal, time
from pathlib import Path
number = os.environ["ROTA_ATTEMPT"]
Path(f"began-{number}").write_text(str(time.monotonic_ns()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def live(name):
    until = time.monotonic() + 60
    with open(f"lived-{number}-{name}", "w") as file:
        while time.monotonic() < until:
            os.pwrite(file.fileno(), b"%20d" % time.monotonic_ns(), 0)
            time.sleep(0.002)
    os._exit(0)
for name in ("forked", "session", "double"):
    if os.fork() == 0:
        if name != "forked":
            os.setsid()
        if name == "double" and os.fork():
            os._exit(0)
        live(name)
print("begun", flush=True)
live("main")
"""
NAMES = {"forked", "session", "double", "main"}


def together(folder):
    """Return the attempts of which a process lived when the next one had begun."""
    found = []
    for later in sorted(folder.glob("began-*")):
        number = int(later.name.removeprefix("began-"))
        lived = {p.name.split("-")[2]: p for p in folder.glob(f"lived-{number - 1}-*")}
        assert number == 1 or set(lived) == NAMES
        began = int(later.read_text())
        found += [number - 1 for path in lived.values() if int(path.read_text()) >= began]
    return found

"""An image made of this machine's own Python, as a stream of tar."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

PYTHON = "/usr/bin/python3.11"
LEFT_OUT = ("dist-packages", "test", "__pycache__")


@contextlib.contextmanager
def an_image(*programs):
    """Python, a shell, cat, further programs, and the libraries they need."""
    linked = subprocess.run(["ldd", PYTHON, *programs], capture_output=True, check=True).stdout
    libraries = {word for word in linked.decode().split() if word.startswith("/")}
    libraries = sorted(word for word in libraries if not word.endswith(":"))
    libraries += [str(path) for path in Path("/usr/lib").glob("*-linux-gnu/libffi.so.8")]
    wanted = [PYTHON, "/usr/bin/python3", "/usr/lib/python3.11", "/bin/sh", "/bin/cat", *libraries]
    wanted += programs
    packing = subprocess.Popen(
        ["tar", "-C", "/", *(f"--exclude={name}" for name in LEFT_OUT), "--dereference", "-c"]
        + [path.lstrip("/") for path in wanted],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield packing.stdout
    finally:
        packing.stdout.close()
        packing.wait()

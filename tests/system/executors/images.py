"""An image made of this machine's own Python, as a stream of tar."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

PYTHON = "/usr/bin/python3.11"
LEFT_OUT = ("dist-packages", "test", "__pycache__")


@contextlib.contextmanager
def an_image():
    """Python, a shell, cat, and the libraries they need."""
    linked = subprocess.run(["ldd", PYTHON], capture_output=True, check=True).stdout.decode()
    libraries = [word for word in linked.split() if word.startswith("/")]
    libraries += [str(path) for path in Path("/usr/lib").glob("*-linux-gnu/libffi.so.8")]
    wanted = [PYTHON, "/usr/bin/python3", "/usr/lib/python3.11", "/bin/sh", "/bin/cat", *libraries]
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

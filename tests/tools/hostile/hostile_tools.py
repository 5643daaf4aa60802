"""What the attacks of hostile.py share."""

from __future__ import annotations

import ctypes
import os
import platform

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
MIB = 1024 * 1024


def call(number, *arguments):
    """Make a system call by its number; return the error, or 0."""
    ctypes.set_errno(0)
    result = LIBC.syscall(
        ctypes.c_long(number), *[ctypes.c_void_p(a) if isinstance(a, int) else a for a in arguments]
    )
    return ctypes.get_errno() if result == -1 else 0


def in_child(function):
    """Return what a function returns, from a child of its own; its end is no end of ours."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(function() or "")
        except BaseException as fault:  # noqa: BLE001
            answer = f"!{fault}"
        os.write(writing, answer.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        answer = said.read()
    os.waitpid(child, 0)
    return "" if answer.startswith("!") else answer


def readable(path):
    try:
        with open(path, "rb") as file:
            return file.read(65536) or b"(empty)"
    except OSError:
        return b""


def writable(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
    except OSError:
        return ""
    return f"{path} can be written"

"""A terminal that is lent to another program, and put back as it was whatever becomes of that."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Mapping

PLAIN = (
    "\x1b[r"  # every line scrolls
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l"  # no mouse, no marks
    "\x1b[?1l\x1b>"  # keys say what they say
    "\x1b[?1049l"  # the screen of before
    "\x1b(B\x1b[0m\x1b[?25h"  # letters, no colours, a cursor
)
"""What a terminal is told whose program could not leave it itself."""


def lend(words: list[str], environment: Mapping[str, str]) -> int:
    """Let a program have the terminal until it ends, and return its exit code."""
    lent = sys.stdin.fileno()
    before = termios.tcgetattr(lent)
    sys.stdout.flush()
    child = os.posix_spawn(words[0], words, environment)
    held = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM)),
    }
    try:
        return _ended(child)
    finally:
        for number, usual in held.items():
            signal.signal(number, usual)
        if termios.tcgetattr(lent) != before:
            termios.tcsetattr(lent, termios.TCSAFLUSH, before)
            os.write(sys.stdout.fileno(), PLAIN.encode())


def _ended(child: int) -> int:
    """Wait for a program; while it is stopped this one is, so that the shell has its turn."""
    while True:
        _, status = os.waitpid(child, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        os.kill(os.getpid(), signal.SIGSTOP)

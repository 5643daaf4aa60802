"""The pane's end: run the program on a terminal of its own, and show and tell what it says.

The program's terminal is not the pane's: whatever it does to it stays there, and nobody misses a
byte when tmux is gone. Words: STATE "input"|"typed".
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import termios
import tty

from rota.executors.kit.start import CANNOT_START, NOT_STARTED, handed_over
from rota.executors.tmux.files import ENDED, INPUT, OUTPUT, WORDS

CHUNK = 64 * 1024
PANE_IN, PANE_OUT = 0, 1
QUIET = 200
"""Milliseconds of silence that end a terminal which strays of the program still hold."""


def main(words: list[str]) -> int:
    """Run the program that the state folder names."""
    state, stdin = words
    telling = os.open(f"{state}/{OUTPUT}", os.O_WRONLY)
    given = os.open(f"{state}/{INPUT}", os.O_RDONLY) if stdin == "input" else None
    with open(f"{state}/{WORDS}", "rb") as file:  # noqa: PTH123
        program = [os.fsdecode(word) for word in file.read().split(b"\0")]
    os.unlink(f"{state}/{WORDS}")  # noqa: PTH108
    master, slave = os.openpty()
    copy_size(master)
    child = os.fork()
    if child == 0:
        become(program, slave, given)
    for held in (slave, given):
        if held is not None:
            os.close(held)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    status = show(child, master, telling)
    note(state, status)
    os.close(telling)
    return 0


def become(program: list[str], slave: int, given: int | None) -> None:
    """Turn this child into the program, with its terminal as its own."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.dup2(slave if given is None else given, 0)
    os.dup2(slave, 1)
    os.dup2(slave, 2)
    os.closerange(3, 1024)
    env = {name: value for name, value in handed_over().items() if not name.startswith("TMUX")}
    try:
        os.execvpe(program[0], program, env)  # noqa: S606 - becoming the program is the point
    except OSError as fault:
        print(f"{CANNOT_START}{program[0]}: {fault.strerror}", file=sys.stderr)  # noqa: T201
    finally:
        os._exit(NOT_STARTED)


def copy_size(master: int) -> None:
    """Give the program's terminal the size of the pane."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(PANE_IN, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def show(child: int, master: int, telling: int) -> int:
    """Copy both ways until the program has ended and all it said is passed on."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    for number in (signal.SIGCHLD, signal.SIGWINCH):
        signal.signal(number, lambda *_: None)
    with contextlib.suppress(termios.error):
        tty.setraw(PANE_IN)
    waiting = select.poll()
    for held in (master, PANE_IN, woken):
        waiting.register(held, select.POLLIN)
    status: int | None = None
    while True:
        ready = {held for held, _ in waiting.poll(None if status is None else QUIET)}
        if woken in ready:
            os.read(woken, CHUNK)
            copy_size(master)
        if status is None:
            found, how = os.waitpid(child, os.WNOHANG)
            status = how if found else None
        if PANE_IN in ready and not copy(PANE_IN, [master]):
            waiting.unregister(PANE_IN)
        if master in ready and not copy(master, [telling, PANE_OUT]):
            return os.waitpid(child, 0)[1] if status is None else status
        if status is not None and not ready:
            return status


def copy(source: int, sinks: list[int]) -> bool:
    """Pass on one chunk; say whether there may be more. A sink that is gone is not waited for."""
    try:
        chunk = os.read(source, CHUNK)
    except OSError:
        return False
    for sink in sinks:
        with contextlib.suppress(OSError):
            held = memoryview(chunk)
            while held:
                held = held[os.write(sink, held) :]
    return bool(chunk)


def note(state: str, status: int) -> None:
    """Write down how the program ended, whole or not at all."""
    with open(f"{state}/{ENDED}.new", "x", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(status))
    os.rename(f"{state}/{ENDED}.new", f"{state}/{ENDED}")  # noqa: PTH104

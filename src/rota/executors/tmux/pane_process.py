"""Process: runs the program on a terminal of its own inside the pane.

Because the program's terminal is not the pane's, its settings have no effect outside, and no output
is lost when tmux is gone. Only the keeper's side is waited for: neither a program that does not
read its input nor a hanging pane blocks it.

Arguments: STATE "input"|"typed".
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

from rota.executors.shared.exec_program import CANNOT_START, NOT_STARTED, inherited_environment

CHUNK = 64 * 1024
PANE_IN, PANE_OUT = 0, 1
QUIET = 0.2
"""Seconds without output after which a terminal still held by orphans is closed."""
PATIENCE = 2_000
"""Milliseconds to wait for a pane; a slow one is skipped until it accepts output again."""


def main(words: list[str]) -> int:
    """Run the program named in the state folder."""
    state, stdin = words
    telling = os.open(f"{state}/{OUTPUT}", os.O_WRONLY)
    given = os.open(f"{state}/{INPUT}", os.O_RDONLY) if stdin == "input" else None
    with open(f"{state}/{WORDS}", "rb") as file:  # noqa: PTH123
        program = [os.fsdecode(word) for word in file.read().split(b"\0")]
    os.unlink(f"{state}/{WORDS}")  # noqa: PTH108
    master, slave = os.openpty()
    copy_size(master)
    disable_flow_control(slave)
    child = os.fork()
    if child == 0:
        exec_in_terminal(program, slave, given)
    for held in (slave, given):
        if held is not None:
            os.close(held)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    status = copy_terminal(child, master, telling)
    record_exit(state, status)
    os.close(telling)
    return 0


def exec_in_terminal(program: list[str], slave: int, given: int | None) -> None:
    """Become the program, with its terminal as controlling terminal."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    os.dup2(slave if given is None else given, 0)
    os.dup2(slave, 1)
    os.dup2(slave, 2)
    os.closerange(3, 1024)
    env = {
        name: value
        for name, value in inherited_environment().items()
        if not name.startswith("TMUX")
    }
    try:
        os.execvpe(program[0], program, env)  # noqa: S606 - becoming the program is the point
    except OSError as error:
        print(f"{CANNOT_START}{program[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
    finally:
        os._exit(NOT_STARTED)


def copy_size(master: int) -> None:
    """Give the program's terminal the size of the pane."""
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(PANE_IN, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)


def disable_flow_control(slave: int) -> None:
    """Disable flow control, so that Ctrl-S does not block the program."""
    modes = termios.tcgetattr(slave)
    modes[0] &= ~termios.IXON
    termios.tcsetattr(slave, termios.TCSANOW, modes)


def copy_terminal(child: int, master: int, telling: int) -> int:
    """Copy input and output until the program has ended and all output is forwarded."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    for number in (signal.SIGCHLD, signal.SIGWINCH):
        signal.signal(number, lambda *_: None)
    with contextlib.suppress(termios.error):
        tty.setraw(PANE_IN)
    os.set_blocking(master, False)
    view = PaneView()
    typed, listens = b"", True
    status: int | None = None
    while True:
        sources = [master, woken, PANE_IN] if listens and not typed else [master, woken]
        quiet = None if status is None else QUIET
        ready, free, _ = select.select(sources, [master] if typed else [], [], quiet)
        if woken in ready:
            os.read(woken, CHUNK)
            copy_size(master)
        if status is None:
            found, how = os.waitpid(child, os.WNOHANG)
            status = how if found else None
        if PANE_IN in ready:
            keys = read_available(PANE_IN)
            typed, listens = keys or b"", keys is not None
        if typed:
            typed = write_input(typed, master)
        if master in ready:
            chunk = read_available(master)
            if chunk is None:
                return os.waitpid(child, 0)[1] if status is None else status
            write_output(chunk, telling)
            view.show(chunk)
        if status is not None and not ready and not free:
            return status


def read_available(source: int) -> bytes | None:
    """Read available data; None at the end."""
    try:
        return os.read(source, CHUNK) or None
    except BlockingIOError:
        return b""
    except OSError:
        return None


def write_input(typed: bytes, master: int) -> bytes:
    """Write input as far as the terminal accepts it, and return the rest."""
    try:
        return typed[os.write(master, typed) :]
    except BlockingIOError:
        return typed
    except OSError:
        return b""


def write_output(chunk: bytes, telling: int) -> None:
    """Forward a chunk to the keeper's side, if it is there."""
    with contextlib.suppress(OSError):
        held = memoryview(chunk)
        while held:
            held = held[os.write(telling, held) :]


class PaneView:
    """The pane that people see; output that it does not accept is not shown."""

    def __init__(self) -> None:
        os.set_blocking(PANE_OUT, False)
        self._room = select.poll()
        self._room.register(PANE_OUT, select.POLLOUT)
        self._patience = PATIENCE

    def show(self, chunk: bytes) -> None:
        """Show a chunk; a pane that was too slow for the last one is not waited for."""
        held = memoryview(chunk)
        with contextlib.suppress(OSError):
            while held and self._room.poll(self._patience):
                held = held[os.write(PANE_OUT, held) :]
        self._patience = 0 if held else PATIENCE


def record_exit(state: str, status: int) -> None:
    """Record the exit status atomically, in its reserved space."""
    with open(f"{state}/{ENDED}.new", "r+", encoding="ascii") as file:  # noqa: PTH123
        file.write(str(status))
    os.rename(f"{state}/{ENDED}.new", f"{state}/{ENDED}")  # noqa: PTH104


SOCKET = "tmux.sock"
WORDS = "pane.words"
OUTPUT = "pane.out"
INPUT = "pane.in"
ENDED = "pane.ended"
SESSION = "main"
MAX_SOCKET_PATH = 107
"""Maximum length of a socket's path."""

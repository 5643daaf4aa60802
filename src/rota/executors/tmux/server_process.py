"""Process: the keeper's side of a pane.

tmux hands neither a program's bytes nor its end to whoever started it. So the program runs on a
terminal of its own inside the pane (`inside`), which copies what it says to the pane and, through a
FIFO, to here. Each waits for its reader: a flood fills neither tmux nor this process.

Words: STATE TMUX "input"|"typed" COLUMNS LINES INSIDE... -- PROGRAM WORD...
"""

from __future__ import annotations

import os
import signal
import stat
import sys

from rota.executors.shared.exec_program import CANNOT_START, NOT_STARTED, inherited_environment
from rota.executors.tmux.pane_process import ENDED, INPUT, OUTPUT, SESSION, SOCKET, WORDS

PATIENCE = 20
LOST = 125
"""As engines say it: what became of the program is not known."""
ROOM = 16
"""Bytes for the end of the program, taken before the disk is full."""
CHUNK = 64 * 1024
OPTIONS = (
    ("-s", "set-clipboard", "off"),
    ("-g", "set-titles", "off"),
    ("-g", "status", "off"),
    ("-g", "history-limit", "10000"),
    ("-g", "default-terminal", "screen-256color"),
    ("-g", "update-environment", ""),
    ("-gw", "allow-passthrough", "off"),
    ("-gw", "allow-rename", "off"),
    ("-gw", "automatic-rename", "off"),
    ("-gw", "remain-on-exit", "off"),
)


class PaneLost(Exception):
    """The pane never came up, or went away without a word."""


def main(words: list[str]) -> int:
    """Run a program in a pane to its end; return its exit code, or die of its signal."""
    end = words.index("--")
    state, tmux, stdin, columns, lines = words[:5]
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _go_on)
    before = CANNOT_START
    try:
        prepare(state, words[end + 1 :])
        begin([tmux, "-S", f"{state}/{SOCKET}"], columns, lines, [*words[5:end], state, stdin])
        said, before = patiently(f"{state}/{OUTPUT}", os.O_RDONLY), ""
        feeding = feed(patiently(f"{state}/{INPUT}", os.O_WRONLY)) if stdin == "input" else 0
        pass_on(said)
        if feeding:
            os.kill(feeding, signal.SIGKILL)
            os.waitpid(feeding, 0)
        status = ended(state)
    except (OSError, PaneLost) as error:
        print(f"{before}tmux: {error}", file=sys.stderr)  # noqa: T201
        return NOT_STARTED if before else LOST
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def _go_on(*_: object) -> None:
    """Take a signal without ignoring it: what is ignored stays ignored in the program."""


def _die_of(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def prepare(state: str, program: list[str]) -> None:
    """Lay out what the pane needs in a folder that is nobody else's."""
    facts = os.lstat(state)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise PaneLost(f"{state} must be a folder of your own, chmod 700")
    os.umask(0o077)
    held = os.open(f"{state}/{WORDS}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(held, "wb") as file:
        file.write(b"\0".join(os.fsencode(word) for word in program))
    with open(f"{state}/{ENDED}.new", "xb") as file:  # noqa: PTH123
        file.write(b" " * ROOM)
    for name in (OUTPUT, INPUT):
        os.mkfifo(f"{state}/{name}", 0o600)


def begin(tmux: list[str], columns: str, lines: str, inside: list[str]) -> None:
    """Start a server that knows no settings but ours, with one pane."""
    words = [*tmux, "-f", "/dev/null", "start-server"]
    for scope, name, value in OPTIONS:
        words += [";", "set-option", scope, name, value]
    words += [";", "new-session", "-d", "-s", SESSION, "-x", columns, "-y", lines, *inside]
    child = os.posix_spawn(tmux[0], words, inherited_environment())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise PaneLost(f"{tmux[0]} could not start a server: it ended with {code}")


def patiently(path: str, flags: int) -> int:
    """Open one end of a FIFO once somebody holds the other, but do not wait for ever."""

    def give_up(*_: object) -> None:
        raise PaneLost("the pane did not come up")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    held = os.open(path, flags)
    signal.alarm(0)
    return held


def feed(sink: int) -> int:
    """Leave a child behind that passes on our input, and return its number."""
    child = os.fork()
    if child:
        os.close(sink)
        return child
    try:
        while chunk := os.read(0, CHUNK):
            os.write(sink, chunk)
    except OSError:
        os._exit(1)  # the program reads no more
    os._exit(0)


def pass_on(said: int) -> None:
    """Pass on what the program says until it has ended."""
    while chunk := os.read(said, CHUNK):
        held = memoryview(chunk)
        while held:
            held = held[os.write(1, held) :]


def ended(state: str) -> int:
    """Return the wait status of the program."""
    try:
        with open(f"{state}/{ENDED}", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read())
    except FileNotFoundError:
        raise PaneLost("the pane ended before the program did") from None

"""Process: the keeper's side of a pane.

tmux does not give a program's output or exit status to its parent. So the program runs on a
terminal of its own inside the pane (`pane_process`), which copies its output to the pane and
through a FIFO to this process. Each side waits for its reader, so a flood of output fills no
buffer.

Arguments: STATE TMUX "input"|"typed" COLUMNS LINES INSIDE... -- PROGRAM ARGUMENT...
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
"""Exit code as engines use it: what became of the program is unknown."""
ROOM = 16
"""Bytes reserved for the exit status, before the disk is full."""
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
    """The pane did not start, or vanished without an exit status."""


def main(words: list[str]) -> int:
    """Run a program in a pane; return its exit code, or end with its signal."""
    end = words.index("--")
    state, tmux, stdin, columns, lines = words[:5]
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _go_on)
    before = CANNOT_START
    try:
        prepare_state(state, words[end + 1 :])
        start_server(
            [tmux, "-S", f"{state}/{SOCKET}"], columns, lines, [*words[5:end], state, stdin]
        )
        said, before = open_fifo(f"{state}/{OUTPUT}", os.O_RDONLY), ""
        feeding = (
            forward_input(open_fifo(f"{state}/{INPUT}", os.O_WRONLY)) if stdin == "input" else 0
        )
        forward_output(said)
        if feeding:
            os.kill(feeding, signal.SIGKILL)
            os.waitpid(feeding, 0)
        status = exit_status(state)
    except (OSError, PaneLost) as error:
        print(f"{before}tmux: {error}", file=sys.stderr)  # noqa: T201
        return NOT_STARTED if before else LOST
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def _go_on(*_: object) -> None:
    """Handle a signal without ignoring it: ignored signals stay ignored in the program."""


def _die_of(number: int) -> None:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def prepare_state(state: str, program: list[str]) -> None:
    """Create the files of a pane in a private folder."""
    facts = os.lstat(state)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise PaneLost(f"{state} must be a folder of this user, chmod 700")
    os.umask(0o077)
    held = os.open(f"{state}/{WORDS}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(held, "wb") as file:
        file.write(b"\0".join(os.fsencode(word) for word in program))
    with open(f"{state}/{ENDED}.new", "xb") as file:  # noqa: PTH123
        file.write(b" " * ROOM)
    for name in (OUTPUT, INPUT):
        os.mkfifo(f"{state}/{name}", 0o600)


def start_server(tmux: list[str], columns: str, lines: str, inside: list[str]) -> None:
    """Start a tmux server with our settings only and one pane."""
    words = [*tmux, "-f", "/dev/null", "start-server"]
    for scope, name, value in OPTIONS:
        words += [";", "set-option", scope, name, value]
    words += [";", "new-session", "-d", "-s", SESSION, "-x", columns, "-y", lines, *inside]
    child = os.posix_spawn(tmux[0], words, inherited_environment())
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        raise PaneLost(f"{tmux[0]} could not start a server: it ended with {code}")


def open_fifo(path: str, flags: int) -> int:
    """Open a FIFO once its other end is open, within a time limit."""

    def give_up(*_: object) -> None:
        raise PaneLost("the pane did not start")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE)
    held = os.open(path, flags)
    signal.alarm(0)
    return held


def forward_input(sink: int) -> int:
    """Fork a child that forwards standard input, and return its process id."""
    child = os.fork()
    if child:
        os.close(sink)
        return child
    try:
        while chunk := os.read(0, CHUNK):
            os.write(sink, chunk)
    except OSError:
        os._exit(1)  # the program has closed its input
    os._exit(0)


def forward_output(said: int) -> None:
    """Forward the program's output until it has ended."""
    while chunk := os.read(said, CHUNK):
        held = memoryview(chunk)
        while held:
            held = held[os.write(1, held) :]


def exit_status(state: str) -> int:
    """Return the wait status of the program."""
    try:
        with open(f"{state}/{ENDED}", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read())
    except FileNotFoundError:
        raise PaneLost("the pane ended before the program did") from None

"""Programs in tmux panes, and how a pane is read and typed into."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rota.errors import Invalid, NotFound, NotPermitted, Unavailable
from rota.executors.tmux.pane_process import MAX_SOCKET_PATH, SESSION, SOCKET
from rota.keeper.build import Interpreter
from rota.model.programs import LimitEnforcement, Program
from rota.model.text import clean
from rota.ports.executor import (
    SEARCH_PATH,
    ExecutionSpec,
    Executor,
    KeeperSpec,
    MissingRequirement,
    refuse,
)

COLUMNS, LINES = "200", "50"
OLDEST = (3, 3)
"""Before, every program could speak past tmux to the terminal of whoever watched."""
PATIENCE = 5.0


class TmuxExecutor:
    """Runs what `plain` would run, or `walled` for a room that is isolated, in a pane of its own.

    The walls stand inside the pane: the program sees neither tmux nor its socket.
    """

    name = "tmux"

    def __init__(
        self,
        python: Interpreter,
        *,
        plain: Executor,
        walled: Executor,
        search_path: str = SEARCH_PATH,
    ) -> None:
        self._python = python
        self._plain = plain
        self._walled = walled
        self._search_path = search_path
        self.certain_kill = plain.certain_kill

    def check(self) -> list[MissingRequirement]:
        """Ask tmux how old it is, and both executors it uses what they miss."""
        missing = self._lacking()
        if not missing:
            told = subprocess.run(  # noqa: S603
                [self._tmux(), "-V"], capture_output=True, timeout=PATIENCE, check=False
            ).stdout.decode(errors="replace")
            found = re.search(r"(\d+)\.(\d+)", told)
            if not found or (int(found[1]), int(found[2])) < OLDEST:
                missing = [
                    MissingRequirement("tmux 3.3", f"{self._tmux()} is {told.strip()}", "update it")
                ]
        walls = [replace(each, needed=False) for each in self._walled.check()]
        return list(dict.fromkeys([*missing, *self._plain.check(), *walls]))

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:
        """Say what the executor holds whose program it shows."""
        return (self._walled if isolated else self._plain).holds(isolated=isolated)

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return the other executor's program, shown in a pane."""
        refuse(self.name, self._lacking())
        if len(os.fsencode(f"{room.state}/{SOCKET}")) > MAX_SOCKET_PATH:
            raise Invalid("state", room.state, "move Rota's home to a shorter path")
        spec = (self._walled if room.isolated else self._plain).wrap(command, room)
        stdin = "input" if command.stdin or command.keep_stdin_open else "typed"
        inside = self._python.module("rota.executors.tmux.pane_process")
        argv = self._python.module(
            "rota.executors.tmux.server_process",
            *(room.state, self._tmux(), stdin, COLUMNS, LINES),
            *(*inside, "--", *spec.command.argv),
        )
        return replace(spec, command=replace(spec.command, argv=argv))

    def sweep(self, spec: KeeperSpec) -> None:
        """Clean up behind both; each looks for what bears the attempt's name."""
        self._walled.sweep(spec)
        self._plain.sweep(spec)

    def capture(self, state: str) -> str:
        """Return what the pane of an attempt shows; nothing once it is gone."""
        return Pane(state, self._search_path).capture()

    def _tmux(self) -> str:
        return shutil.which("tmux", path=self._search_path) or ""

    def _lacking(self) -> list[MissingRequirement]:
        if self._tmux():
            return []
        return [MissingRequirement("tmux", self._search_path, "install the package tmux")]


BUFFER = "rota"
MAX_CAPTURE = 16_000


@dataclass(frozen=True, slots=True)
class Pane:
    """The pane of one attempt, by its state folder."""

    state: str
    search_path: str = SEARCH_PATH

    @property
    def there(self) -> bool:
        """Whether there is a pane; raises NotPermitted if it is another user's."""
        try:
            facts = os.lstat(f"{self.state}/{SOCKET}")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            facts = None
        if facts is None or facts.st_uid != os.geteuid():
            raise NotPermitted("the pane is another user's: ask as the user that runs Rota")
        return stat.S_ISSOCK(facts.st_mode)

    def attach_argv(self, *, typing: bool = False) -> list[str]:
        """Return what shows the living pane in a terminal; keys reach it only when `typing`."""
        words = self._words("attach-session", "-t", SESSION)
        return words if typing else [*words, "-r"]

    def lives(self) -> bool:
        """Whether the pane goes on."""
        return not self._ask("has-session", "-t", SESSION).returncode

    def capture(self) -> str:
        """Return what the pane shows now as safe text, cut at its end; nothing once it is gone."""
        done = self._ask("capture-pane", "-p", "-t", SESSION)
        if done.returncode:
            return ""
        return clean(done.stdout.decode(errors="replace")).rstrip()[:MAX_CAPTURE]

    def send(self, text: str, *, enter: bool = True) -> None:
        """Type text as if it were pasted: no key, no escape sequence, no command of tmux's."""
        plain = "".join(c for c in text if c in "\n\t" or c.isprintable())
        self._must("load-buffer", "-b", BUFFER, "-", given=plain.encode())
        self._must("paste-buffer", "-d", "-p", "-b", BUFFER, "-t", SESSION)
        if enter:
            self._must("send-keys", "-t", SESSION, "Enter")

    def _words(self, *words: str) -> list[str]:
        tmux = shutil.which("tmux", path=self.search_path)
        if not tmux:
            raise Unavailable("tmux is not installed here: install the package tmux")
        return [tmux, "-N", "-S", f"{self.state}/{SOCKET}", "-f", "/dev/null", *words]

    def _ask(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603
                self._words(*words),
                input=given,
                capture_output=True,
                env={"PATH": self.search_path, "LANG": "C.UTF-8"},
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable("the pane does not answer: try again, or cancel the run") from error

    def _must(self, *words: str, given: bytes = b"") -> None:
        if self._ask(*words, given=given).returncode:
            raise NotFound("pane", self.state, "the program has ended")

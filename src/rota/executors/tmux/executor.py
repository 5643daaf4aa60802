"""The executor that runs programs in tmux panes, and access to a pane."""

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
from rota.model.executors import ExecutorCapabilities, Isolation
from rota.model.programs import LimitEnforcement, Program, Site
from rota.model.spaces import SpaceRole
from rota.model.text import clean
from rota.ports.executor import (
    SEARCH_PATH,
    ExecutionSpec,
    Executor,
    ExecutorHost,
    ExecutorPlugin,
    KeeperSpec,
    MissingRequirement,
    refuse,
)

COLUMNS, LINES = "200", "50"
MIN_VERSION = (3, 3)
"""Earlier versions let programs send escape sequences to the viewer's terminal."""
TMUX_SECONDS = 5.0


class TmuxExecutor:
    """Runs the program of `plain`, or of `walled` if isolated, in a tmux pane.

    The isolation is inside the pane: the program sees neither tmux nor its socket.
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
        """Check the version of tmux, and the requirements of both executors."""
        missing = self._lacking()
        if not missing:
            told = subprocess.run(  # noqa: S603
                [self._tmux(), "-V"], capture_output=True, timeout=TMUX_SECONDS, check=False
            ).stdout.decode(errors="replace")
            found = re.search(r"(\d+)\.(\d+)", told)
            if not found or (int(found[1]), int(found[2])) < MIN_VERSION:
                missing = [
                    MissingRequirement("tmux 3.3", f"{self._tmux()} is {told.strip()}", "update it")
                ]
        walls = [
            replace(each, needed=False, isolation=each.needed) for each in self._walled.check()
        ]
        return list(dict.fromkeys([*missing, *self._plain.check(), *walls]))

    def admit(self, site: Site, role: SpaceRole) -> None:
        """Check the site with the executor that runs the program."""
        (self._walled if site.isolated else self._plain).admit(site, role)

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:
        """Return how the underlying executor enforces limits."""
        return (self._walled if isolated else self._plain).holds(isolated=isolated)

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return the underlying executor's program, in a pane."""
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
        """Clean up with both executors."""
        self._walled.sweep(spec)
        self._plain.sweep(spec)

    def capture(self, state: str) -> str:
        """Return the content of an attempt's pane; empty once it is gone."""
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
        """Whether there is a pane; raise NotPermitted if it belongs to another user."""
        try:
            facts = os.lstat(f"{self.state}/{SOCKET}")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            facts = None
        if facts is None or facts.st_uid != os.geteuid():
            raise NotPermitted("the pane belongs to another user: use the user that runs Rota")
        return stat.S_ISSOCK(facts.st_mode)

    def attach_argv(self, *, typing: bool = False) -> list[str]:
        """Return the command that shows the pane; keys are passed on only if `typing`."""
        words = self._words("attach-session", "-t", SESSION)
        return words if typing else [*words, "-r"]

    def lives(self) -> bool:
        """Whether the pane is running."""
        return not self._ask("has-session", "-t", SESSION).returncode

    def capture(self) -> str:
        """Return the content of the pane as safe text, shortened; empty once it is gone."""
        done = self._ask("capture-pane", "-p", "-t", SESSION)
        if done.returncode:
            return ""
        return clean(done.stdout.decode(errors="replace")).rstrip()[:MAX_CAPTURE]

    def send(self, text: str, *, enter: bool = True) -> None:
        """Paste text; keys, escape sequences and commands of tmux are removed."""
        plain = "".join(c for c in text if c in "\n\t" or c.isprintable())
        self._must("load-buffer", "-b", BUFFER, "-", given=plain.encode())
        self._must("paste-buffer", "-d", "-p", "-b", BUFFER, "-t", SESSION)
        if enter:
            self._must("send-keys", "-t", SESSION, "Enter")

    def _words(self, *words: str) -> list[str]:
        tmux = shutil.which("tmux", path=self.search_path)
        if not tmux:
            raise Unavailable("tmux is not installed: install the package tmux")
        return [tmux, "-N", "-S", f"{self.state}/{SOCKET}", "-f", "/dev/null", *words]

    def _ask(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(  # noqa: S603
                self._words(*words),
                input=given,
                capture_output=True,
                env={"PATH": self.search_path, "LANG": "C.UTF-8"},
                timeout=TMUX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable("the pane does not answer: try again, or cancel the run") from error

    def _must(self, *words: str, given: bytes = b"") -> None:
        if self._ask(*words, given=given).returncode:
            raise NotFound("pane", self.state, "the program has ended")


def _make(_settings: object, host: ExecutorHost) -> TmuxExecutor:
    plain, walled = host.default(SpaceRole.MAIN), host.default(SpaceRole.MEMBER)
    return TmuxExecutor(Interpreter.running(), plain=plain, walled=walled)


PLUGIN = ExecutorPlugin(
    make=_make,
    capabilities=ExecutorCapabilities(isolation=Isolation.OPTIONAL, terminal=True),
    terminal=Pane,
)

"""A pane: another executor's program on a terminal that people can watch."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from rota.errors import Invalid
from rota.executors.kit.executor import (
    SEARCH_PATH,
    Executor,
    Interpreter,
    Missing,
    Room,
    refuse,
)
from rota.executors.kit.spec import Spec
from rota.executors.tmux.files import LONGEST_SOCKET, SOCKET
from rota.executors.tmux.pane import Pane
from rota.model.programs import Command
from rota.model.sites import Held

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

    def check(self) -> list[Missing]:
        """Ask tmux how old it is, and both executors it uses what they miss."""
        missing = self._lacking()
        if not missing:
            told = subprocess.run(  # noqa: S603
                [self._tmux(), "-V"], capture_output=True, timeout=PATIENCE, check=False
            ).stdout.decode(errors="replace")
            found = re.search(r"(\d+)\.(\d+)", told)
            if not found or (int(found[1]), int(found[2])) < OLDEST:
                missing = [Missing("tmux 3.3", f"{self._tmux()} is {told.strip()}", "update it")]
        walls = [replace(each, needed=False) for each in self._walled.check()]
        return list(dict.fromkeys([*missing, *self._plain.check(), *walls]))

    def holds(self, *, isolated: bool) -> Mapping[str, Held]:
        """Say what the executor holds whose program it shows."""
        return (self._walled if isolated else self._plain).holds(isolated=isolated)

    def wrap(self, command: Command, room: Room) -> Spec:
        """Return the other executor's program, shown in a pane."""
        refuse(self.name, self._lacking())
        if len(os.fsencode(f"{room.state}/{SOCKET}")) > LONGEST_SOCKET:
            raise Invalid("state", room.state, "move Rota's home to a shorter path")
        spec = (self._walled if room.isolated else self._plain).wrap(command, room)
        stdin = "input" if command.stdin or command.keep_stdin_open else "typed"
        inside = self._python.module("rota.executors.tmux.inside")
        argv = self._python.module(
            "rota.executors.tmux.outside",
            *(room.state, self._tmux(), stdin, COLUMNS, LINES),
            *(*inside, "--", *spec.command.argv),
        )
        return replace(spec, command=replace(spec.command, argv=argv))

    def sweep(self, spec: Spec) -> None:
        """Clean up behind both; each looks for what bears the attempt's name."""
        self._walled.sweep(spec)
        self._plain.sweep(spec)

    def capture(self, state: str) -> str:
        """Return what the pane of an attempt shows; nothing once it is gone."""
        return Pane(state, self._search_path).capture()

    def _tmux(self) -> str:
        return shutil.which("tmux", path=self._search_path) or ""

    def _lacking(self) -> list[Missing]:
        if self._tmux():
            return []
        return [Missing("tmux", self._search_path, "install the package tmux")]

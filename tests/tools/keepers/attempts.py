"""Attempts for tests: real keepers, real programs, and nothing left behind."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rota.keeper.build import KeeperBinary, build_keeper
from rota.keeper.client import KeeperLease
from rota.model.programs import Program, ResourceLimits
from rota.ports.executor import KeeperSpec, ProcessTreeMode, StopSignalTarget
from rota.testing.program_bench import ProgramBench, ProgramRun

NOBODY = 65534
SYSTEM_PYTHONS = tuple(f"/usr/{where}bin/python3.{sys.version_info[1]}" for where in ("", "local/"))
SHORT_GRACE = ResourceLimits(grace_seconds=0.3)
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def python_for_everybody() -> str:
    """Return an interpreter of this version that any user may run; empty if there is none."""
    return next((path for path in SYSTEM_PYTHONS if Path(path).exists()), "")


def become_nobody() -> None:
    """Give up being root in this process, for good."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def keeper_program(home: Path) -> KeeperBinary:
    """Return the keeper, run by an interpreter that this user can run."""
    program = build_keeper(home / "cache")
    return replace(program, python=python_for_everybody()) if os.geteuid() else program


class Attempts(ProgramBench):
    """Attempts of plain programs, held together in one way."""

    def __init__(self, tree: ProcessTreeMode = ProcessTreeMode.AUTO) -> None:
        super().__init__(python_for_everybody() if os.geteuid() else "")
        self.tree = tree
        self._numbers = itertools.count()

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] = ENVIRONMENT,
        cwd: str = "/",
        stdin: bytes = b"",
        keep_stdin_open: bool = False,
        term: StopSignalTarget = StopSignalTarget.ALL,
        leftover: float = 0.3,
        lease: KeeperLease | None = None,
        slack: float = 0.3,
        epoch: int = 0,
        home: Path | None = None,
        bounds: ResourceLimits = SHORT_GRACE,
    ) -> ProgramRun:
        """Start an attempt."""
        name = f"{self.home.name}.{next(self._numbers)}"
        command = Program(argv=argv, env=env, cwd=cwd, stdin=stdin, keep_stdin_open=keep_stdin_open)
        spec = KeeperSpec(name=name, command=command, bounds=bounds, tree=self.tree, term=term)
        return self.start_spec(
            spec, home=home, lease=lease, slack=slack, leftover=leftover, epoch=epoch
        )

    def python(self, source: str, *words: str) -> list[str]:
        """Return how a piece of Python is run."""
        return [self.program.python, "-I", "-S", "-c", source, *words]

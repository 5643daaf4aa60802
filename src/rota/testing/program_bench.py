"""Programs under real keepers, for tests of executors; nothing of them is left behind."""

from __future__ import annotations

import select
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from rota.keeper.build import KeeperBinary, build_keeper
from rota.keeper.cleanup import kill_marked, marked_processes
from rota.keeper.client import (
    KeeperAlive,
    KeeperEnded,
    KeeperFifo,
    KeeperIdentity,
    KeeperLease,
    new_identity,
    probe,
    read_spool,
    request_cancel,
    start_keeper,
)
from rota.keeper.linux import children
from rota.model.attempts import ExitRecord
from rota.ports.executor import KeeperSpec

LOOK_MILLISECONDS = 10
PATIENCE = 20.0
LAST_MOMENTS = 2.0


class ProgramRun:
    """One attempt and everything a test wants to know of it."""

    def __init__(self, folder: Path, identity: KeeperIdentity, wake: KeeperFifo) -> None:
        self.folder = folder
        self.identity = identity
        self.wake = wake
        self.pid = 0
        """The keeper's process."""

    def look(self) -> KeeperAlive | KeeperEnded:
        """Look once."""
        return probe(self.folder, self.identity)

    def ending(self, seconds: float = PATIENCE) -> ExitRecord:
        """Wait for the end."""
        found: list[ExitRecord] = []

        def ended() -> bool:
            seen = self.look()
            if isinstance(seen, KeeperEnded):
                found.append(seen.ending)
            return bool(found)

        self.until(ended, seconds)
        return found[0]

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until something holds; every wake-up from a keeper is a reason to look."""
        deadline = time.monotonic() + seconds
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        while not condition():
            if time.monotonic() > deadline:
                message = f"{self.identity.name}: not within {seconds} s; {self.look()}"
                raise TimeoutError(message)
            if poll.poll(LOOK_MILLISECONDS):
                self.wake.read_names()

    def out(self, stream: str = "out") -> bytes:
        """Return everything a spool holds."""
        return read_spool(self.folder, stream, 0, 1 << 30)

    def says(self, words: bytes, seconds: float = PATIENCE) -> None:
        """Wait until the program has written some words."""
        self.until(lambda: words in self.out(), seconds)

    def cancel(self, grace: float, epoch: int = 0, reason: str = "test") -> None:
        """Ask for the end."""
        request_cancel(self.folder, epoch, grace, reason)

    def pids(self) -> tuple[int, int, list[int]]:
        """Return the keeper, the inner process, and its children, once there is a program."""
        found: list[tuple[int, int, list[int]]] = []

        def there() -> bool:
            facts = dict(
                line.split(" ", 1)
                for line in _text(self.folder / "keeper").splitlines()
                if " " in line
            )
            inner = int(facts.get("inner", 0))
            below = children(inner) if inner else []
            if below:
                found.append((int(facts["pid"]), inner, below))
            return bool(found)

        self.until(there)
        return found[0]

    def clear_away(self) -> int:
        """End what is there, and return how much should not have been."""
        ended = isinstance(self.look(), KeeperEnded)
        if ended:  # a keeper lives a moment longer than its ending
            with suppress(TimeoutError):
                self.until(lambda: not self.processes(), LAST_MOMENTS)
        count = kill_marked(self.identity.name)
        self.look()  # so that no keeper stays unburied
        return count if ended else 0

    def processes(self) -> list[int]:
        """Return the living processes that carry the marker, the keeper's among them."""
        return marked_processes(self.identity.name)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


class ProgramBench:
    """A home for attempts; leaving it ends every process of theirs.

    `left` then says, by the names of attempts, how many processes had outlived them.
    """

    def __init__(self, python: str = "") -> None:
        self.home = Path(tempfile.mkdtemp(prefix="rota-keeper-"))
        self.program = self._program(python)
        self.wake = KeeperFifo(self.home / "wake")
        self.made: list[ProgramRun] = []
        self.left: dict[str, int] = {}

    def _program(self, python: str) -> KeeperBinary:
        program = build_keeper(self.home / "cache")
        return replace(program, python=python) if python else program

    def start_spec(
        self,
        spec: KeeperSpec,
        *,
        home: Path | None = None,
        lease: KeeperLease | None = None,
        slack: float = 0.3,
        leftover: float = 0.3,
        epoch: int = 0,
    ) -> ProgramRun:
        """Start a keeper for what an executor has wrapped."""
        run = ProgramRun((home or self.home) / spec.name, new_identity(spec.name), self.wake)
        self.made.append(run)
        kept = start_keeper(
            run.folder,
            spec,
            run.identity,
            self.program,
            epoch=epoch,
            lease=lease,
            wake=self.wake,
            slack_seconds=slack,
            leftover_seconds=leftover,
        )
        run.pid = kept.pid
        return run

    def close(self) -> None:
        """End what is left, and remove the home."""
        left = {made.identity.name: made.clear_away() for made in self.made}
        self.wake.close()
        shutil.rmtree(self.home, ignore_errors=True)
        self.left = {name: count for name, count in left.items() if count}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

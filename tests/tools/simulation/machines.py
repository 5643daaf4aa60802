"""Machines with keepers that outlive the simulated processes, and programs that write and end.

Nothing here takes steps: what a keeper has become follows from the time, the lease it reads, and
what befell it, and is worked out when somebody looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.model.attempts import ExitReason, ExitRecord, KeptAttempt, OutputStream, SpoolState
from rota.model.programs import ResourceLimits
from tests.tools.simulation.loop import SimLoop
from tests.tools.simulation.processes import Process

SLACK = 2.0
"""How long after the end of its lease a keeper may still be ending its tree."""
STUBBORN = 1.5
"""How long a program goes on that does not listen to a polite stop."""


class Line(NamedTuple):
    """What a program writes, so many seconds after its start."""

    after: float
    stream: OutputStream
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a program does when nobody stops it."""

    lines: tuple[Line, ...]
    seconds: float
    code: int = 0
    stubborn: bool = False
    room: int | None = None
    """How many bytes of each stream its spool takes before the disk is full."""


class Keeper:
    """One keeper and its tree."""

    def __init__(
        self,
        home: Home,
        kept: KeptAttempt,
        program: Program,
        bounds: ResourceLimits,
        *,
        certain: bool,
    ) -> None:
        self.home = home
        self.kept = kept
        self.program = program
        self.certain = certain
        self.orphaned = False
        self.ending: ExitRecord | None = None
        self.ended_at: float | None = None
        self._born = home.loop.time()
        self._grace = bounds.grace_seconds
        self._hard = bounds.hard_seconds
        self._cancelled: float | None = None
        self._cut: dict[OutputStream, int] = {}

    @property
    def lives(self) -> bool:
        """Whether a process of its tree is alive."""
        self.look()
        return self.orphaned or self.ending is None

    def look(self) -> ExitRecord | None:
        """Return its ending, if time has brought one."""
        if self.ending is None and not self.orphaned:
            when, reason = min(self._ends(), key=lambda end: end[0])
            if when <= self.home.loop.time():
                self._end(when, reason, proven=True)
        return self.ending

    def _ends(self) -> Iterator[tuple[float, ExitReason]]:
        polite = min(STUBBORN, self._grace) if self.program.stubborn else 0.0
        yield self._born + self.program.seconds, ExitReason.EXITED
        if self._hard is not None:
            yield self._born + self._hard + polite, ExitReason.HARD_TIMEOUT
        if self._cancelled is not None:
            yield self._cancelled, ExitReason.CANCELLED
        yield self.home.lease + SLACK, ExitReason.LEASE_EXPIRED

    def _end(self, when: float, reason: ExitReason, *, proven: bool) -> None:
        self.ended_at = when
        self.ending = ExitRecord(
            reason=reason,
            nonce=self.kept.nonce,
            code=self.program.code if reason is ExitReason.EXITED else None,
            proven=proven,
            out=SpoolState(size=len(self.spool(OutputStream.OUT))),
            err=SpoolState(size=len(self.spool(OutputStream.ERR))),
        )

    def cancel(self, grace: float) -> None:
        """Take a wish to end the tree; another one can only hurry it."""
        self.look()
        patience = min(grace, STUBBORN) if self.program.stubborn else 0.0
        end = self.home.loop.time() + patience
        self._cancelled = end if self._cancelled is None else min(end, self._cancelled)

    def kill(self) -> None:
        """Die at once; the tree dies too where a namespace holds it, and is an orphan elsewhere."""
        if self.look() is None and not self.orphaned:
            if self.certain:
                self._end(self.home.loop.time(), ExitReason.LOST_KEEPER_DIED, proven=True)
            else:
                self.orphaned = True

    def sweep(self) -> None:
        """End what is left of an orphaned tree, as a daemon does that has found the lock free."""
        self.orphaned = False
        self._end(self.home.loop.time(), ExitReason.LOST_KEEPER_DIED, proven=False)

    def lose_power(self, share: float) -> None:
        """End without a word, and lose a part of what was spooled; an ending is written last."""
        if self.look() is None:
            self.orphaned = False
            for stream in OutputStream:
                self._cut[stream] = int(len(self.written(stream)) * share)
            self._end(self.home.loop.time(), ExitReason.LOST_REBOOT, proven=True)

    def written(self, stream: OutputStream) -> bytes:
        """Return what its program has written and its spool has taken."""
        until = self.ended_at
        if until is None:  # it may have ended, and nobody has looked
            ends = () if self.orphaned else (when for when, _ in self._ends())
            until = min((self.home.loop.time(), *ends))
        lines = [
            line.data
            for line in self.program.lines
            if line.stream is stream and self._born + line.after <= until
        ]
        return b"".join(lines)[: self.program.room]

    def spool(self, stream: OutputStream) -> bytes:
        """Return what can be read of a stream."""
        return self.written(stream)[: self._cut.get(stream)]

    def next_sign(self) -> float:
        """Return when it rings next: something was written, or it has ended."""
        now = self.home.loop.time()
        signs = [self._born + line.after for line in self.program.lines]
        signs += [when for when, _ in self._ends()]
        return min((sign for sign in signs if sign > now), default=now + 1.0)


class Home:
    """A folder of keepers: who has it, and until when its keepers may go on."""

    def __init__(self, name: str, machine: Machine, loop: SimLoop) -> None:
        self.name = name
        self.machine = machine
        self.loop = loop
        self.keepers: dict[str, Keeper] = {}
        self.lease = -SLACK
        self.left: set[str] = set()
        self._holder: Process | None = None

    @property
    def holder(self) -> Process | None:
        """The process that has the home; its lock ends with it."""
        return None if self._holder is None or self._holder.dead else self._holder

    def take(self, process: Process) -> bool:
        """Give the home to a process if no other one has it."""
        if self.holder in {None, process}:
            self._holder = process
        return self._holder is process

    def leave(self, process: Process) -> None:
        """Let go of the home."""
        if self._holder is process:
            self._holder = None
            self.left.add(process.name)

    def promise(self, until: float) -> None:
        """Let the keepers that still live go on until an instant."""
        for keeper in self.keepers.values():
            keeper.look()
        self.lease = until


@dataclass
class Machine:
    """A computer: what it is called, how often it was started, and its homes."""

    name: str
    boots: int = 1
    homes: list[Home] = field(default_factory=list)

    @property
    def boot(self) -> str:
        """The name of the time since it was last started."""
        return f"{self.name}#{self.boots}"

    def keepers(self) -> list[Keeper]:
        """Return every keeper that was started here and is not forgotten."""
        return [keeper for home in self.homes for keeper in home.keepers.values()]

    def reboot(self, share: float) -> None:
        """Start again; of what its keepers have spooled only a share was on the disk."""
        for keeper in self.keepers():
            keeper.lose_power(share)
        self.boots += 1


def built(machines: int, homes: int, loop: SimLoop) -> list[Machine]:
    """Return so many machines with so many homes, and each of them with one."""
    found = [Machine(name=f"m{n}") for n in range(machines)]
    for n in range(max(machines, homes)):
        machine = found[n % machines]
        machine.homes.append(Home(f"{machine.name}:/home{n}", machine, loop))
    return found

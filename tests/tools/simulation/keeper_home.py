"""The keeper home of a simulated process: the port of attempts, over a simulated machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from random import Random

from rota.errors import Unavailable
from rota.model.attempts import Assignment, ExitReason, ExitRecord, KeptAttempt, OutputStream
from rota.model.heartbeats import AttemptSample
from rota.model.programs import ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.ports.agent import AgentWorkspace, PreparedProgram
from tests.tools.simulation.faults import Fault, Sea
from tests.tools.simulation.history import Violation
from tests.tools.simulation.machines import Home, Keeper, Line, Program
from tests.tools.simulation.processes import Process

LONGEST_START = 0.5
UNWATCHED_SECONDS = 1.0
LEFT_SECONDS = 60.0
"""How long what has ended is left; no process of a history sleeps for so long."""


class SimYard:
    """One process's hands on a home; what it starts goes on without it."""

    def __init__(self, sea: Sea, process: Process, home: Home, chance: Random) -> None:
        self._sea = sea
        self._process = process
        self._home = home
        self._chance = chance
        self.home = home.name
        self.host = home.machine.name
        self.boot = home.machine.boot

    def acquire(self) -> bool:
        """Take the home for this process; false if another one has it."""
        taken = self._home.take(self._process)
        self._sea.sometimes.hit("a home is taken" if taken else "a home is another process's")
        return taken

    def close(self) -> None:
        """Let go of the home."""
        self._home.leave(self._process)

    def boot_time(self) -> float:
        """Return the seconds since some instant, which a promise counts in."""
        return self._sea.loop.time()

    def extend_lease(self, until: float) -> None:
        """Let every keeper go on until a moment."""
        if self._home.holder is not self._process:
            return
        self._judge(lambda: self._sea.checker.kept.promised(self._home, until))
        self._home.promise(until)

    def make_workspace(
        self,
        assignment: Assignment,
        site: Site,
        offered: Mapping[str, str],
        ids: Mapping[str, str],
    ) -> AgentWorkspace:
        """Return folders that nobody looks into."""
        return AgentWorkspace(folder="/room", cwd="/work", home="/home", offered=offered, ids=ids)

    def make_mailbox(self, kept: KeptAttempt) -> str:
        """Nobody here has one."""
        return "/mailbox"

    async def start(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> None:
        """Start a keeper in a thread: who stops waiting for it does not stop the thread."""
        del room, site, role, prepared
        drawn = self._chance.random()
        if drawn < 0.02 and self._sea.faults.on:
            message = "there is no such program"
            raise Unavailable(message)
        started = self._sea.loop.create_future()
        self._process.call(self._spawn, kept, bounds, started, after=LONGEST_START * drawn)
        await started

    def _spawn(
        self, kept: KeptAttempt, bounds: ResourceLimits, started: asyncio.Future[None]
    ) -> None:
        home, sea = self._home, self._sea
        if home.holder is not self._process or home.lease < sea.loop.time():
            sea.sometimes.hit("a program is not started because the promise has ended")
        else:
            certain = self._chance.random() < 0.7
            keeper = Keeper(home, kept, self._program(kept), bounds, certain=certain)
            sea.history.note(self._process.name, f"starts {_name(kept)}")
            self._judge(lambda: sea.checker.kept.started(keeper))
            home.keepers[_name(kept)] = keeper
        if not started.done():
            started.set_result(None)

    def _program(self, kept: KeptAttempt) -> Program:
        """Draw what a program does; in a healed world all of them are well-behaved."""
        draw = self._chance.random
        healed = self._sea.healed.is_set()
        seconds = 0.2 if healed else draw() ** 2 * 40
        lines = [
            Line(
                draw() * seconds,
                OutputStream.ERR if draw() < 0.2 else OutputStream.OUT,
                b"e%d line %d\n" % (kept.epoch, n),
            )
            for n in range(1 if healed else int(draw() * 6))
        ]
        lines.sort(key=lambda line: line.after)
        if lines and draw() < 0.2:
            lines[-1] = lines[-1]._replace(data=lines[-1].data.rstrip(b"\n"))
        full = draw() < 0.1 and self._sea.faults.has(Fault.DISK)
        if full:
            self._sea.sometimes.hit("a spool is full")
        return Program(
            lines=tuple(lines),
            seconds=seconds,
            code=1 if not healed and draw() < 0.2 else 0,
            stubborn=draw() < 0.3,
            room=int(draw() * 40) if full else None,
        )

    def exit_record(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return how an attempt ended; what is left of an orphaned tree is ended first."""
        keeper = self._home.keepers.get(_name(kept))
        if keeper is None:
            reboot = kept.boot != self.boot
            reason = ExitReason.LOST_REBOOT if reboot else ExitReason.LOST_NEVER_STARTED
            self._sea.sometimes.hit(f"kept: {reason.value}")
            return ExitRecord(reason=reason, proven=True)
        if keeper.look() is None and keeper.orphaned:
            self._sea.sometimes.hit("an orphaned tree is swept")
            keeper.sweep()
        ending = keeper.look()
        if ending is not None:
            self._sea.sometimes.hit(f"kept: {ending.reason.value}")
            self._sea.checker.kept.ended(keeper)
        return ending

    def other_launches(self, kept: KeptAttempt) -> Sequence[KeptAttempt]:
        """Nothing runs beside an attempt here."""
        return ()

    def has_written(self, kept: KeptAttempt) -> bool | None:
        """Nothing leads outside here."""
        return None

    def read_output(self, kept: KeptAttempt, stream: OutputStream, offset: int, most: int) -> bytes:
        """Return what a stream has at an offset."""
        keeper = self._home.keepers.get(_name(kept))
        return b"" if keeper is None else keeper.spool(stream)[offset : offset + most]

    def read_input(self, kept: KeptAttempt) -> tuple[bytes, bool]:
        """Return that the input of a program has ended."""
        return b"", True

    def write_input(
        self, kept: KeptAttempt, offset: int, data: bytes, *, end: bool = False
    ) -> None:
        """Write nothing: the input has ended."""

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree."""
        keeper = self._home.keepers.get(_name(kept))
        if keeper is not None:
            self._sea.history.note(self._process.name, f"cancels {_name(kept)}: {why}")
            keeper.cancel(grace_seconds)

    def read_result(self, assignment: Assignment) -> bytes | None:
        """No program here writes one."""
        return None

    async def clean_up(self, kept: KeptAttempt) -> None:
        """Nothing outlives a tree here."""

    async def find_uncleaned(self, known: Sequence[KeptAttempt]) -> Sequence[KeptAttempt]:
        """Nothing outlives a tree here."""
        return ()

    def capture_pane(self, kept: KeptAttempt) -> str | None:
        """There are no panes here."""
        return None

    async def delete(self, kept: KeptAttempt) -> None:
        """Delete the folder of an attempt."""
        keeper = self._home.keepers.pop(_name(kept), None)
        if keeper is not None and keeper.lives:
            self._sea.loop.fail(Violation("only what has ended is forgotten", _name(kept)))

    async def delete_old(self, known: Sequence[KeptAttempt]) -> None:
        """Delete what has ended long ago and is not known any more.

        What ended a moment ago may have begun after somebody looked for what is known.
        """
        names, before = {_name(kept) for kept in known}, self._sea.loop.time() - LEFT_SECONDS
        for name, keeper in list(self._home.keepers.items()):
            ended = None if name in names or keeper.lives else keeper.ended_at
            if ended is not None and ended < before:
                del self._home.keepers[name]

    async def take_sample(self, kept: KeptAttempt) -> AttemptSample:
        """Return that an attempt is there; no keeper here falls silent while it lives."""
        keeper = self._home.keepers.get(_name(kept))
        return AttemptSample(
            run_id=kept.run_id, epoch=kept.epoch, alive=keeper is not None and keeper.lives
        )

    def wake(self, kept: KeptAttempt, *, for_good: bool) -> bool:
        """Nobody here has to be woken."""
        return False

    async def wait_for_change(self, kept: KeptAttempt, seconds: float) -> None:
        """Wait until a keeper has something new, at most so long; its end does not ring here."""
        keeper = self._home.keepers.get(_name(kept))
        now, seconds = self._sea.loop.time(), min(seconds, UNWATCHED_SECONDS)
        sign = now + seconds if keeper is None else keeper.next_sign()
        await asyncio.sleep(min(seconds, sign - now))

    def _judge(self, rule: Callable[[], None]) -> None:
        try:
            rule()
        except Violation as violation:
            self._sea.loop.fail(violation)


def _name(kept: KeptAttempt) -> str:
    return f"run-{kept.run_id}-{kept.epoch}-{kept.nonce}"

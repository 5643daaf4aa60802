"""Everything that can go wrong between a process and its database, drawn from the seed.

Swarm testing: every history has only a random half of the kinds, so that one kind does not hide
what another would have brought to light.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import signature
from random import Random
from typing import Any, TypeVar, cast

from rota.errors import Busy, Unavailable
from rota.model.instants import to_micros
from rota.model.schedules import Decide, PlanStep
from rota.store.plans import apply_plans, list_due_schedules, plan_due, upcoming
from rota.store.sqlite.database import MemoryDatabase
from rota.store.sqlite.transactions import Call
from tests.tools.simulation.checker import Checker
from tests.tools.simulation.coverage import Sometimes
from tests.tools.simulation.database import Change, Database
from tests.tools.simulation.history import History, Violation
from tests.tools.simulation.loop import SimLoop
from tests.tools.simulation.picture import PLANNING, Commit
from tests.tools.simulation.processes import Process, SimClock

Result = TypeVar("Result")

REPEATABLE = PLANNING | {"settle", "record_delivery", "renew_worker", "request_cancel"}
"""Operations that may arrive twice without harm, and therefore do."""

LOOKS = frozenset({"find_task", "list_due_schedules"})
"""Reads that a decision begins with: a change finds its task, a planner asks for what is due."""

LONGEST_DELAY = 20.0
LONGEST_TRAVEL = 0.5
MOST_QUERIES = 12


class Fault(StrEnum):
    """What can befall a call, a process or the database."""

    ERROR_BEFORE = "error before"
    ERROR_AFTER = "error after"
    BUSY = "busy"
    DELAY = "delay"
    DELAY_LONG = "long delay"
    TWICE = "twice"
    READ_ERROR = "read error"
    CRASH_BEFORE = "crash before"
    CRASH_INSIDE = "crash inside"
    CRASH_AFTER = "crash after"
    CRASH = "crash"
    PAUSE = "pause"
    DRAIN = "drain"
    CUT_OFF = "cut off"
    OUTAGE = "outage"
    CACHES = "caches lost"
    WAKES = "wakes lost"
    SLOW = "slow line"
    SKEW = "skew"
    LEAP = "leap"
    KILL_KEEPER = "keeper killed"
    REBOOT = "reboot"
    DISK = "disk full"


CALL_FAULTS = (
    (Fault.ERROR_BEFORE, 0.02),
    (Fault.ERROR_AFTER, 0.03),
    (Fault.BUSY, 0.02),
    (Fault.DELAY, 0.05),
    (Fault.DELAY_LONG, 0.005),
    (Fault.TWICE, 0.05),
    (Fault.CRASH_BEFORE, 0.004),
    (Fault.CRASH_INSIDE, 0.006),
    (Fault.CRASH_AFTER, 0.006),
)
"""How likely each is for one write, while its kind is on."""


class Faults:
    """Which kinds a history has, and what befalls the next call."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.kinds = frozenset(kind for kind in Fault if chance.random() < 0.5)
        self._calls = [(kind, odds) for kind, odds in CALL_FAULTS if kind in self.kinds]
        self._odds = sum(odds for _, odds in self._calls)
        self.on = True

    def has(self, kind: Fault) -> bool:
        """Whether a kind may happen now."""
        return self.on and kind in self.kinds

    def for_write(self) -> Fault | None:
        """Return what befalls a write."""
        if not self.on:
            return None
        drawn = self._chance.random()
        if drawn >= self._odds:
            return None
        for kind, odds in self._calls:
            drawn -= odds
            if drawn < 0:
                return kind
        return None

    def for_read(self) -> bool:
        """Whether a read fails."""
        return self.has(Fault.READ_ERROR) and self._chance.random() < 0.02

    def delay(self, kind: Fault) -> float:
        """Return how many seconds a late call takes."""
        longest = LONGEST_DELAY if kind is Fault.DELAY_LONG else 2.0
        return self._chance.random() * longest

    def travel(self) -> float:
        """Return how many seconds a call is on its way."""
        return self._chance.random() * LONGEST_TRAVEL if self.has(Fault.SLOW) else 0.0

    def fuse(self) -> int:
        """Return at which query of a transaction the process dies."""
        return int(self._chance.random() * MOST_QUERIES)

    def coin(self) -> bool:
        """Toss a coin."""
        return self._chance.random() < 0.5


@dataclass
class Sea:
    """What all processes of a history share: the database, the judge, and the weather."""

    loop: SimLoop
    database: Database
    checker: Checker
    history: History
    sometimes: Sometimes
    faults: Faults
    alone: bool = False
    scripts: Collection[int] = ()
    """The numbers of the tasks that are programs under keepers."""
    away: bool = False
    cut_off: set[str] = field(default_factory=set)
    stores: dict[str, SimStore] = field(default_factory=dict)
    master: str | None = None
    healed: asyncio.Event = field(default_factory=asyncio.Event)

    def lose_caches(self) -> None:
        """Lose what claiming keeps beside the runs."""
        self.sometimes.hit("the caches of claiming are lost")
        self.history.note("nature", "caches lost")
        self.database.forget_caches()

    async def wait(self, seconds: float) -> None:
        """Let time pass; what hangs in the outside world goes on when the world is healed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.healed.wait()


class SimStore(MemoryDatabase):
    """One process's connection to the database that all share."""

    def __init__(self, sea: Sea, process: Process, clock: SimClock) -> None:
        super().__init__(clock)
        self.process = process
        self.clock = clock
        self._sea = sea
        self._asked = 0
        sea.stores[process.name] = self

    async def open(self) -> None:
        """Nothing to do: the database is there."""

    async def close(self) -> None:
        """Nothing to do: the database stays."""

    async def take_roles(self) -> bool:
        """Where a lock tells who works, take it or raise Busy; it ends with its process."""
        sea = self._sea
        if not sea.alone:
            return False
        holder = sea.stores.get(sea.master or "")
        if holder is not None and not holder.process.dead and holder is not self:
            message = "another process has the roles"
            raise Busy(message)
        sea.master = self.process.name
        return True

    def now(self) -> int:
        """Return the database's time as this process knows it."""
        return to_micros(self.clock.now())

    async def _read(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        """Run a reading operation, with everything that may befall it."""
        sea = self._sea
        await asyncio.sleep(sea.faults.travel())
        if sea.faults.for_read():
            sea.sometimes.hit("a read fails")
            self._note(operation, "fails")
            message = "the connection was lost"
            raise Unavailable(message)
        if _name(operation) in LOOKS and not args[1:] + tuple(kwargs.get("only", ())):
            self._look()
        result: Result = self._transact(Call(operation, args, kwargs), write=False)[0]
        return result

    async def _plan_due(self, decide: Decide, most: int, *, waits: bool = False) -> PlanStep:
        """Plan in several transactions, so that others come in between, as in a weaker store."""
        slot_at, later_at = await self.read(upcoming)
        now, plans = self.now(), []
        if not waits or later_at is None or later_at > now:
            found = await self.read(list_due_schedules, most)
            now = self.now()
            plans = [decide(schedule, now) for schedule in found]
        if plans:
            await self.write(apply_plans, plans)
            slot_at, later_at = await self.read(upcoming)
        return PlanStep(schedules=len(plans), slot_at=slot_at, later_at=later_at)

    def _look(self) -> None:
        self._asked = self.now() if self._sea.checker.clocks_agree else 0

    async def _write(
        self,
        operation: Callable[..., Coroutine[Any, Any, Result]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Result:
        """Run a writing operation, with everything that may befall it."""
        if _name(operation) == plan_due.__name__:
            self._look()
            if not self._sea.faults.coin():
                return cast("Result", await self._plan_due(*args, **kwargs))
        call = Call(operation, args, kwargs)
        fault = self._sea.faults.for_write()
        await self._before(fault, operation)
        fuse = self._sea.faults.fuse() if fault is Fault.CRASH_INSIDE else None
        if fuse is not None:
            await self._die_inside(call, fuse)
        answer = self._transact(call, write=True)
        result: Result = answer[0]
        topics = answer[1]
        if fault is Fault.TWICE and _name(operation) in REPEATABLE:
            self._sea.sometimes.hit("a write arrives twice")
            self._transact(call, write=True)
        self._spread(topics)
        await self._after(fault, operation)
        self.announce(topics)
        return result

    async def _before(self, fault: Fault | None, operation: object) -> None:
        sea = self._sea
        if (fault is Fault.DELAY or fault is Fault.DELAY_LONG) and sea.faults.coin():
            sea.sometimes.hit("a write is late")
            await sea.wait(sea.faults.delay(fault))
        await asyncio.sleep(sea.faults.travel())
        if fault is Fault.ERROR_BEFORE:
            sea.sometimes.hit("a write fails before it happened")
            self._note(operation, "fails before")
            message = "the connection was lost"
            raise Unavailable(message)
        if fault is Fault.BUSY:
            sea.sometimes.hit("the database is busy")
            self._note(operation, "busy")
            message = "the database is busy"
            raise Busy(message)
        if fault is Fault.CRASH_BEFORE:
            sea.sometimes.hit("a process crashes before a write")
            await self._die(operation, "dies before")

    async def _after(self, fault: Fault | None, operation: object) -> None:
        sea = self._sea
        if fault is Fault.CRASH_AFTER:
            sea.sometimes.hit("a process crashes between commit and answer")
            await self._die(operation, "dies after")
        if (fault is Fault.DELAY or fault is Fault.DELAY_LONG) and sea.faults.coin():
            sea.sometimes.hit("an answer is late")
            await sea.wait(sea.faults.delay(fault))
        await asyncio.sleep(0)
        if fault is Fault.ERROR_AFTER:
            sea.sometimes.hit("a write happened and its answer was lost")
            for noun, names in (
                ("claim", {"claim_runs"}),
                ("settlement", {"settle"}),
                ("plan", PLANNING),
            ):
                if _name(operation) in names:
                    sea.sometimes.hit(f"a {noun} happened and its answer was lost")
            self._note(operation, "answer lost")
            message = "the connection was lost"
            raise Unavailable(message)

    async def _die(self, operation: object, how: str) -> None:
        self._note(operation, how)
        self.process.crash()
        await self._sea.loop.create_future()

    async def _die_inside(self, call: Call, fuse: int) -> None:
        outcome = self._run_here(call, write=True, fuse=fuse)
        if isinstance(outcome, BaseException):
            self._sea.sometimes.hit("a process crashes inside a transaction")
        else:  # it had fewer queries than that
            self._judge(call, outcome[2])
            self._spread(outcome[1])
        await self._die(call.operation, f"dies inside, at query {fuse}")

    def _transact(self, call: Call, *, write: bool) -> tuple[Any, list[str], list[Change]]:
        sea = self._sea
        if sea.away or self.process.name in sea.cut_off:
            message = "the database is away"
            raise Unavailable(message)
        outcome = self._run_here(call, write=write)
        if isinstance(outcome, BaseException):
            self._note(call.operation, f"raises {outcome}")
            raise outcome
        if write:
            self._judge(call, outcome[2])
        elif outcome[2]:
            sea.loop.fail(Violation("a read writes nothing", _name(call.operation)))
        return outcome

    def _run_here(
        self, call: Call, *, write: bool, fuse: int | None = None
    ) -> tuple[Any, list[str], list[Change]] | BaseException:
        return self._sea.database.run(call, self.now, self.cache, write=write, fuse=fuse)

    def _judge(self, call: Call, changes: Sequence[Change]) -> None:
        sea = self._sea
        name = _name(call.operation)
        sea.history.note(self.process.name, name, changes)
        try:
            now = self.now()
            instant = sea.loop.time()
            decided = _decided_for(call, now)
            commit = Commit(self.process.name, name, self._asked, decided, now, instant, call.args)
            sea.checker.committed(changes, commit)
        except Violation as violation:
            sea.loop.fail(violation)

    def _spread(self, topics: Sequence[str]) -> None:
        """Tell every process what this one has announced; a wake-up may be late or never come."""
        if not topics:
            return
        sea = self._sea
        for store in sea.stores.values():
            if store is self or store.process.dead or not store.listens:
                continue
            if sea.faults.has(Fault.WAKES) and sea.faults.coin():
                sea.sometimes.hit("a wake-up is lost")
                continue
            store.process.call(store.announce, topics, after=0.001)

    @property
    def listens(self) -> bool:
        """Whether anybody here wants to be woken."""
        return bool(self._listeners)

    def _note(self, operation: object, what: str) -> None:
        self._sea.history.note(self.process.name, f"{_name(operation)} {what}")


def _name(operation: Any) -> str:
    return str(operation.__name__)


def _decided_for(call: Call, now: int) -> int:
    """Return the instant an operation was given as `now`, or else that of its transaction.

    A rescue fences by the instant up to which it has watched the clock, which may go back since.
    """
    given = signature(call.operation).bind_partial(None, *call.args, **call.kwargs)
    decided = given.arguments.get("now")
    return decided if isinstance(decided, int) else now

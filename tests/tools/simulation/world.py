"""One history: a fleet of crews and callers on one database, through chaos and healing.

In the chaos phase everything that the seed allows goes wrong, and every commit is judged. In the
healing phase nothing goes wrong any more, and within a bounded time nothing may be left undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from rota.agents.command.agent import CommandAgent, ScriptAgent
from rota.errors import RotaError, Unavailable
from rota.executors.process import executor as process_executor
from rota.executors.sandbox import executor as sandbox_executor
from rota.flow.attempt.attempt import KeeperLeaseTerms
from rota.flow.attempt.runner import AttemptRunner
from rota.model.executors import ExecutorRegistry
from rota.model.spaces import SpaceRole
from rota.ports.agent import Agent
from rota.runtime.heartbeats import MARGIN
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.store.notifications import set_notification_target
from rota.store.tasks import add_space
from tests.tools.simulation.callers import EVERY_TASK, SCRIPTS, TASKS, Caller, Draw
from tests.tools.simulation.checker import Checker
from tests.tools.simulation.coverage import Sometimes
from tests.tools.simulation.database import Database
from tests.tools.simulation.faults import Fault, Faults, Sea, SimStore
from tests.tools.simulation.healing import Healing
from tests.tools.simulation.history import LAST_LINES, History, Violation, silence
from tests.tools.simulation.keeper_home import SimYard
from tests.tools.simulation.loop import Exhausted, SimLoop, Unseen
from tests.tools.simulation.machines import Home, Machine, built
from tests.tools.simulation.processes import Process, SimClock, Time
from tests.tools.simulation.runners import OTHER_ROUTE, ROUTE, SimChannel, SimRunner, Works

MOST_STEPS = 200_000
EVERY_ROLE = ("planner", "worker", "postman", "caretaker")
BEGINNINGS = (
    datetime(2026, 3, 2, 12, 0, tzinfo=UTC),
    datetime(2026, 3, 29, 0, 59, 20, tzinfo=UTC),  # Berlin's clocks are about to leap
    datetime(2026, 10, 25, 0, 29, 20, tzinfo=UTC),  # an hour that will come twice there
    datetime(2026, 10, 25, 1, 29, 20, tzinfo=UTC),  # the same hour again
)
LEASE = timedelta(seconds=12)
"""Shorter than in earnest, so that more of them end in a history."""
DRAIN = timedelta(seconds=5)
TERMS = KeeperLeaseTerms(seconds=15.0, doubt=20.0, renew=6.0)
EDGES = (LEASE.total_seconds() * (1 - 1 / MARGIN), LEASE.total_seconds(), TERMS.seconds)
"""When somebody gives something up: what ends about then meets it on its way."""
AGENTS: Mapping[str, Agent] = {agent.name: agent for agent in (CommandAgent(), ScriptAgent())}
EXECUTORS = ExecutorRegistry(
    {
        "process": process_executor.PLUGIN.capabilities,
        "sandbox": sandbox_executor.PLUGIN.capabilities,
    }
)
EXIT_PATIENCE = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one history."""

    seed: int
    digest: str
    steps: int
    seconds: float
    violation: Violation | None
    lines: tuple[str, ...]
    counts: dict[str, int]


@dataclass
class Member:
    """A process that is started again whenever it ends."""

    name: str
    roles: tuple[str, ...] = ()
    lives: int = 0
    home: Home | None = None
    process: Process | None = None
    crew: Supervisor | None = None
    store: SimStore | None = field(default=None, repr=False)


class World:
    """Everything that happens in one history."""

    def __init__(self, seed: int, lines: int | None = LAST_LINES) -> None:
        self.seed = seed
        self.draw = Draw(Random(f"{seed}/world"))
        self.loop = SimLoop(Random(f"{seed}/order"), MOST_STEPS)
        self.sometimes = Sometimes()
        self.history = History(self.loop, lines)
        self.faults = Faults(Random(f"{seed}/faults"))
        clocks_agree = not self.faults.kinds & {Fault.SKEW, Fault.LEAP}
        self.checker = Checker(self.sometimes, clocks_agree=clocks_agree)
        self.time = Time(self.loop, self.draw.one(BEGINNINGS))
        self.sea = Sea(
            self.loop,
            Database(),
            self.checker,
            self.history,
            self.sometimes,
            self.faults,
            alone=self.draw.odds(0.2),
            scripts=self.draw.one((SCRIPTS, SCRIPTS, EVERY_TASK)),
        )
        self.works = Works(self.sea, Random(f"{seed}/works"))
        self.keep = self.draw.one((timedelta(seconds=40), timedelta(days=30)))
        self.machines = self._machines()
        homes = [home for machine in self.machines for home in machine.homes]
        self.crews = [
            Member(name=f"crew{n}", roles=self._roles(n), home=homes[n % len(homes)])
            for n in range(self.draw.number(2, 3))
        ]
        self.callers = [Member(name=f"caller{n}") for n in range(2)]
        self.healing = False
        self._chance = Random(f"{seed}/chance")

    def _machines(self) -> list[Machine]:
        """Return one machine with one home or two, or two machines."""
        machines = built(self.draw.one((1, 1, 2)), self.draw.number(1, 2), self.loop)
        kept = self.checker.kept
        kept.homes = {home.name: home for machine in machines for home in machine.homes}
        kept.origin = self.time.right().timestamp()
        kept.clocks_agree = self.checker.clocks_agree
        kept.living = self._living
        return machines

    def _roles(self, number: int) -> tuple[str, ...]:
        if number == 0 or self.sea.alone or self.draw.odds(0.5):
            return EVERY_ROLE
        return tuple(role for role in EVERY_ROLE if self.draw.odds(0.6)) or ("worker",)

    def run(self) -> Verdict:
        """Live through the history and return what became of it."""
        violation = None
        with silence():
            try:
                self.loop.run_until_complete(self._live())
            except Violation as broken:
                violation = broken
            except Exhausted as fault:
                violation = Violation("everything comes to an end", str(fault))
            except Unseen as fault:
                violation = Violation("nothing fails unseen", str(fault))
            except Exception as fault:  # noqa: BLE001 - a fault of this history alone
                detail = f"{type(fault).__name__}: {fault}"
                violation = Violation("the history can be lived through", detail)
            finally:
                self._end()
        if violation is not None:
            self.history.note("judge", f"{violation}")
        return Verdict(
            seed=self.seed,
            digest=self.history.digest,
            steps=self.loop.steps,
            seconds=self.loop.time(),
            violation=violation,
            lines=tuple(self.history.lines),
            counts=dict(self.sometimes.counts),
        )

    def _end(self) -> None:
        for member in (*self.crews, *self.callers):
            if member.process is not None:
                member.process.dead = True
                member.process.bury()
        self.loop.close()
        self.sea.database.close()

    async def _live(self) -> None:
        self.faults.on = False
        await self._set_up()
        self.faults.on = True
        keepers = [self.loop.create_task(self._keep_alive(m)) for m in (*self.crews, *self.callers)]
        await self._chaos(self.draw.number(30, 70))
        self._heal()
        await self._healed()
        for keeper in keepers:
            keeper.cancel()

    async def _set_up(self) -> None:
        process = Process("setup", self.loop)
        store = SimStore(self.sea, process, SimClock(self.time, timedelta()))
        main = await store.write(add_space, "main", SpaceRole.MAIN, "UTC")
        await store.write(add_space, "guests", SpaceRole.MEMBER, "UTC")
        await store.write(set_notification_target, main.id, "test", "t1", 0, usual=False)
        await store.write(set_notification_target, main.id, "test", "t2", 1, usual=False)
        caller = Caller(self.sea, store, self.draw, 1.0)
        for name in TASKS[: self.draw.number(2, len(TASKS))]:
            await caller.define(name)
            if self.draw.odds(0.8):
                await caller.schedule(name)
        del self.sea.stores[process.name]

    async def _healed(self) -> None:
        process = Process("healer", self.loop)
        store = SimStore(self.sea, process, SimClock(self.time, timedelta()))
        await Healing(self.sea, store, self._living).run()

    def _living(self) -> set[str]:
        processes = [member.process for member in self.crews]
        return {p.name for p in processes if p is not None and not p.dead}

    # processes

    async def _keep_alive(self, member: Member) -> None:
        while True:
            self._start(member)
            if member.process is not None:
                await member.process.ended.wait()
                del self.sea.stores[member.process.name]
            if self.healing and member in self.callers:
                return
            await asyncio.sleep(5.0 if self.healing else self.draw.seconds(0.5, 8).total_seconds())

    def _start(self, member: Member) -> None:
        member.lives += 1
        process = Process(f"{member.name}.{member.lives}", self.loop)
        error = timedelta()
        if self.faults.has(Fault.SKEW):
            error = self.draw.seconds(-8, 8)
        clock = SimClock(self.time, error)
        store = SimStore(self.sea, process, clock)
        member.process, member.store = process, store
        self.history.note(process.name, f"starts {' '.join(member.roles)}")
        if member.roles:
            process.start(self._crew_life(member, process, store, clock))
        else:
            caller = Caller(self.sea, store, self.draw, 3.0)
            process.start(caller.live())

    async def _crew_life(
        self, member: Member, process: Process, store: SimStore, clock: SimClock
    ) -> None:
        everything = self.sea.alone or member is self.crews[0]
        routes = [ROUTE, OTHER_ROUTE] if everything else [ROUTE]
        home = member.home or self.machines[0].homes[0]
        settings = SupervisorSettings(
            worker_id=process.name,
            home=home.name,
            host=home.machine.name,
            pid=member.lives,
            slots=4,
            drain=DRAIN,
            keep=self.keep,
            worker_ttl=LEASE,
            home_promise=TERMS.promise,
            roles=frozenset(member.roles),
            watch_loop=False,
        )
        runner = SimRunner(self.works, process, routes)
        channels = {"test": SimChannel(self.works)}
        kept = AttemptRunner(
            store,
            SimYard(self.sea, process, home, self.works.chance),
            AGENTS,
            lambda: process.name if member.crew is None else member.crew.worker.id,
            self._chance,
            executors=EXECUTORS,
            usual_agent="command",
            offered={},
            terms=TERMS,
        )
        member.crew = Supervisor(
            store, [runner, kept], channels, settings, clock, self._chance, keepers=kept
        )
        try:
            await member.crew.start()
        except Unavailable as fault:
            self.history.note(process.name, f"cannot start: {fault}")
            process.crash()
            return
        try:
            await member.crew.run()
        except* RotaError as faults:
            detail = f"{process.name} ended with {faults.exceptions[0]!r}"
            self.loop.fail(Violation("a crew goes on until it is stopped", detail))

    async def _stop(self, member: Member, process: Process) -> None:
        """Drain as a daemon does at SIGTERM, then exit, whatever came of it."""
        if member.crew is not None:
            stopping = self.loop.create_task(member.crew.stop())
            await asyncio.wait({stopping}, timeout=EXIT_PATIENCE)
            if stopping.done():
                stopping.exception()
        process.crash()

    # chaos

    async def _chaos(self, seconds: float) -> None:
        end = self.loop.time() + seconds
        strikes = {
            Fault.CRASH: self._crash,
            Fault.PAUSE: self._pause,
            Fault.DRAIN: self._drain,
            Fault.CUT_OFF: self._cut_off,
            Fault.OUTAGE: self._outage,
            Fault.CACHES: self.sea.lose_caches,
            Fault.LEAP: self._leap,
            Fault.KILL_KEEPER: self._kill_keeper,
            Fault.REBOOT: self._reboot,
        }
        while self.loop.time() < end:
            await asyncio.sleep(self.draw.seconds(1, 10).total_seconds())
            kinds = [kind for kind in strikes if self.faults.has(kind)]
            if kinds:
                strikes[self.draw.one(kinds)]()

    def _victim(self) -> Process | None:
        members = self.crews if self.draw.odds(0.8) else self.callers
        process = self.draw.one(members).process
        return None if process is None or process.dead or process.paused else process

    def _crash(self) -> None:
        process = self._victim()
        if process is not None:
            self.sometimes.hit("a process crashes on its own")
            self.history.note(process.name, "dies")
            process.crash()

    def _pause(self) -> None:
        process = self._victim()
        if process is not None:
            seconds = self.draw.span(1, 30, EDGES)
            if seconds > LEASE.total_seconds():
                self.sometimes.hit("a process pauses past its lease")
            self.history.note(process.name, f"sleeps for {seconds:.1f} s")
            process.pause()
            self.loop.call_later(seconds, self._wake, process)

    def _wake(self, process: Process) -> None:
        if process.paused and not process.dead:
            self.history.note(process.name, "wakes")
            process.resume()

    def _drain(self) -> None:
        member = self.draw.one(self.crews)
        process = member.process
        if process is not None and not process.dead:
            self.sometimes.hit("a process is told to stop and drains")
            self.history.note(process.name, "is told to stop")
            process.start(self._stop(member, process))

    def _cut_off(self) -> None:
        process = self._victim()
        if process is not None:
            self.sometimes.hit("a process is cut off from the database")
            self.history.note(process.name, "is cut off")
            self.sea.cut_off.add(process.name)
            seconds = self.draw.span(1, 25, EDGES)
            self.loop.call_later(seconds, self.sea.cut_off.discard, process.name)

    def _outage(self) -> None:
        self.sometimes.hit("the database is away")
        self.history.note("nature", "the database is away")
        self.sea.away = True
        self.loop.call_later(self.draw.span(0.5, 14, EDGES), self._back)

    def _back(self) -> None:
        self.sea.away = False

    def _leap(self) -> None:
        span = self.draw.seconds(-800, 800)
        forward = span > self.time.leapt
        self.sometimes.hit(f"the clock leaps {'forward' if forward else 'back'}")
        self.history.note("nature", f"the clock is wrong by {span.total_seconds():.1f} s")
        self.time.leapt = span

    def _kill_keeper(self) -> None:
        living = [k for machine in self.machines for k in machine.keepers() if k.look() is None]
        if living:
            keeper = self.draw.one(living)
            self.sometimes.hit("a keeper is killed")
            self.history.note("nature", f"kills the keeper of run {keeper.kept.run_id}")
            keeper.kill()

    def _reboot(self) -> None:
        machine = self.draw.one(self.machines)
        self.sometimes.hit("a machine is started again")
        self.history.note("nature", f"{machine.name} is started again")
        machine.reboot(self.draw.random())
        for member in self.crews:
            if member.home in machine.homes and member.process is not None:
                member.process.crash()

    def _heal(self) -> None:
        """Let nothing go wrong any more; callers leave, crews come back."""
        self.history.note("nature", "heals")
        self.healing = True
        self.faults.on = False
        self.sea.healed.set()
        self.sea.away = False
        self.sea.cut_off.clear()
        self.time.leapt = timedelta()
        for member in self.crews:
            if member.process is not None:
                self._wake(member.process)
                if member.store is not None:
                    member.store.clock.error = timedelta()
        for member in self.callers:
            if member.process is not None:
                member.process.crash()

"""Supervisor of one process: planner, worker, sender, maintenance."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from rota.faultpoints import reach
from rota.flow.attempt.attempt import TERMS
from rota.flow.claim import make_assignments
from rota.flow.clock_jumps import note_return
from rota.flow.deliver import InFlightDeliveries, deliver
from rota.flow.maintain import KEEP, expire, note_missed_heartbeats, prune, rescue
from rota.flow.plan import align, plan
from rota.model.attempts import KeptAttempt
from rota.model.heartbeats import MissedHeartbeat
from rota.model.instants import from_micros, span_micros
from rota.model.views import LeaseRenewal
from rota.ports.channel import Channel
from rota.ports.clock import Clock, Random
from rota.ports.host import Gauge
from rota.ports.runner import DurableRunner, Runner
from rota.runtime.clock import LeaseClock, SteadyClock, zone_data_mark
from rota.runtime.event_loop import LagMonitor, LoopBlocks
from rota.runtime.heartbeats import HEARTBEAT, WORKER_TTL, HeartbeatLoop, MachineInfo, WorkerLease
from rota.runtime.poller import Poller
from rota.runtime.worker import AttemptStop, FailureHook, Worker
from rota.store.attempts import adopt_attempt, fence_home, list_kept_attempts
from rota.store.clock_jumps import record_clock_jump
from rota.store.outbox import next_delivery
from rota.store.queue import rebuild_queue_heads
from rota.store.store import Store
from rota.store.views import list_workers
from rota.store.workers import fence_other_workers, register_worker, retire_worker

log = logging.getLogger(__name__)

PLANNER_POLL = 15.0
POSTMAN_POLL = 15.0
CARETAKER_LOOKS = 6
"""How often a caretaker looks for the dead within the life of a lease."""
DISTRUST_REST = 5.0
DRAIN_AGAIN = 5.0
A_MOMENT = 1_000
"""How many microseconds too early a timer of the loop may end."""
HEAL_EVERY = 60.0
PRUNE_EVERY = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """How a crew works."""

    worker_id: str
    home: str
    host: str
    pid: int
    slots: int = 500
    drain: timedelta = timedelta(seconds=30)
    worker_ttl: timedelta = WORKER_TTL
    home_promise: timedelta = TERMS.promise
    """How long after its home's last renewal a keeper may still be alive."""
    keep: timedelta = KEEP
    heartbeat: timedelta = HEARTBEAT
    watch_loop: bool = True
    """Whether a thread watches for code that blocks the event loop; a simulation has no threads."""
    roles: frozenset[str] = field(
        default_factory=lambda: frozenset({"planner", "worker", "postman", "caretaker"})
    )


class Supervisor:
    """Planner, worker, postman and caretaker of one process."""

    def __init__(
        self,
        store: Store,
        runners: Sequence[Runner],
        channels: Mapping[str, Channel],
        settings: SupervisorSettings,
        clock: Clock,
        chance: Random,
        *,
        keepers: DurableRunner | None = None,
        gauge: Gauge | None = None,
        on_failure: FailureHook | None = None,
    ) -> None:
        self.settings = settings
        self._keepers = keepers
        self._store = store
        self._channels = channels
        self._in_hand = InFlightDeliveries()
        self._clock = clock
        self._chance = chance
        self._steady = SteadyClock(clock)
        self._leases = LeaseClock(clock)
        self._alone = False
        self._lives = 0
        self._has_home = False
        self._adopting = asyncio.Lock()
        self._looked = asyncio.Event()
        """Set by every look of the caretaker for what was lost."""
        self._rescuing = asyncio.Lock()
        self._rescued = 0
        self._stopping = False
        self._due_at = math.inf
        self._healed_at = self._pruned_at = self._listened_at = float("-inf")
        self._unsubscribe: Callable[[], None] | None = None
        self.worker = Worker(
            store,
            runners,
            settings.worker_id,
            clock,
            chance,
            slots=settings.slots,
            may_claim=lambda: self._holds,
            on_failure=on_failure,
        )
        self.planner = Poller("planner", self._plan_step, clock, chance)
        self.postman = Poller("postman", self._deliver_step, clock, chance)
        self.caretaker = Poller("caretaker", self._care_step, clock, chance)
        self.keeping = Poller("keepers", self._keep_step, clock, chance)
        machine = MachineInfo(settings.home, settings.host, gauge) if gauge is not None else None
        self.heart = HeartbeatLoop(store, self.worker, clock, chance, settings.heartbeat, machine)
        self._unheard: frozenset[MissedHeartbeat] = frozenset()
        ttl = settings.worker_ttl
        self._care_rest = ttl.total_seconds() / CARETAKER_LOOKS
        self.pulse = WorkerLease(store, lambda: self.worker.id, self._renewed, clock, chance, ttl)
        self._roles = {
            "planner": self.planner,
            "postman": self.postman,
            "caretaker": self.caretaker,
        }
        self._lag = LagMonitor(clock, self.worker.working_on)
        self._wakes: dict[str, Callable[[], None]] = {
            "runs": self.worker.wake,
            "later": self.planner.wake,
            "schedules": self.planner.wake,
            "deliveries": self.postman.wake,
            "cancels": self.pulse.wake,
        }

    @property
    def blocks(self) -> LoopBlocks:
        """What has blocked its loop."""
        return self._lag.blocks

    @property
    def services(self) -> list[Poller]:
        """Every service of this crew, for status."""
        wanted = [service for role, service in self._roles.items() if role in self.settings.roles]
        if self._keepers is not None:
            wanted.append(self.keeping)
        wanted.append(self.heart.service)
        return [*wanted, self.pulse.service, self.worker.claimer, self.worker.settler]

    async def start(self) -> None:
        """Take the roles, register, and give back what an earlier process left behind."""
        self._alone = await self._store.database.take_roles()
        if not await self._open_home():
            log.warning("keepers.taken")
        await self._register(self.worker.id)
        if self._alone:
            await self._store.write(fence_other_workers, self.worker.id)
        await self._keep_step()
        await self._rescue()
        await self._store.write(rebuild_queue_heads)
        if "planner" in self.settings.roles:
            await align(self._store, zone_data_mark())
            await note_return(self._store)
        self._unsubscribe = self._store.subscribe(self._wake)
        reach("crew.ready")

    async def run(self) -> None:
        """Work until stopped; returns when everything has ended."""
        if not self.settings.watch_loop:
            await self._run()
            return
        with self._lag:
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for role, service in self._roles.items():
                if role in self.settings.roles:
                    group.create_task(service.run())
            group.create_task(self.pulse.run())
            if self._keepers is not None:
                group.create_task(self.keeping.run())
            if "worker" in self.settings.roles:
                group.create_task(self.heart.service.run())
                group.create_task(self.worker.run())

    async def stop(self, *, to_the_end: bool = False) -> None:
        """Take nothing new, let what runs end within the bound, give back the rest, and leave.

        A function that cannot be stopped ends with the process. Where that goes on, the crew stays
        `to_the_end` of it: nobody may try its run again while it still works.
        """
        if self._stopping:
            return
        self._stopping = True
        for service in (self.planner, self.postman, self.caretaker, self.keeping):
            service.stop()
        reach("drain.begin")
        await self.worker.drain(self.settings.drain.total_seconds())
        while to_the_end and self.worker.running:
            await self.worker.drain(DRAIN_AGAIN)
        self.worker.stop()
        self.pulse.stop()
        self.heart.service.stop()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._keepers is not None and self._has_home:
            async with self._adopting:  # nothing is adopted for a home that is another's by then
                self._has_home = False
                await self._keepers.close()
        reach("drain.end")
        await self._store.write(retire_worker, self.worker.id)

    async def idle(self) -> None:
        """Wait until nothing is due, nothing is ready and nothing is running or unsent."""
        while True:
            rescued = self._rescued
            planned = await plan(self._store)
            self.worker.wake()
            await self.worker.idle()
            sent = await self._deliver()
            if planned.schedules or planned.promoted or sent or self.worker.running:
                continue
            if self._alone or "caretaker" not in self.settings.roles:
                return
            await self._rescue()
            if rescued != self._rescued:
                continue
            if not await self._rescues_soon():
                return
            self._looked.clear()
            await self._looked.wait()

    async def _rescues_soon(self) -> bool:
        """Whether runs of others will be given back when the clock was watched for long enough."""
        now = from_micros(self._store.now())
        workers = await self._store.read(list_workers)
        return any(w.running and not w.fenced and w.lease_until < now for w in workers)

    @property
    def _holds(self) -> bool:
        """Whether this worker is trusted: by the lock that it has, or by its lease."""
        return self._alone or self.pulse.holds

    async def _open_home(self) -> bool:
        """Take the home's keepers if this crew works and no other process has them."""
        if self._keepers is None or "worker" not in self.settings.roles or self._has_home:
            return True
        self._has_home = await self._keepers.open()
        if self._has_home:
            self.heart.keepers = self._keepers
        return self._has_home

    async def _adopt(self, rows: Sequence[KeptAttempt]) -> None:
        """Carry on what the home's keepers keep and nobody here works on.

        Whoever held it before is gone: this process has the home. Offsets are read when nobody
        else can move them any more. One adoption at a time, from its first look to its last: what
        another one has taken up may have ended before this one is told how it stands.
        """
        if self._keepers is None:
            return
        home, adopted = self._keepers.home, []
        async with self._adopting:
            wanted = [kept for kept in rows if kept.current and not self.worker.has(kept.run_id)]
            if not wanted or not self._has_home or not self._holds:
                return
            await self._store.write(fence_home, home, self.worker.id)
            for kept in wanted:
                found = await self._store.write(
                    adopt_attempt, kept.run_id, kept.epoch, self.worker.id
                )
                adopted += make_assignments(found, self._store.database.incarnation)
            reach("kept.adopted")
            stands = {
                (kept.run_id, kept.epoch): kept
                for kept in await self._store.read(list_kept_attempts, home)
            }
            for assignment in adopted:
                lease = assignment.lease
                now_kept = stands.get((lease.run_id, lease.epoch))
                if now_kept is None or not now_kept.current or self._stopping:
                    continue
                if not self.worker.has(lease.run_id):
                    log.info("run.adopted", extra={"run_id": lease.run_id, "attempt": lease.epoch})
                    self.worker.adopt(assignment._replace(kept=now_kept))

    async def _keep_step(self) -> float:
        await self._open_home()
        if self._keepers is None or not self._has_home or self._stopping:
            return PLANNER_POLL
        rest, kept = await self._keepers.renew()
        await self._adopt(kept)
        return rest

    async def _register(self, worker_id: str) -> None:
        settings, sent_at = self.settings, self._clock.monotonic()
        await self._store.write(
            register_worker,
            {
                "id": worker_id,
                "home": settings.home,
                "host": settings.host,
                "pid": settings.pid,
                "roles": ",".join(sorted(settings.roles)),
                "routes": json.dumps(self.worker.routes()),
                "slots": settings.slots,
                "lease_until": self.pulse.lease,
            },
        )
        self.pulse.took(sent_at)

    def _wake(self, topic: str) -> None:
        wake = self._wakes.get(topic)
        if wake is not None:
            wake()

    async def _trusts_clock(self) -> bool:
        """Return whether the store's time may be planned by, and note where it has leapt."""
        steady = self._steady
        trusted = steady.trusts(self._store.now())
        if (leap := steady.leap) is not None:
            await self._store.write(record_clock_jump, leap)
            steady.leap = None if steady.leap is leap else steady.leap
        if steady.returned:
            steady.returned = False
            try:
                await note_return(self._store)
            except BaseException:
                steady.returned = True
                raise
        return trusted

    async def _plan_step(self) -> float:
        if not await self._trusts_clock():
            return DISTRUST_REST
        if not self._store.database.remote and self._due_at - self._store.now() < A_MOMENT:
            self.worker.wake()  # so that its claim goes into the transaction of the plan
        planned = await plan(self._store)
        if planned.rest_micros is None:
            self._due_at = math.inf
            return PLANNER_POLL
        self._due_at = self._store.now() + planned.rest_micros
        return min(PLANNER_POLL, planned.rest_micros / 1_000_000)

    async def _deliver_step(self) -> float:
        if await self._deliver():
            return 0.0
        next_at = await self._store.read(next_delivery)
        if next_at is None:
            return POSTMAN_POLL
        return min(POSTMAN_POLL, max(0.0, (next_at - self._store.now()) / 1_000_000))

    async def _deliver(self) -> int:
        return await deliver(
            self._store, self._channels, self.worker.id, self._chance, self._in_hand
        )

    async def _care_step(self) -> float:
        if not await self._trusts_clock():
            return DISTRUST_REST
        rescued = await self._rescue()
        expired = await expire(self._store, self._chance)
        now = self._clock.monotonic()
        if now - self._healed_at >= HEAL_EVERY:
            await self._store.write(rebuild_queue_heads)
            self._healed_at = now
        if now - self._listened_at >= self.settings.heartbeat.total_seconds():
            self._unheard = await note_missed_heartbeats(
                self._store, self.heart.patience, self._unheard
            )
            self._listened_at = now
        if now - self._pruned_at >= PRUNE_EVERY:
            if await prune(self._store, self.settings.keep):
                return 0.0
            self._pruned_at = now
        return 0.0 if rescued or expired else self._care_rest

    async def _rescue(self) -> int:
        """Give back what was lost.

        Leases are judged only by a clock that was watched for their length. Where a lock tells who
        works, none are; but keepers of another home may live on although nobody works for it.
        """
        async with self._rescuing:  # fencing and giving back are two steps
            now = self._store.now()
            rescued = await rescue(
                self._store,
                self._chance,
                fence=not self._alone,
                now=now,
                watched=self._leases.watched(now),
                promise=span_micros(self.settings.home_promise),
            )
            self._rescued += rescued
        self._looked.set()
        return rescued

    async def _renewed(self, renewal: LeaseRenewal) -> None:
        if not renewal.alive:
            if not self._alone:
                await self._self_fence()
            return
        for run_id in renewal.cancels:
            self.worker.stop_run(run_id, AttemptStop.CANCEL)
        await self.worker.reconcile(renewal.held)

    async def _self_fence(self) -> None:
        """Stop trusting the old lease: end all its work and come back as a new worker."""
        log.error("worker.fenced", extra={"worker_id": self.worker.id})
        self.pulse.lost()
        self.worker.fence()
        self._lives += 1
        worker_id = f"{self.settings.worker_id}~{self._lives}"
        await self._register(worker_id)
        if self._stopping:  # nobody else would retire it
            await self._store.write(retire_worker, worker_id)
        else:
            self.worker.id = worker_id
            if self._keepers is not None and self._has_home:
                await self._adopt(await self._store.read(list_kept_attempts, self._keepers.home))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A worker's name: unique for every start, readable for people."""

    worker_id: str
    host: str
    pid: int


def this_process() -> ProcessIdentity:
    """Return a new identity of this process."""
    host, pid = socket.gethostname(), os.getpid()
    return ProcessIdentity(worker_id=f"{host}-{pid}-{secrets.token_hex(4)}", host=host, pid=pid)

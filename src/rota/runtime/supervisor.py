"""The supervisor of one process: planner, worker, sender, maintenance, keepers, lease."""

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
SENDER_POLL = 15.0
MAINTENANCE_CHECKS = 6
"""Maintenance steps within a lease duration."""
DISTRUST_REST = 5.0
DRAIN_RETRY = 5.0
TIMER_SLACK = 1_000
"""Microseconds by which timers of the event loop may fire early."""
REBUILD_EVERY = 60.0
PRUNE_EVERY = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorSettings:
    """Settings of a supervisor."""

    worker_id: str
    home: str
    host: str
    pid: int
    slots: int = 500
    drain: timedelta = timedelta(seconds=30)
    worker_ttl: timedelta = WORKER_TTL
    home_promise: timedelta = TERMS.promise
    """How long a keeper may be alive after the last renewal of its home."""
    keep: timedelta = KEEP
    heartbeat: timedelta = HEARTBEAT
    watch_loop: bool = True
    """Whether a thread detects code that blocks the event loop; the simulation has no threads."""
    roles: frozenset[str] = field(
        default_factory=lambda: frozenset({"planner", "worker", "sender", "maintenance"})
    )


class Supervisor:
    """Runs the pollers of one process according to its roles."""

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
        self._in_flight = InFlightDeliveries()
        self._clock = clock
        self._chance = chance
        self._steady_clock = SteadyClock(clock)
        self._lease_clock = LeaseClock(clock)
        self._exclusive = False
        self._restarts = 0
        self._has_home = False
        self._adopting = asyncio.Lock()
        self._rescue_done = asyncio.Event()
        """Set after every search for lost runs."""
        self._rescuing = asyncio.Lock()
        self._rescued = 0
        self._stopping = False
        self._due_at = math.inf
        self._rebuilt_at = self._pruned_at = self._heartbeats_checked_at = float("-inf")
        self._unsubscribe: Callable[[], None] | None = None
        self.worker = Worker(
            store,
            runners,
            settings.worker_id,
            clock,
            chance,
            slots=settings.slots,
            may_claim=lambda: self._may_work,
            on_failure=on_failure,
        )
        self.planner = Poller("planner", self._plan_step, clock, chance)
        self.sender = Poller("sender", self._deliver_step, clock, chance)
        self.maintenance = Poller("maintenance", self._maintenance_step, clock, chance)
        self.keeper_renewal = Poller("keepers", self._renew_keepers_step, clock, chance)
        machine = MachineInfo(settings.home, settings.host, gauge) if gauge is not None else None
        self.heartbeats = HeartbeatLoop(
            store, self.worker, clock, chance, settings.heartbeat, machine
        )
        self._missed: frozenset[MissedHeartbeat] = frozenset()
        ttl = settings.worker_ttl
        self._maintenance_rest = ttl.total_seconds() / MAINTENANCE_CHECKS
        self.lease = WorkerLease(store, lambda: self.worker.id, self._renewed, clock, chance, ttl)
        self._roles = {
            "planner": self.planner,
            "sender": self.sender,
            "maintenance": self.maintenance,
        }
        self._lag = LagMonitor(clock, self.worker.working_on)
        self._wakes: dict[str, Callable[[], None]] = {
            "runs": self.worker.wake,
            "delayed": self.planner.wake,
            "schedules": self.planner.wake,
            "deliveries": self.sender.wake,
            "cancels": self.lease.wake,
        }

    @property
    def blocks(self) -> LoopBlocks:
        """Blocks of its event loop."""
        return self._lag.blocks

    @property
    def pollers(self) -> list[Poller]:
        """All its pollers, for status."""
        pollers = [poller for role, poller in self._roles.items() if role in self.settings.roles]
        if self._keepers is not None:
            pollers.append(self.keeper_renewal)
        pollers.append(self.heartbeats.poller)
        return [*pollers, self.lease.poller, self.worker.claimer, self.worker.settler]

    async def start(self) -> None:
        """Acquire the roles, register the worker, and requeue what an earlier process left."""
        self._exclusive = await self._store.database.take_roles()
        if not await self._open_home():
            log.warning("keeper_home.in_use")
        await self._register(self.worker.id)
        if self._exclusive:
            await self._store.write(fence_other_workers, self.worker.id)
        await self._renew_keepers_step()
        await self._rescue()
        await self._store.write(rebuild_queue_heads)
        if "planner" in self.settings.roles:
            await align(self._store, zone_data_mark())
            await note_return(self._store)
        self._unsubscribe = self._store.subscribe(self._wake)
        reach("supervisor.ready")

    async def run(self) -> None:
        """Run until stopped; returns when everything has ended."""
        if not self.settings.watch_loop:
            await self._run()
            return
        with self._lag:
            await self._run()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for role, poller in self._roles.items():
                if role in self.settings.roles:
                    group.create_task(poller.run())
            group.create_task(self.lease.run())
            if self._keepers is not None:
                group.create_task(self.keeper_renewal.run())
            if "worker" in self.settings.roles:
                group.create_task(self.heartbeats.poller.run())
                group.create_task(self.worker.run())

    async def stop(self, *, to_the_end: bool = False) -> None:
        """Stop claiming, let attempts end within the time limit, requeue the rest, and unregister.

        A function that cannot be stopped ends with the process. If the process continues, wait for
        it `to_the_end`: nobody may retry its run while it still works.
        """
        if self._stopping:
            return
        self._stopping = True
        for poller in (self.planner, self.sender, self.maintenance, self.keeper_renewal):
            poller.stop()
        reach("drain.begin")
        await self.worker.drain(self.settings.drain.total_seconds())
        while to_the_end and self.worker.running:
            await self.worker.drain(DRAIN_RETRY)
        self.worker.stop()
        self.lease.stop()
        self.heartbeats.poller.stop()
        if self._unsubscribe is not None:
            self._unsubscribe()
        if self._keepers is not None and self._has_home:
            async with self._adopting:  # no attempt may be adopted after the home is released
                self._has_home = False
                await self._keepers.close()
        reach("drain.end")
        await self._store.write(retire_worker, self.worker.id)

    async def idle(self, *, rates: bool = True) -> None:
        """Wait until nothing is due, ready, running or unsent."""
        while True:
            rescued = self._rescued
            planned = await plan(self._store)
            self.worker.wake()
            await self.worker.idle(rates=rates)
            sent = await self._deliver()
            if planned.schedules or planned.promoted or sent or self.worker.running:
                continue
            if self._exclusive or "maintenance" not in self.settings.roles:
                return
            await self._rescue()
            if rescued != self._rescued:
                continue
            if not await self._rescues_soon():
                return
            self._rescue_done.clear()
            await self._rescue_done.wait()

    async def _rescues_soon(self) -> bool:
        """Whether runs of other workers will be rescued once the clock was observed long enough."""
        now = from_micros(self._store.now())
        workers = await self._store.read(list_workers)
        return any(w.running and not w.fenced and w.lease_until < now for w in workers)

    @property
    def _may_work(self) -> bool:
        """Whether this worker may work: it has the instance lock or a valid lease."""
        return self._exclusive or self.lease.is_valid

    async def _open_home(self) -> bool:
        """Acquire the home's keepers if this process is a worker and no other has them."""
        if self._keepers is None or "worker" not in self.settings.roles or self._has_home:
            return True
        self._has_home = await self._keepers.open()
        if self._has_home:
            self.heartbeats.keepers = self._keepers
        return self._has_home

    async def _adopt(self, rows: Sequence[KeptAttempt]) -> None:
        """Adopt attempts that the home's keepers hold and no worker of this process follows.

        Their former worker is gone, because this process has acquired the home. Kept attempts are
        read again after adoption, when nobody else can change their offsets. Adoptions are
        serialized, because an attempt may end between being listed and being adopted.
        """
        if self._keepers is None:
            return
        home, adopted = self._keepers.home, []
        async with self._adopting:
            missing = [kept for kept in rows if kept.current and not self.worker.has(kept.run_id)]
            if not missing or not self._has_home or not self._may_work:
                return
            await self._store.write(fence_home, home, self.worker.id)
            for kept in missing:
                found = await self._store.write(
                    adopt_attempt, kept.run_id, kept.epoch, self.worker.id
                )
                adopted += make_assignments(found, self._store.database.incarnation)
            reach("kept_attempt.adopted")
            current = {
                (kept.run_id, kept.epoch): kept
                for kept in await self._store.read(list_kept_attempts, home)
            }
            for assignment in adopted:
                lease = assignment.lease
                now_kept = current.get((lease.run_id, lease.epoch))
                if now_kept is None or not now_kept.current or self._stopping:
                    continue
                if not self.worker.has(lease.run_id):
                    log.info("run.adopted", extra={"run_id": lease.run_id, "attempt": lease.epoch})
                    self.worker.adopt(assignment._replace(kept=now_kept))

    async def _renew_keepers_step(self) -> float:
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
                "lease_until": self.lease.lease,
            },
        )
        self.lease.mark_taken(sent_at)

    def _wake(self, topic: str) -> None:
        wake = self._wakes.get(topic)
        if wake is not None:
            wake()

    async def _trusts_clock(self) -> bool:
        """Whether to plan by the store's time; records jumps of it."""
        steady = self._steady_clock
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
        if not self._store.database.remote and self._due_at - self._store.now() < TIMER_SLACK:
            self.worker.wake()  # so that its claim joins the transaction of the plan
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
            return SENDER_POLL
        return min(SENDER_POLL, max(0.0, (next_at - self._store.now()) / 1_000_000))

    async def _deliver(self) -> int:
        return await deliver(
            self._store, self._channels, self.worker.id, self._chance, self._in_flight
        )

    async def _maintenance_step(self) -> float:
        if not await self._trusts_clock():
            return DISTRUST_REST
        rescued = await self._rescue()
        expired = await expire(self._store, self._chance)
        now = self._clock.monotonic()
        if now - self._rebuilt_at >= REBUILD_EVERY:
            await self._store.write(rebuild_queue_heads)
            self._rebuilt_at = now
        if now - self._heartbeats_checked_at >= self.settings.heartbeat.total_seconds():
            self._missed = await note_missed_heartbeats(
                self._store, self.heartbeats.overdue_after, self._missed
            )
            self._heartbeats_checked_at = now
        if now - self._pruned_at >= PRUNE_EVERY:
            if await prune(self._store, self.settings.keep):
                return 0.0
            self._pruned_at = now
        return 0.0 if rescued or expired else self._maintenance_rest

    async def _rescue(self) -> int:
        """Requeue lost runs.

        Leases are only judged by a clock that was observed for their length. With an instance lock
        there are no leases to judge, but keepers of another home may be alive without a worker.
        """
        async with self._rescuing:  # fencing and requeueing are two steps
            now = self._store.now()
            rescued = await rescue(
                self._store,
                self._chance,
                fence=not self._exclusive,
                now=now,
                watched=self._lease_clock.watched(now),
                promise=span_micros(self.settings.home_promise),
            )
            self._rescued += rescued
        self._rescue_done.set()
        return rescued

    async def _renewed(self, renewal: LeaseRenewal) -> None:
        if not renewal.alive:
            if not self._exclusive:
                await self._self_fence()
            return
        for run_id in renewal.cancels:
            self.worker.stop_run(run_id, AttemptStop.CANCEL)
        await self.worker.reconcile(renewal.held)

    async def _self_fence(self) -> None:
        """Stop all work under the lost lease, and continue as a new worker."""
        log.error("worker.fenced", extra={"worker_id": self.worker.id})
        self.lease.mark_lost()
        self.worker.fence()
        self._restarts += 1
        worker_id = f"{self.settings.worker_id}~{self._restarts}"
        await self._register(worker_id)
        if self._stopping:  # nobody else would unregister it
            await self._store.write(retire_worker, worker_id)
        else:
            self.worker.id = worker_id
            if self._keepers is not None and self._has_home:
                await self._adopt(await self._store.read(list_kept_attempts, self._keepers.home))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """Identity of a process: an id that is unique per start and readable, host and pid."""

    worker_id: str
    host: str
    pid: int


def this_process() -> ProcessIdentity:
    """Return an identity for this process."""
    host, pid = socket.gethostname(), os.getpid()
    return ProcessIdentity(worker_id=f"{host}-{pid}-{secrets.token_hex(4)}", host=host, pid=pid)

"""A store on the bench: short words for what tests of a store do all day."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.flow.define.schedules import ScheduleSpec, put_schedule
from rota.flow.plan import plan
from rota.flow.settle import running
from rota.model.attempts import AttemptReport, Failed, Outcome, Succeeded, WaitingForAnswer
from rota.model.ids import RunId
from rota.model.instants import to_micros
from rota.model.runs import Enqueued, Lease, OpenRun, Run, RunBatch, RunSource, RunState
from rota.model.schedules import Rule, StoredSchedule
from rota.model.settlement import Settlement
from rota.model.spaces import Limit, LimitScope, Space, SpaceRole
from rota.model.tasks import After, NewTask, Policy, Pool, Task
from rota.model.views import ClaimResult
from rota.rules.permissions import LOCAL
from rota.rules.queue import new_run
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store import tasks as store_tasks
from rota.store.claims import claim_runs, set_limits
from rota.store.settlement import enqueue
from rota.store.store import Store
from rota.store.tasks import add_space, find_task, get_tasks, put_task
from rota.store.views import (
    get_run,
    list_ledger_rows,
    list_questions,
    list_run_events,
    list_slot_runs,
)
from rota.store.workers import get_open_runs, register_worker
from rota.testing.fakes import VirtualClock
from rota.timing import rule_builders
from rota.timing.timetable import timetable

POOLS = (Pool.FOREGROUND.value, Pool.BACKGROUND.value)
MINUTE = timedelta(minutes=1)
FAR = 1 << 60


def micros(span: timedelta) -> int:
    """Return a span in microseconds."""
    return span // timedelta(microseconds=1)


class Bench:
    """A store with a virtual clock, and the routes its claims ask for."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.routes: list[str] = []

    # things

    async def space(self, name: str = "main") -> Space:
        """Return a space, made if needed."""
        role = SpaceRole.MAIN if name == "main" else SpaceRole.MEMBER
        return await self.store.write(add_space, name, role, "UTC")

    async def task(
        self,
        name: str = "job",
        *,
        space: str = "main",
        after: After | None = None,
        route: str = "",
        thread: str | None = None,
        **policy: Any,
    ) -> Task:
        """Return a task, made or brought up to date; its route is served from now on."""
        owner = await self.space(space)
        upstream = None
        if after is not None:
            found = await self.store.read(find_task, owner.id, after.task)
            upstream = None if found is None else found.id
        route = route or f"python:{name}"
        if route not in self.routes:
            self.routes.append(route)
        return await self.store.write(
            put_task,
            NewTask(
                space_id=owner.id,
                name=name,
                route=route,
                policy=Policy(**policy),
                after=after,
                thread=thread,
            ),
            upstream,
        )

    async def task_of(self, task: Task) -> Task:
        """Return a task as it stands now."""
        return (await self.store.read(get_tasks, [task.id]))[0]

    async def schedule(
        self, task: Task, rule: Rule, *, name: str = "default", generation: int = 1
    ) -> StoredSchedule:
        """Return a schedule that starts now."""
        slot = timetable(rule, generation=generation).next(self.clock.now())
        return await self.store.write(
            store_tasks.put_schedule,
            {
                "task_id": task.id,
                "name": name,
                "rule": json.dumps(rule_builders.to_record(rule)),
                "generation": generation,
                "cursor": self.store.now(),
                "next_at": None if slot is None else to_micros(slot.due),
            },
        )

    async def planned(self, task: Task, *, name: str = "default", **wish: Any) -> StoredSchedule:
        """Declare a schedule as a person would: `cron=`, `every=`, `rrule=`, `at=` or `times=`."""
        return await put_schedule(
            self.store, LOCAL, task.name, ScheduleSpec(**wish), space=task.space, name=name
        )

    async def plan(self) -> None:
        """Plan until nothing is due."""
        while (await plan(self.store)).schedules:
            pass

    async def slots(self, task: Task) -> list[Run]:
        """Return the runs of a task's slots, by their instant."""
        return await self.store.read(list_slot_runs, task.id, 0, FAR)

    async def ledger(self, task: Task) -> list[tuple[str, int]]:
        """Return why slots of a task did not run, and how many for each reason in a row."""
        rows = await self.store.read(list_ledger_rows, task.id, 0, FAR)
        return [(row.reason.value, row.count) for row in rows]

    def every(self, span: str | timedelta) -> Rule:
        """Return an interval rule anchored now."""
        return rule_builders.every(span, anchor=self.clock.now())

    async def limit(
        self,
        scope: LimitScope,
        key: str = "",
        cap: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
    ) -> None:
        """Set one limit."""
        await self.store.write(
            set_limits, [Limit(scope=scope, key=key, cap=cap, rate=rate, period=period)]
        )

    # queue

    def batch(
        self,
        task: Task,
        payloads: Sequence[object] = (None,),
        keys: Sequence[str | None] = (),
        *,
        source: RunSource = RunSource.ENQUEUE,
        at: datetime | None = None,
        **template: Any,
    ) -> RunBatch:
        """Return runs of a task as its policy wants them queued."""
        run = new_run(
            task.id,
            task.space_id,
            task.route,
            task.policy,
            source,
            self.store.now(),
            available_at=None if at is None else to_micros(at),
        )
        texts = [json.dumps(payload) for payload in payloads]
        return RunBatch(template=run._replace(**template), payloads=texts, keys=keys)

    async def enqueue(self, *batches: RunBatch) -> list[list[Enqueued]]:
        """Queue batches."""
        return await self.store.write(enqueue, batches)

    async def queue(self, task: Task, count: int = 1, **options: Any) -> list[RunId]:
        """Queue runs of a task and return their ids."""
        batch = self.batch(task, [None] * count, **options)
        return [outcome.run_id for outcome in (await self.enqueue(batch))[0]]

    async def run(self, run_id: int) -> Run:
        """Return a run that must exist."""
        found = await self.store.read(get_run, run_id)
        if found is None:
            message = f"there is no run {run_id}"
            raise AssertionError(message)
        return found

    async def state(self, run_id: int) -> RunState:
        """Return a run's state."""
        return (await self.run(run_id)).state

    # claim and settle

    async def claimed(
        self, want: int = 100, worker: str = "w1", routes: Sequence[str] | None = None
    ) -> ClaimResult:
        """Claim from both pools."""
        served = self.routes if routes is None else routes
        return await self.store.write(claim_runs, worker, POOLS, served, want)

    async def claim(
        self, want: int = 100, worker: str = "w1", routes: Sequence[str] | None = None
    ) -> list[Lease]:
        """Claim from both pools and return the leases."""
        return (await self.claimed(want, worker, routes)).leases

    async def claim_ids(self, want: int = 100, **options: Any) -> list[RunId]:
        """Claim from both pools and return the runs' ids."""
        return [lease.run_id for lease in await self.claim(want, **options)]

    async def claim_one(self, worker: str = "w1") -> Lease:
        """Claim the one run that must be ready."""
        (lease,) = await self.claim(1, worker=worker)
        return lease

    async def decide(
        self,
        run: OpenRun,
        outcome: Outcome,
        *,
        unbegun: bool = False,
        **facts: Any,
    ) -> Settlement:
        """Return the settlement the rules make of an outcome."""
        (task,) = await self.store.read(get_tasks, [run.task_id])
        context = SettlementContext(
            policy=task.policy, task=task.name, now=self.store.now(), **facts
        )
        return settle(run, AttemptReport(outcome=outcome, unbegun=unbegun), context)

    async def end(
        self, lease: Lease, outcome: Outcome | None = None, *, unbegun: bool = False
    ) -> bool:
        """Settle a lease, by default as a success; false if it was no longer the lease's to do."""
        settlement = await self.decide(running(lease), outcome or Succeeded(), unbegun=unbegun)
        return (await self.store.write(store_settlement.settle, [settlement]))[0]

    async def end_open(self, run_id: int, outcome: Outcome) -> bool:
        """Settle a run from whatever state it is in."""
        (run,) = await self.store.read(get_open_runs, [run_id])
        return (await self.store.write(store_settlement.settle, [await self.decide(run, outcome)]))[
            0
        ]

    async def ask(self, lease: Lease, question: str = "Shall I?", **options: Any) -> int:
        """Let a run ask a question; return the question's id."""
        if not await self.end(lease, WaitingForAnswer(question=question, **options)):
            message = f"run {lease.run_id} could not ask"
            raise AssertionError(message)
        return (await self.store.read(list_questions, [lease.run_id]))[-1].id

    async def events(self, run_id: int) -> list[str]:
        """Return the names of a run's events, in order."""
        return [event.name.value for event in await self.store.read(list_run_events, run_id)]

    # workers

    async def worker(
        self, worker: str = "w1", ttl: timedelta = timedelta(seconds=30), host: str = "here"
    ) -> None:
        """Register a worker."""
        await self.store.write(
            register_worker,
            {
                "id": worker,
                "home": "/home",
                "host": host,
                "pid": 1,
                "roles": "worker",
                "routes": json.dumps(self.routes),
                "slots": 10,
                "lease_until": self.store.now() + micros(ttl),
            },
        )


def failed(code: str = "exception", message: str = "boom", *, retryable: bool = True) -> Failed:
    """Return a failure."""
    return Failed(code=code, message=message, retryable=retryable)

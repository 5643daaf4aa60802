"""Liveness: with nothing going wrong any more, everything gets done within a bounded time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from rota.errors import Refused
from rota.flow.define.runs import answer_question
from rota.flow.observe.verification import verify
from rota.flow.task_changes import retry_if_stale
from rota.model.spaces import Limit, LimitScope
from rota.rules.permissions import LOCAL
from rota.store.claims import set_limits
from rota.store.plans import resume_all
from rota.store.tasks import drop_schedule, list_schedules
from rota.store.views import list_limits
from tests.tools.simulation.faults import Fault, Sea, SimStore
from tests.tools.simulation.history import Violation
from tests.tools.simulation.picture import FINISHED, process_of

SETTLING_SECONDS = 35.0
"""A lease, an interval of maintenance and a planner's poll: after that nothing may be overdue."""

PROBATION_SECONDS = 65.0
"""How long a clock that leapt is not trusted."""

LEAP_SECONDS = 900.0
"""How far ahead of time a lease may last that was taken while the clock was wrong."""

LONGEST_SECONDS = 400.0
LOOK_EVERY = 5.0
LATE_MICROS = 20_000_000


class Healing:
    """Waits until everything is done, and raises a Violation if it is not done in time."""

    def __init__(self, sea: Sea, store: SimStore, living: Callable[[], set[str]]) -> None:
        self._sea = sea
        self._store = store
        self._living = living
        self._picture = sea.checker.picture
        leapt = Fault.LEAP in sea.faults.kinds
        self._settling = SETTLING_SECONDS + (PROBATION_SECONDS if leapt else 0.0)
        self._longest = LONGEST_SECONDS + (LEAP_SECONDS if leapt else 0.0)

    async def run(self) -> None:
        """Let what is due be planned, end all planning, and wait for the rest."""
        await self._lift_rates()
        await self._store.write(resume_all, "the end")
        await asyncio.sleep(self._settling)
        self._check_schedules()
        await self._drop_schedules()
        deadline = self._sea.loop.time() + self._longest
        while left := list(self._undone()):
            if self._sea.loop.time() > deadline:
                detail = f"{len(left)} left after {self._longest:.0f} s: {'; '.join(left[:5])}"
                raise Violation("nothing is stranded", detail)
            await self._answer()
            await asyncio.sleep(LOOK_EVERY)
        self._check_attempts()
        await self._verify()

    async def _lift_rates(self) -> None:
        limits = await self._store.read(list_limits)
        await self._store.write(
            set_limits, [Limit(scope=LimitScope.GROUP, key=o.key) for o in limits if o.rate]
        )

    def _check_schedules(self) -> None:
        overdue = self._store.now() - LATE_MICROS
        for schedule in self._picture.schedules.values():
            if schedule.deleted_at is None and (schedule.next_at or overdue) < overdue:
                detail = f"schedule {schedule.id} was due at {schedule.next_at}"
                raise Violation("no slot waits for ever", detail)

    async def _drop_schedules(self) -> None:
        """End all planning, so that an empty queue stays empty."""
        tasks = [task.id for task in self._picture.tasks.values()]

        async def drop() -> None:
            for schedule in await self._store.read(list_schedules, tasks):
                await self._store.write(drop_schedule, schedule)

        await retry_if_stale(drop)

    async def _answer(self) -> None:
        for question in list(self._picture.questions.values()):
            run = self._picture.runs.get(question.run_id)
            if question.answered_at is None and run is not None and run.state == "waiting":
                text = "yes" if question.kind == "ask" else "retry"
                try:
                    await answer_question(self._store, LOCAL, question.id, text)
                except Refused:
                    continue

    def _undone(self) -> Iterator[str]:
        """Say what is left to do, but for what waits for a time to come."""
        now = self._store.now()
        for run in self._picture.runs.values():
            to_come = run.queue_state == "delayed" and run.available_at > now
            if run.state not in FINISHED and not to_come:
                yield f"run {run.id} is {run.queue_state or run.state} e{run.epoch}"
        for delivery in self._picture.deliveries.values():
            due = delivery.state == "pending" and delivery.available_at <= now
            if due or delivery.state == "sending":
                yield f"delivery {delivery.id} is {delivery.state}"
        yield from self._sea.checker.kept.left()
        yield from self._unfenced()

    def _unfenced(self) -> Iterator[str]:
        """Say which dead workers still count as alive; a clock that was wrong is watched first."""
        living = self._living()
        for worker in self._picture.workers.values():
            over = worker.lease_until < self._store.now() - LATE_MICROS
            if over and not worker.fenced and process_of(worker.id) not in living:
                yield f"worker {worker.id} is dead and not fenced"

    async def _verify(self) -> None:
        """Ask the engine's own self-check, which must find nothing either."""
        found = (await verify(self._store)).violations
        if found and self._sea.checker.clocks_agree:  # it takes what was written later for newer
            raise Violation("verify finds nothing", f"{found[0]}")

    def _check_attempts(self) -> None:
        stored = {row.id: row for row in self._sea.database.rows("runs")}
        if stored != self._picture.runs:
            raise Violation("the judge sees everything", "its picture differs from the database")
        ended = Counter(attempt.run_id for attempt in self._sea.database.rows("attempts"))
        for run in stored.values():
            if run.state in FINISHED and ended[run.id] != run.epoch:
                detail = f"run {run.id} has {ended[run.id]} attempts at epoch {run.epoch}"
                raise Violation("every attempt has a row", detail)

"""Callers: people and programs that want things, drawn from the seed, and what they were promised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, TypeVar

from rota.errors import Conflict, IllegalMove, RotaError, Unavailable
from rota.flow.define import runs, schedules, spaces, tasks
from rota.flow.define.schedules import ScheduleSpec
from rota.flow.lookup import get_task
from rota.model.ids import RunId
from rota.model.instants import from_micros
from rota.model.runs import Question, RunBatch, RunSource, RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import (
    After,
    AfterOn,
    CatchUp,
    CatchUpMode,
    OnLost,
    Overlap,
    Policy,
    Pool,
    Retry,
    TaskKind,
)
from rota.model.views import RunFilter
from rota.rules.permissions import LOCAL
from rota.store.views import (
    list_deliveries,
    list_limits,
    list_questions,
    list_runs,
    list_workers,
    view_queue,
)
from tests.tools.simulation.attempt_requests import speak
from tests.tools.simulation.faults import Sea, SimStore
from tests.tools.simulation.history import Violation
from tests.tools.simulation.picture import FINISHED
from tests.tools.simulation.runners import OTHER_ROUTE, ROUTE

TASKS = tuple(f"t{number}" for number in range(6))
KEYS = tuple(f"k{number}" for number in range(4))
SPACES = ("main", "guests")
MOST_TRIES = 4
SCRIPTS = (1, 4)
EVERY_TASK = tuple(range(len(TASKS)))


def space_of(task: str) -> str:
    """Return where a task lives: every third one belongs to the guests."""
    return SPACES[int(task[1:]) % 3 == 2]


def _work(number: int, scripts: Collection[int]) -> dict[str, Any]:
    """Return what a task runs: some of them are programs under keepers."""
    if number in scripts:
        return {"kind": TaskKind.SCRIPT, "route": "script", "spec": {"command": ["program"]}}
    return {"route": OTHER_ROUTE if number == 3 else ROUTE}


class Caller:
    """Wants something every now and then, and checks what it was told."""

    def __init__(self, sea: Sea, store: SimStore, draw: Draw, pace: float) -> None:
        self._sea = sea
        self._store = store
        self._draw = draw
        self._pace = pace
        self._known: list[RunId] = []
        wants: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (10, self.enqueue),
            (3, self.run_now),
            (4, self.cancel),
            (6, self.answer),
            (2, self.define),
            (3, self.schedule),
            (1, self.drop),
            (4, self.switch),
            (1, self.delete),
            (3, self.limit),
            (2, self.backfill),
            (2, self.look),
            (1, self.pause),
            (3, self.speak),
        ]
        self._wants = [want for times, want in wants for _ in range(times)]

    async def live(self) -> None:
        """Want one thing after the other until the end of time."""
        while True:
            await asyncio.sleep(self._draw.seconds(0.1, self._pace).total_seconds())
            await self._try(self._draw.one(self._wants))

    async def _try(self, want: Callable[[], Awaitable[None]]) -> None:
        name = getattr(want, "__name__", "")
        try:
            await want()
        except RotaError as fault:
            self._sea.history.note(self._store.process.name, f"{name}: {fault}"[:100])

    def _broken(self, rule: str, detail: str) -> None:
        self._sea.loop.fail(Violation(rule, detail))

    # tasks

    async def define(self, name: str = "") -> None:
        """Create a task or change its policy."""
        name = name or self._draw.one(TASKS)
        number = int(name[1:])
        after = None
        if number >= 4 and self._draw.odds(0.7):
            after = After(task=TASKS[number - 3], on=self._draw.one(tuple(AfterOn)))
        task = await tasks.put_task(
            self._store,
            LOCAL,
            name,
            space=space_of(name),
            **_work(number, self._sea.scripts),
            policy=self._draw.policy(),
            after=after,
            replace=True,
        )
        if task.id not in self._sea.checker.picture.tasks:
            self._broken("what was acknowledged is there", f"task {name}")

    async def schedule(self, name: str = "") -> None:
        """Give a task a schedule, or another one."""
        name = name or self._draw.one(TASKS)
        wish = self._draw.wish(from_micros(self._store.now()))
        which = self._draw.one(("default", "default", "second"))
        made = await schedules.put_schedule(
            self._store, LOCAL, name, wish, space=space_of(name), name=which
        )
        if made.id not in self._sea.checker.picture.schedules:
            self._broken("what was acknowledged is there", f"schedule {made.id}")

    async def drop(self) -> None:
        """Take a schedule away."""
        name = self._draw.one(TASKS)
        await schedules.drop_schedule(self._store, LOCAL, name, space_of(name))

    async def switch(self) -> None:
        """Disable, pause or enable a task."""
        name = self._draw.one(TASKS)
        if self._draw.odds(0.5):
            await tasks.enable_task(self._store, LOCAL, name, space_of(name))
            return
        until = None
        if self._draw.odds(0.5):
            until = from_micros(self._store.now()) + self._draw.seconds(2, 30)
        await tasks.disable_task(self._store, LOCAL, name, space_of(name), until=until)

    async def delete(self) -> None:
        """Take a task out of use, and perhaps begin it anew."""
        name = self._draw.one(TASKS)
        await tasks.delete_task(self._store, LOCAL, name, space_of(name))
        if self._draw.odds(0.8):
            await self.define(name)

    async def limit(self) -> None:
        """Set or remove a limit."""
        await spaces.set_limit(self._store, LOCAL, self._draw.limit())

    async def pause(self) -> None:
        """Pause everything for a while; who dies meanwhile leaves it to the next one."""
        if self._draw.odds(0.7):
            await spaces.pause_all(self._store, LOCAL)
            await asyncio.sleep(self._draw.seconds(0.1, 5).total_seconds())
        await spaces.resume_all(self._store, LOCAL)

    # runs

    async def enqueue(self) -> None:
        """Queue a few runs, and with a key do not give up before it is known that they stand."""
        name = self._draw.one(TASKS)
        task = await get_task(self._store, LOCAL, name, space_of(name))
        at = None
        if self._draw.odds(0.2):
            at = from_micros(self._store.now()) + self._draw.seconds(0, 30)
        key = self._draw.one(KEYS) if self._draw.odds(0.5) else None
        payload = json.dumps(self._draw.number(0, 9) // 9 if key else self._draw.number(0, 99))
        count = 1 if key else self._draw.one((1, 1, 4))
        template = runs.make_template(task, RunSource.ENQUEUE, self._store.now(), at)
        batch = RunBatch(template=template, payloads=[payload] * count, keys=[key] if key else ())
        for _ in range(MOST_TRIES if key else 1):
            try:
                outcomes = (await runs.queue(self._store, [batch]))[0]
            except Conflict:
                self._refused(task.id, key, payload)
                return
            except Unavailable:
                await asyncio.sleep(1)
                continue
            for outcome in outcomes:
                self._queued(outcome.run_id, task.id, key, payload)
                if not outcome.created:
                    self._sea.sometimes.hit("a key is used again")
            return

    def _queued(self, run_id: RunId, task_id: int, key: str | None, payload: str) -> None:
        self._known.append(run_id)
        run = self._sea.checker.picture.runs.get(run_id)
        if run is None or (run.task_id, run.key, run.payload) != (task_id, key, payload):
            self._broken("what was acknowledged is there", f"run {run_id}: {run}")

    def _refused(self, task_id: int, key: str | None, payload: str) -> None:
        self._sea.sometimes.hit("a key is refused for another payload")
        picture = self._sea.checker.picture
        run = picture.runs.get(picture.keys.get((task_id, str(key)), 0))
        if run is not None and run.payload == payload:
            self._broken("a key is refused only for another payload", f"run {run.id}")

    async def run_now(self) -> None:
        """Run a task at once."""
        name = self._draw.one(TASKS)
        run_id = (await runs.run_now(self._store, LOCAL, name, space_of(name))).run_id
        if run_id not in self._sea.checker.picture.runs:
            self._broken("what was acknowledged is there", f"run {run_id}")
        self._known.append(run_id)

    async def cancel(self) -> None:
        """Cancel a run it knows, or any other."""
        if self._known and self._draw.odds(0.5):
            run_id = self._draw.one(self._known[-8:])
        else:
            shown = await self._store.read(list_runs, RunFilter(limit=8))
            if not shown:
                return
            run_id = self._draw.one(shown).id
        await runs.cancel_run(self._store, LOCAL, run_id, self._draw)
        run = self._sea.checker.picture.runs.get(run_id)
        if run is None:
            return
        if run.state not in FINISHED and run.cancel_at is None:
            self._broken("what was acknowledged is there", f"run {run_id} was cancelled")
        begun = "not begun" if run.state == "cancelled" and run.epoch == 0 else "begun"
        self._sea.sometimes.hit(f"a cancelled run had {begun}")

    async def answer(self) -> None:
        """Answer the questions that stand open."""
        waiting = await self._store.read(list_runs, RunFilter(state=RunState.WAITING, limit=8))
        if not waiting:
            return
        questions = await self._store.read(list_questions, [run.id for run in waiting])
        for question in [q for q in questions if q.answered_at is None]:
            times = 2 if self._draw.odds(0.3) else 1  # impatient people press twice
            answers = [self._answer(question) for _ in range(times)]
            both = await asyncio.gather(*answers)
            for fault in both:
                if isinstance(fault, RotaError):
                    raise fault
            said = [answer for answer in both if answer is not None]
            if len(said) < times:
                self._sea.sometimes.hit("two answers race and one is refused")
            if len(said) > 1:
                self._broken("a question is answered once", f"question {question.id}")

    async def _answer(self, question: Question) -> str | RotaError | None:
        text = self._draw.one(question.options)
        try:
            await runs.answer_question(self._store, LOCAL, question.id, text)
        except IllegalMove:
            return None
        except RotaError as fault:
            return fault
        self._sea.sometimes.hit("a question is answered")
        row = self._sea.checker.picture.questions.get(question.id)
        if row is not None and row.answer != text:
            self._broken("what was acknowledged is there", f"question {question.id}")
        return text

    async def speak(self) -> None:
        """Say something for a run that goes on, as its attempt would."""
        running = await self._store.read(list_runs, RunFilter(state=RunState.RUNNING, limit=8))
        if running:
            await speak(self._store, self._draw.one(running), asks=self._draw.odds(0.4))

    async def backfill(self) -> None:
        """Make up for slots of the last minutes."""
        name = self._draw.one(TASKS)
        end = from_micros(self._store.now())
        start = end - timedelta(seconds=self._draw.number(5, 90))
        made = await runs.backfill(self._store, LOCAL, name, start, end, space_of(name))
        for run_id in made:
            self._sea.sometimes.hit("a slot is backfilled")
            if run_id not in self._sea.checker.picture.runs:
                self._broken("what was acknowledged is there", f"run {run_id}")

    async def look(self) -> None:
        """Look at everything; looking changes nothing."""
        await self._store.read(view_queue)
        await self._store.read(list_workers)
        await self._store.read(list_deliveries, None, 5)
        await self._store.read(list_limits)


Item = TypeVar("Item")

BERLIN = "Europe/Berlin"


class Draw:
    """Draws things from the seed."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return self._chance.random()

    def one(self, items: Sequence[Item]) -> Item:
        """Return one of these."""
        return items[int(self._chance.random() * len(items))]

    def odds(self, odds: float) -> bool:
        """Return true this often."""
        return self._chance.random() < odds

    def number(self, least: int, most: int) -> int:
        """Return a whole number from least to most."""
        return least + int(self._chance.random() * (most - least + 1))

    def seconds(self, least: float, most: float) -> timedelta:
        """Return a span."""
        return timedelta(seconds=least + self._chance.random() * (most - least))

    def span(self, least: float, most: float, edges: Sequence[float]) -> float:
        """Return seconds; every other time about an instant at which somebody gives up."""
        if self.odds(0.5):
            return least + self._chance.random() * (most - least)
        near = self.one(edges) + self._chance.random() * 3 - 1
        return min(max(near, least), most)

    def policy(self) -> Policy:
        """Return a policy, everything possible."""
        return Policy(
            retry=Retry(
                attempts=self.one((1, 1, 2, 3)),
                base=self.seconds(0.5, 4),
                factor=self.one((1.0, 2.0)),
                cap=timedelta(seconds=10),
            ),
            timeout=self.one((None, timedelta(seconds=2), timedelta(seconds=20))),
            pool=self.one(tuple(Pool)),
            priority=self.number(0, 2),
            lane=self.one((None, None, "one", "two")),
            group=self.one((None, None, "blue", "red")),
            metered=self.odds(0.7),
            overlap=self.one((None, None, *Overlap)),
            catch_up=CatchUp(
                mode=self.one(tuple(CatchUpMode)),
                window=self.one((timedelta(seconds=90), timedelta(hours=24))),
                cap=self.one((1, 3, 100)),
                pace=self.seconds(0.1, 2),
            ),
            on_lost=self.one((OnLost.AUTO, OnLost.RETRY, OnLost.FAIL, OnLost.ASK)),
            deadline=self.one((None, None, timedelta(seconds=15), timedelta(seconds=60))),
            disable_after=self.one((0, 0, 0, 2)),
            deliver_to=self.one((None, None, "test:inbox", "test:desk")),
        )

    def wish(self, now: datetime) -> ScheduleSpec:
        """Return a schedule."""
        match self.number(0, 9):
            case 0:
                return ScheduleSpec(at=(now + self.seconds(1, 60)).replace(microsecond=0))
            case 1 | 2:
                return ScheduleSpec(cron=self.one(("*/1 * * * *", "*/2 * * * *", "*/5 * * * *")))
            case 3:
                return ScheduleSpec(cron=self.one(("30 2 * * *", "0 3 * * *")), timezone=BERLIN)
            case 4:
                return ScheduleSpec(
                    times=self.one((("02:15", "02:45"), ("02:59", "03:01"))), timezone=BERLIN
                )
            case _:
                return ScheduleSpec(every=timedelta(seconds=self.one((2, 5, 7, 11, 20, 45))))

    def limit(self) -> Limit:
        """Return a limit, or the end of one."""
        cap = self.one((None, 1, 2, 3))
        pool = self.one(tuple(Pool)).value
        match self.number(0, 4):
            case 0:
                return Limit(scope=LimitScope.TOTAL, cap=cap)
            case 1:
                return Limit(scope=LimitScope.POOL, key=pool, cap=cap)
            case 2:
                key = self.one((pool, f"{pool}/main", f"{pool}/guests"))
                return Limit(scope=LimitScope.SPACE, key=key, cap=cap)
            case 3:
                return Limit(scope=LimitScope.GROUP, key=self.one(("blue", "red")), cap=cap)
            case _:
                period = timedelta(seconds=self.one((2, 10)))
                return Limit(
                    scope=LimitScope.GROUP, key="red", rate=self.one((1, 3)), period=period
                )

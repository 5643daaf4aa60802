"""The class Rota, asynchronous and blocking."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from rota.app.addresses import store_at
from rota.channels.log.channel import LogChannel
from rota.errors import Conflict, NotFound, Unavailable
from rota.executors.inprocess.run_context import Function
from rota.executors.inprocess.runner import InProcessRunner
from rota.flow import lookup
from rota.flow.define import runs, schedules, tasks
from rota.flow.define.policies import policy_from
from rota.flow.define.schedules import ScheduleSpec
from rota.flow.lookup import check_name, get_task
from rota.model.ids import RunId
from rota.model.runs import NewRun, Question, Run, RunBatch, RunSource
from rota.model.schedules import StoredSchedule
from rota.model.spaces import Limit, SpaceRole
from rota.model.tasks import After, AfterOn, Policy, Task
from rota.ports.channel import Channel
from rota.ports.clock import Clock, Random
from rota.rules.permissions import LOCAL
from rota.runtime.clock import SystemClock
from rota.runtime.supervisor import Supervisor, SupervisorSettings, this_process
from rota.runtime.worker import FailureHook
from rota.store.claims import set_limits
from rota.store.store import Store
from rota.store.tasks import add_space, add_thread
from rota.store.views import list_questions

Result = TypeVar("Result")


class AsyncCalls(Protocol):
    """The awaitable methods of a Rota."""

    async def open(self) -> None:
        """Open the store."""

    async def close(self) -> None:
        """Close the store."""

    @property
    def enqueue(self) -> Callable[..., Coroutine[Any, Any, RunId]]:
        """Queue one run."""

    @property
    def enqueue_many(self) -> Callable[..., Coroutine[Any, Any, list[RunId]]]:
        """Queue many runs of one task."""

    @property
    def schedule(self) -> Callable[..., Coroutine[Any, Any, StoredSchedule]]:
        """Declare when a task runs."""

    @property
    def work(self) -> Callable[..., Coroutine[Any, Any, None]]:
        """Run all roles until stopped."""

    async def cancel(self, run_id: int) -> Run:
        """Cancel a run."""

    async def answer(self, question_id: int, text: str) -> Run:
        """Answer a question."""

    async def run(self, run_id: int) -> Run:
        """Return a run."""

    async def questions(self, run_id: int) -> list[Question]:
        """Return the questions of a run."""


class BlockingRota:
    """Runs a Rota on a thread with its own event loop.

    ```python
    with Rota("sqlite:///rota.db").blocking() as rota:
        rota.enqueue("report", {"day": "2026-11-15"})
    ```
    """

    def __init__(self, rota: AsyncCalls) -> None:
        self._rota = rota
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start the thread and open the store."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="rota-loop", daemon=True)
        thread.start()
        self._loop, self._thread = loop, thread
        try:
            self._wait(self._rota.open())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store and end the thread."""
        try:
            self._wait(self._rota.close())
        finally:
            self._end()

    def enqueue(self, task: str, payload: object = None, **options: Any) -> RunId:  # noqa: ANN401
        """Queue one run; see Rota.enqueue."""
        return self._wait(self._rota.enqueue(task, payload, **options))

    def enqueue_many(
        self,
        task: str,
        payloads: Iterable[object],
        **options: Any,  # noqa: ANN401
    ) -> list[RunId]:
        """Queue many runs of one task; see Rota.enqueue_many."""
        return self._wait(self._rota.enqueue_many(task, payloads, **options))

    def schedule(self, task: str, **options: Any) -> StoredSchedule:  # noqa: ANN401
        """Declare when a task runs; see Rota.schedule."""
        return self._wait(self._rota.schedule(task, **options))

    def cancel(self, run_id: int) -> Run:
        """Cancel a run; see Rota.cancel."""
        return self._wait(self._rota.cancel(run_id))

    def answer(self, question_id: int, text: str) -> Run:
        """Answer a question; see Rota.answer."""
        return self._wait(self._rota.answer(question_id, text))

    def run(self, run_id: int) -> Run:
        """Return a run."""
        return self._wait(self._rota.run(run_id))

    def questions(self, run_id: int) -> list[Question]:
        """Return the questions of a run; see Rota.questions."""
        return self._wait(self._rota.questions(run_id))

    def work(self, *, until_idle: bool = False) -> None:
        """Run all roles until stopped; see Rota.work."""
        self._wait(self._rota.work(until_idle=until_idle))

    def _wait(self, call: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            call.close()
            message = "Rota is not open: use `with rota.blocking() as rota:`"
            raise Unavailable(message)
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _end(self) -> None:
        if self._loop is None or self._thread is None:
            return
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


SLOTS = 1_000
THREADS = 32
MAIN = "main"
LOCAL_THREAD = "cli:default"

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class DeclaredTask:
    """A callable that a program has declared as a task."""

    name: str
    function: Function
    policy: Policy
    after: After | None
    title: str


class Rota:
    """A durable scheduler and queue inside a program.

    ```python
    rota = Rota("sqlite:///rota.db")

    @rota.task("report", retry=Retry(attempts=3), timeout="10m")
    async def report(run): ...

    async with rota:
        await rota.enqueue("report", {"day": "2026-11-15"}, key="report:2026-11-15")
        await rota.work(until_idle=True)
    ```

    Any number of programs may queue and schedule on one database; on SQLite one of them works at a
    time, on PostgreSQL any number.
    """

    def __init__(
        self,
        address: str = "memory:",
        *,
        slots: int = SLOTS,
        threads: int = THREADS,
        limits: Sequence[Limit] = (),
        on_failure: FailureHook | None = None,
        channels: Sequence[Channel] = (),
        clock: Clock | None = None,
        chance: Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._chance = chance or random.SystemRandom()
        self.store: Store = store_at(address, self._clock)
        self._slots = slots
        self._limits = limits
        self._on_failure = on_failure
        self.declared: dict[str, DeclaredTask] = {}
        """The tasks of this program, by name."""
        self._known: dict[str, Task] = {}
        self._templates: dict[tuple[str, int | None], NewRun] = {}
        self._functions: dict[str, Function] = {}
        self._runner = InProcessRunner(self._functions, threads=threads)
        self._channels: dict[str, Channel] = {c.name: c for c in (LogChannel(), *channels)}
        self._open = False
        self.crew: Supervisor | None = None

    # declare

    def task(
        self,
        name: str,
        *,
        title: str = "",
        after: str | None = None,
        on: str = "success",
        **options: Any,  # noqa: ANN401 - checked by policy_from
    ) -> Callable[[AnyFunction], AnyFunction]:
        """Declare a callable as a task; it is stored when Rota opens.

        Options are the fields of the task's policy: retry, timeout, priority, pool, lane, group,
        overlap, catch_up, on_lost, disable_after, until_success, deadline, deliver_to, acknowledge,
        progress. Durations may be text.
        """
        check_name("name", name)
        policy = policy_from(options)
        following = None if after is None else After(task=after, on=AfterOn(on))

        def decorate(function: AnyFunction) -> AnyFunction:
            self.declare(DeclaredTask(name, function, policy, following, title))
            return function

        return decorate

    def declare(self, declared: DeclaredTask) -> None:
        """Add a task to this program; its name must be new."""
        if declared.name in self.declared:
            message = f"the task {declared.name!r} is declared twice in this program"
            raise Conflict(message)
        self.declared[declared.name] = declared
        self._functions[f"python:{declared.name}"] = declared.function

    # open and close

    async def open(self) -> None:
        """Open the store and store the declared tasks; opening twice is harmless."""
        if self._open:
            return
        await self.store.database.open()
        self._open = True
        space = await self.store.write(add_space, MAIN, SpaceRole.MAIN, "UTC")
        await self.store.write(add_thread, space.id, LOCAL_THREAD)
        if self._limits:
            await self.store.write(set_limits, self._limits)
        for declared in self.declared.values():
            self._known[declared.name] = await tasks.put_task(
                self.store,
                LOCAL,
                declared.name,
                title=declared.title,
                route=f"python:{declared.name}",
                policy=declared.policy,
                after=declared.after,
                origin=tasks.CODE,
                replace=True,
            )

    async def close(self) -> None:
        """Close the store; queued runs stay there."""
        if self._open:
            self._open = False
            self._runner.close()
            await self.store.database.close()

    def blocking(self) -> BlockingRota:
        """Return this Rota for programs without an event loop."""
        return BlockingRota(self)

    async def __aenter__(self) -> Self:
        """Open."""
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    # queue and schedule

    async def enqueue(
        self,
        task: str,
        payload: object = None,
        *,
        key: str | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        priority: int | None = None,
        connection: Any = None,  # noqa: ANN401 - the caller's asyncpg connection
    ) -> RunId:
        """Queue one run and return its id when it is durable.

        The same key returns the same run; with another payload it raises Conflict. With
        `connection`, an asyncpg connection in a transaction, the run exists if and when that
        transaction commits.
        """
        batch = RunBatch(
            template=await self._template(
                task, at if delay is None else self._clock.now() + delay, priority
            ),
            payloads=(runs.encode_payload(payload),),
            keys=() if runs.check_key(key) is None else (key,),
        )
        return (await runs.queue(self.store, [batch], connection))[0][0].run_id

    async def enqueue_many(
        self,
        task: str,
        payloads: Iterable[object],
        *,
        keys: Sequence[str] | None = None,
        priority: int | None = None,
        connection: Any = None,  # noqa: ANN401
    ) -> list[RunId]:
        """Queue many runs of one task in one transaction and return their ids in order."""
        texts = [runs.encode_payload(payload) for payload in payloads]
        for key in keys or ():
            runs.check_key(key)
        if not texts:
            return []
        template = await self._template(task, None, priority)
        batch = RunBatch(template=template, payloads=texts, keys=keys or ())
        outcomes = await runs.queue(self.store, [batch], connection)
        return [outcome.run_id for outcome in outcomes[0]]

    async def _template(self, name: str, at: datetime | None, priority: int | None) -> NewRun:
        """Return the common part of runs of a task; that of a declared task is cached."""
        kept = self._templates.get((name, priority)) if at is None else None
        if kept is not None:
            return kept
        task = await self._task(name)
        template = runs.make_template(task, RunSource.ENQUEUE, self.store.now(), at, priority)
        if at is None and template.expires_at is None and name in self.declared:
            self._templates[name, priority] = template
        return template

    async def schedule(
        self,
        task: str,
        *,
        name: str = "default",
        cron: str | None = None,
        every: str | timedelta | None = None,
        rrule: str | None = None,
        at: str | datetime | None = None,
        times: str | Sequence[str] | None = None,
        weekdays: str | Sequence[str] = (),
        timezone: str | None = None,
        anchor: datetime | None = None,
        allow_past: bool = False,
        catch_up: str | None = None,
        **options: Any,  # noqa: ANN401 - timing's options, checked there
    ) -> StoredSchedule:
        """Declare when a task runs; the same call again changes nothing.

        Give one of cron, every, rrule, at and times. `catch_up` sets the task's catch-up mode.
        Further options: gap, fold, starts_at, ends_at, excluded, quiet, quiet_mode, jitter.
        """
        if catch_up is not None:
            await self._set_catch_up(task, catch_up)
        await self._task(task)
        wish = ScheduleSpec(
            cron=cron,
            every=every,
            rrule=rrule,
            at=at,
            times=times if times is None or isinstance(times, str) else tuple(times),
            weekdays=weekdays if isinstance(weekdays, str) else tuple(weekdays),
            timezone=timezone,
            anchor=anchor,
            allow_past=allow_past,
            options=options,
        )
        return await schedules.put_schedule(self.store, LOCAL, task, wish, name=name)

    async def _set_catch_up(self, name: str, mode: str) -> None:
        task = await self._task(name)
        policy = policy_from({"catch_up": mode}, base=task.policy)
        if policy == task.policy:
            return
        self._templates.clear()
        self._known[name] = await tasks.put_task(
            self.store,
            LOCAL,
            name,
            title=task.title,
            kind=task.kind,
            route=task.route,
            spec=task.spec,
            policy=policy,
            after=task.after,
            origin=task.origin,
            replace=True,
        )

    async def cancel(self, run_id: int) -> Run:
        """Cancel a queued run, or ask the worker of a running one to stop it."""
        return await runs.cancel_run(self.store, LOCAL, run_id, self._chance)

    async def answer(self, question_id: int, text: str, *, action_hash: str | None = None) -> Run:
        """Answer a question; an approval needs the hash of its action."""
        return await runs.answer_question(self.store, LOCAL, question_id, text, action_hash)

    async def run(self, run_id: int) -> Run:
        """Return a run."""
        return await lookup.find_run(self.store, LOCAL, run_id)

    async def questions(self, run_id: int) -> list[Question]:
        """Return the questions of a run, oldest first."""
        await lookup.find_run(self.store, LOCAL, run_id)
        return await self.store.read(list_questions, [run_id])

    # work

    async def work(self, *, until_idle: bool = False) -> None:
        """Plan, run, deliver and maintain until cancelled, or until nothing is left to do."""
        if not self._open:
            message = "Rota is not open: use `async with rota:`"
            raise Unavailable(message)
        crew = self._make_crew()
        await crew.start()
        self.crew = crew
        try:
            async with asyncio.TaskGroup() as group:
                working = group.create_task(crew.run())
                try:
                    await (self._until_idle(crew) if until_idle else asyncio.shield(working))
                finally:
                    await crew.stop()
        finally:
            self.crew = None

    async def _until_idle(self, crew: Supervisor) -> None:
        await crew.idle()

    def _make_crew(self) -> Supervisor:
        me = this_process()
        settings = SupervisorSettings(
            worker_id=me.worker_id,
            home=self.store.database.path,
            host=me.host,
            pid=me.pid,
            slots=self._slots,
        )
        return Supervisor(
            self.store,
            [self._runner],
            self._channels,
            settings,
            self._clock,
            self._chance,
            on_failure=self._on_failure,
        )

    async def _task(self, name: str) -> Task:
        known = self._known.get(name)
        if known is not None:
            return known
        if not self._open:
            message = "Rota is not open: use `async with rota:`"
            raise Unavailable(message)
        try:
            found = await get_task(self.store, LOCAL, name)
        except NotFound as fault:
            advice = "declare it with @rota.task, or create it with `rota task create`"
            raise NotFound("task", name, advice) from fault
        return found

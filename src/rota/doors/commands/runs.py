"""Runs: queue, list, look at, cancel, retry, answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Annotated

from pydantic import Field, StringConstraints

from rota.doors.commands.deeds import deed_of
from rota.doors.commands.errands import NewRun, batch_of
from rota.doors.commands.fields import Id, Json, Limit, SpaceName, Spelled, TaskRef, Text
from rota.doors.commands.finding import task_of
from rota.doors.commands.shapes import (
    Asked,
    AttemptGiven,
    DeliveryGiven,
    EventGiven,
    Given,
    HeartbeatGiven,
    LogGiven,
    OneRun,
    OneTask,
    QuestionGiven,
    RunGiven,
    attempt_given,
    delivery_given,
    event_given,
    heartbeat_given,
    log_given,
    question_given,
    run_given,
)
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.errors import IllegalMove, NotFound
from rota.flow.define import runs
from rota.flow.observe.runs import list_runs as find_runs
from rota.flow.observe.runs import open_questions, view_run
from rota.model.ids import RunId, trace_id
from rota.model.keys import KeyScope
from rota.model.runs import Enqueued, Question
from rota.model.states import FINISHED, RunState
from rota.model.views import RunFilter
from rota.rules.budgets import ended_by

QUEUING = ("enqueue", "read_again")
"""What queues a run at somebody's request."""
ActionHash = Annotated[
    str,
    Spelled(
        r"[0-9a-f]{64}",
        "copy the 64 digits and letters that `rota questions` shows, such as 9f86d081…",
    ),
]


class RunsWanted(Asked):
    """Which runs to list, newest first."""

    task: TaskRef | None = None
    space: SpaceName | None = None
    state: RunState | None = None
    before: Id | None = None
    limit: Limit = 50
    quiet: bool = Field(default=False, description="With those whose gate woke nobody.")


class Runs(Given):
    """Runs, newest first; `next` continues the list as `before`."""

    runs: list[RunGiven]
    next: int | None


class RunQueued(Given):
    """A run that stands in the queue; `created` is false if it stood there already."""

    run: int
    created: bool


class TaskRetried(RunQueued):
    """A run that does again what another one failed at."""

    retried: int


class RunShown(RunGiven):
    """A run with everything that belongs to it; `trace_id` is what every log calls it."""

    trace_id: str
    attempts: list[AttemptGiven]
    events: list[EventGiven]
    logs: list[LogGiven]
    deliveries: list[DeliveryGiven]
    questions: list[QuestionGiven]
    heartbeat: HeartbeatGiven | None


class RunAnswered(RunGiven):
    """A run that was answered; `outcome` tells what came of an action that Rota did itself.

    `then` says what becomes of the run where the answer ends it.
    """

    outcome: Json = None
    then: str | None = None


class Waiting(Given):
    """A question that nobody has answered, with its run."""

    question: QuestionGiven
    run: RunGiven


class WaitingRuns(Given):
    """Runs that wait for a person, oldest question first."""

    waiting: list[Waiting]


class Answered(OneRun):
    """What a run that waits is to be told; the newest question if none is named."""

    answer: Annotated[Text, StringConstraints(min_length=1, max_length=runs.LONGEST_ANSWER)]
    question: Id | None = None
    action_hash: ActionHash | None = Field(
        default=None, description="Of the action that was shown; every approval needs it."
    )


@command("GET", "/v1/runs", KeyScope.READ)
async def list_runs(office: Office, asked: RunsWanted) -> Runs:
    """List runs, newest first."""
    name, space = asked.task, asked.space
    if name is not None:
        task = await task_of(office, name, space)
        name, space = task.name, task.space
    found = await find_runs(
        office.store,
        office.caller,
        task=name,
        space=space,
        state=asked.state,
        before=None if asked.before is None else RunId(asked.before),
        limit=asked.limit,
        quiet=asked.quiet,
    )
    more = found[-1].id if len(found) == asked.limit else None
    return Runs(runs=[run_given(run) for run in found], next=more)


@command("GET", "/v1/runs/waiting", KeyScope.READ)
async def list_waiting(office: Office, asked: Asked) -> WaitingRuns:  # noqa: ARG001
    """List runs that wait for a person, with their questions."""
    found = await open_questions(office.store, office.caller)
    return WaitingRuns(
        waiting=[Waiting(question=question_given(q), run=run_given(run)) for q, run in found]
    )


@command("POST", "/v1/runs", KeyScope.RUN, status=201)
async def create_run(office: Office, asked: NewRun) -> RunQueued:
    """Queue a run and return at once; with a key, at most one."""
    keep_queued(office, asked.key)
    ((done,),) = await runs.queue(office.store, [await batch_of(office, asked)])
    return queued_run(done)


@command("GET", "/v1/runs/{run}", KeyScope.READ)
async def show_run(office: Office, asked: OneRun) -> RunShown:
    """Return a run with its attempts, events, messages, questions and the end of its output."""
    view = await view_run(office.store, office.caller, asked.run)
    return RunShown(
        **dict(run_given(view.run)),
        trace_id=trace_id(office.store.incarnation, view.run.id),
        attempts=[attempt_given(attempt) for attempt in view.attempts],
        events=[event_given(event) for event in view.events],
        logs=[log_given(event) for event in view.output],
        deliveries=[delivery_given(delivery) for delivery in view.deliveries],
        questions=[question_given(question) for question in view.questions],
        heartbeat=None if view.heartbeat is None else heartbeat_given(view.heartbeat),
    )


@command("POST", "/v1/runs/{run}/cancel", KeyScope.RUN)
async def cancel_run(office: Office, asked: OneRun) -> RunGiven:
    """End a run that has not begun, or ask whoever works on it to stop."""
    store, caller = office.store, office.caller

    async def cancelled(within: Office, _: object) -> RunGiven | None:
        run = await runs.find_run(within.store, caller, asked.run)
        over = run.state in FINISHED or run.cancel_requested_at is not None
        return run_given(run) if over else None

    office.keep_seen(cancelled, "settle", "request_cancel")
    return run_given(await runs.cancel_run(store, caller, asked.run, office.chance))


@command("POST", "/v1/runs/{run}/retry", KeyScope.RUN, status=201)
async def retry_run(office: Office, asked: OneRun) -> RunQueued:
    """Queue a new run with what a finished one was given."""
    keep_queued(office)
    return queued_run(await runs.run_again(office.store, office.caller, asked.run))


@command("POST", "/v1/tasks/{task}/retry", KeyScope.RUN, status=201)
async def retry_task(office: Office, asked: OneTask) -> TaskRetried:
    """Queue a new run with what the newest failed run of a task was given."""
    task = await task_of(office, asked.task, asked.space)
    wanted = RunFilter(task_id=task.id, state=RunState.FAILED, limit=1)
    failed = await office.store.list_runs(wanted)
    if not failed:
        raise NotFound("failed run", task.name, f"see `rota runs --task {task.name}`")
    retried = partial(_retried, failed[0].id)
    keep_queued(office, shape=retried)
    return retried(await runs.run_again(office.store, office.caller, failed[0].id))


@command("POST", "/v1/runs/{run}/answer", KeyScope.RUN)
async def answer_run(office: Office, asked: Answered) -> RunAnswered:
    """Give a question its one answer; the run goes on in the queue.

    What a person approves for Rota to do is done with the answer, once, or told as refused.
    """
    store, caller = office.store, office.caller
    run = await runs.find_run(store, caller, asked.run)
    known = await store.list_questions([run.id])
    if asked.question is not None:
        known = [question for question in known if question.id == asked.question]
        if not known:
            raise NotFound("question", asked.question, f"see `rota run {run.id}`")
    if not known:
        raise IllegalMove(run.state, "be answered: it has asked nothing")
    newest, seen, decide = known[-1].id, asked.action_hash, partial(deed_of, office)

    async def taken(within: Office, done: object) -> RunAnswered | None:
        refused = done is None or done == [False]
        return None if refused else await _answered(within, known[-1], asked.answer)

    office.keep_seen(taken, "settle", "approve")
    await runs.answer_question(store, caller, newest, asked.answer, seen, decide)
    return await _answered(office, known[-1], asked.answer)


async def _answered(office: Office, question: Question, answer: str) -> RunAnswered:
    store = office.store
    run = await runs.find_run(store, office.caller, question.run_id)
    answered = await store.get_question(question.id)
    came = None if answered is None or answered.outcome is None else json.loads(answered.outcome)
    then = ended_by(answer, question.epoch, await store.spent_by(run.id))
    return RunAnswered(**dict(run_given(run)), outcome=came, then=then)


def queued_run(done: Enqueued) -> RunQueued:
    """Return a run that stands in the queue as it goes over a wire."""
    return RunQueued(run=done.run_id, created=done.created)


def _retried(retried: int, done: Enqueued) -> TaskRetried:
    return TaskRetried(run=done.run_id, created=done.created, retried=retried)


def keep_queued(
    office: Office,
    key: str | None = None,
    shape: Callable[[Enqueued], RunQueued] = queued_run,
) -> None:
    """Keep the answer with the run; a key that stands for another run is refused with it."""

    def queued(outcomes: list[list[Enqueued]]) -> RunQueued:
        ((done,),) = outcomes
        runs.check_conflict(key, done)
        return shape(done)

    def read_again(run_id: RunId | None) -> RunQueued | None:
        return None if run_id is None else shape(Enqueued(run_id=run_id))

    office.keep(lambda done: (queued if isinstance(done, list) else read_again)(done), *QUEUING)

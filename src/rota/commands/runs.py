"""Runs, one-off work, approved actions and artifacts.

It is done with no more rights than the space of the run that asks has, and no more than whoever
approves. What they themselves may not do is refused to them, and stays open for somebody who may.
What cannot be done is an outcome, too: the run that asked is told why.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints, ValidationError, model_validator

from rota.commands.catalogue import command, validation_error
from rota.commands.context import RequestContext
from rota.commands.errors import fault_record
from rota.commands.fields import (
    WHOLE,
    Id,
    Json,
    Length,
    Limit,
    Line,
    RunKey,
    SpaceName,
    TaskRef,
    Text,
    TextFormat,
    Word,
    Zone,
    length,
    resolve_space,
    resolve_task,
)
from rota.commands.responses import (
    AttemptResponse,
    DeliveryResponse,
    EventResponse,
    From,
    HeartbeatResponse,
    OutputResponse,
    QuestionResponse,
    RequestModel,
    ResponseModel,
    RunResponse,
    RunSelector,
    TaskSelector,
)
from rota.commands.sql_console import SqlInput, SqlResponse, ask_sql
from rota.errors import IllegalMove, Invalid, NotFound, Refused, SqlRefused
from rota.flow import lookup
from rota.flow.define import runs, tasks
from rota.flow.define.policies import resolve_agent
from rota.flow.lookup import find_run
from rota.flow.observe.time_text import parse_instant
from rota.flow.observe.views import list_runs as find_runs
from rota.flow.observe.views import open_questions, view_run
from rota.model.agents import OutputFormat
from rota.model.ids import RunId, trace_id
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.runs import FINISHED, Enqueued, Question, Run, RunBatch, RunSource, RunState
from rota.model.settlement import ApprovedAction
from rota.model.tasks import MAX_PRIORITY, TaskKind
from rota.model.views import RunFilter
from rota.ports.host import ArtifactList, OpenArtifact
from rota.rules.approvals import ControlAction, ControlRequest
from rota.rules.budgets import ended_by_answer
from rota.rules.permissions import check_scope, restrict_to_space
from rota.rules.task_spec import check_script
from rota.store import views as store_views
from rota.store.budgets import usage_of_run
from rota.store.settlement import approve, enqueue, request_cancel, settle
from rota.store.tasks import find_space
from rota.store.threads import requeue_reader
from rota.store.views import get_question, list_questions

Tier = Literal["low", "medium", "high"]
ONE_OF = ("task", "agent", "script")


class OneOffAgentInput(RequestModel):
    """Work for an agent, in words."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    agent: Word | None = None
    model_tier: Tier | None = Field(
        default=None, description="A model that the settings name for the agent."
    )
    tools: list[Word] | None = Field(default=None, max_length=1_000)
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class OneOffScriptInput(RequestModel):
    """A program to be run."""

    command: list[Text] = Field(min_length=1, max_length=1_000)
    shell: bool = Field(default=False, description="The command is one line for a shell.")
    output: OutputFormat | None = None
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class CreateRun(RequestModel):
    """A run of a task, or work that is done once: exactly one of task, agent and script."""

    task: TaskRef | None = None
    agent: OneOffAgentInput | None = None
    script: OneOffScriptInput | None = None
    space: SpaceName | None = None
    payload: Json = None
    key: RunKey | None = None
    at: Line | None = None
    timezone: Zone | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY), WHOLE] | None = None

    @model_validator(mode="after")
    def _one_work(self) -> CreateRun:
        if len([name for name in ONE_OF if getattr(self, name) is not None]) != 1:
            message = f"say what to run: exactly one of {', '.join(ONE_OF)}"
            raise ValueError(message)
        return self


async def make_batch(office: RequestContext, asked: CreateRun) -> RunBatch:
    """Return the run that is asked for, to be queued."""
    store = office.store
    at = await _start(office, asked)
    if asked.task is not None:
        task = await resolve_task(office, asked.task, asked.space)
        payload = asked.payload
    else:
        space = resolve_space(office, asked.space)
        kind = TaskKind.AGENT if asked.agent is not None else TaskKind.SCRIPT
        task = await tasks.task_for(store, office.caller, kind, space)
        payload = _errand(office, asked)
    template = runs.make_template(task, RunSource.ENQUEUE, store.now(), at, asked.priority)
    return runs.batch_of(template, payload, asked.key)


async def _start(office: RequestContext, asked: CreateRun) -> datetime | None:
    if asked.at is None:
        return None
    home = (await office.store.read(find_space, resolve_space(office, asked.space))).timezone
    now = from_micros(office.store.now())
    return parse_instant(asked.at, asked.timezone or home, now, "at")


def _errand(office: RequestContext, asked: CreateRun) -> dict[str, Any]:
    said = asked.agent or asked.script
    record = {} if said is None else said.model_dump(exclude_none=True)
    if said is not None and said.timeout is not None:
        span = length(said.timeout, "timeout")
        record["timeout"] = None if span is None else span.total_seconds()
    if asked.script is not None:
        check_script(record)
    if asked.payload is not None:
        record["payload"] = asked.payload
    return (
        resolve_agent(office.app.plugins.agents, TaskKind.AGENT, record) if asked.agent else record
    )


QUEUING = (enqueue, requeue_reader)
"""What queues a run at somebody's request."""
ActionHash = Annotated[
    str,
    TextFormat(
        r"[0-9a-f]{64}",
        "copy the 64 digits and letters that `rota questions` shows, such as 9f86d081…",
    ),
]


class RunsQuery(RequestModel):
    """Which runs to list, newest first."""

    task: TaskRef | None = None
    space: SpaceName | None = None
    state: RunState | None = None
    before: Id | None = None
    limit: Limit = 50
    suppressed: bool = Field(default=False, description="With those whose gate woke nobody.")


class RunList(ResponseModel):
    """Runs, newest first; `next` continues the list as `before`."""

    runs: list[RunResponse]
    next: int | None


class QueuedRunResponse(ResponseModel):
    """A run that stands in the queue; `created` is false if it stood there already."""

    run: Annotated[int, From("run_id")]
    created: bool


class RetriedRunResponse(QueuedRunResponse):
    """A run that does again what another one failed at."""

    retried: int


class RunDetailResponse(RunResponse):
    """A run with everything that belongs to it; `trace_id` is what every log calls it."""

    trace_id: str
    attempts: list[AttemptResponse]
    events: list[EventResponse]
    logs: list[OutputResponse]
    deliveries: list[DeliveryResponse]
    questions: list[QuestionResponse]
    heartbeat: HeartbeatResponse | None


class AnsweredRunResponse(RunResponse):
    """A run that was answered; `outcome` tells what came of an action that Rota did itself.

    `then` says what becomes of the run where the answer ends it.
    """

    outcome: Json = None
    then: str | None = None


class OpenQuestionResponse(ResponseModel):
    """A question that nobody has answered, with its run."""

    question: QuestionResponse
    run: RunResponse


class OpenQuestionList(ResponseModel):
    """Runs that wait for a person, oldest question first."""

    questions: list[OpenQuestionResponse]


class AnswerInput(RunSelector):
    """What a run that waits is to be told; the newest question if none is named."""

    answer: Annotated[Text, StringConstraints(min_length=1, max_length=runs.MAX_ANSWER)]
    question: Id | None = None
    action_hash: ActionHash | None = Field(
        default=None, description="Of the action that was shown; every approval needs it."
    )


@command("GET", "/v1/runs", KeyScope.READ)
async def list_runs(office: RequestContext, asked: RunsQuery) -> RunList:
    """List runs, newest first."""
    name, space = asked.task, asked.space
    if name is not None:
        task = await resolve_task(office, name, space)
        name, space = task.name, task.space
    found = await find_runs(
        office.store,
        office.caller,
        task=name,
        space=space,
        state=asked.state,
        before=None if asked.before is None else RunId(asked.before),
        limit=asked.limit,
        suppressed=asked.suppressed,
    )
    more = found[-1].id if len(found) == asked.limit else None
    return RunList(runs=[RunResponse.from_model(run) for run in found], next=more)


@command("GET", "/v1/questions", KeyScope.READ)
async def list_open_questions(office: RequestContext, asked: RequestModel) -> OpenQuestionList:  # noqa: ARG001
    """List runs that wait for a person, with their questions."""
    found = await open_questions(office.store, office.caller)
    return OpenQuestionList(
        questions=[
            OpenQuestionResponse(
                question=QuestionResponse.from_model(q), run=RunResponse.from_model(run)
            )
            for q, run in found
        ]
    )


@command("POST", "/v1/runs", KeyScope.RUN, status=201)
async def create_run(office: RequestContext, asked: CreateRun) -> QueuedRunResponse:
    """Queue a run and return at once; with a key, at most one."""
    keep_queued(office, asked.key)
    ((done,),) = await runs.queue(office.store, [await make_batch(office, asked)])
    return QueuedRunResponse.from_model(done)


@command("GET", "/v1/runs/{run}", KeyScope.READ)
async def show_run(office: RequestContext, asked: RunSelector) -> RunDetailResponse:
    """Return a run with its attempts, events, messages, questions and the end of its output."""
    view = await view_run(office.store, office.caller, asked.run)
    return RunDetailResponse.from_model(
        view.run,
        trace_id=trace_id(office.store.database.incarnation, view.run.id),
        attempts=[AttemptResponse.from_model(attempt) for attempt in view.attempts],
        events=[EventResponse.from_model(event) for event in view.events],
        logs=[OutputResponse.from_model(event) for event in view.output],
        deliveries=[DeliveryResponse.from_model(delivery) for delivery in view.deliveries],
        questions=[QuestionResponse.from_model(question) for question in view.questions],
        heartbeat=None if view.heartbeat is None else HeartbeatResponse.from_model(view.heartbeat),
    )


@command("POST", "/v1/runs/{run}/cancel", KeyScope.RUN)
async def cancel_run(office: RequestContext, asked: RunSelector) -> RunResponse:
    """End a run that has not begun, or ask whoever works on it to stop."""
    store, caller = office.store, office.caller

    async def cancelled(within: RequestContext, _: object) -> RunResponse | None:
        run = await lookup.find_run(within.store, caller, asked.run)
        over = run.state in FINISHED or run.cancel_requested_at is not None
        return RunResponse.from_model(run) if over else None

    office.keep_seen(cancelled, settle, request_cancel)
    return RunResponse.from_model(
        await runs.cancel_run(store, caller, asked.run, office.app.chance)
    )


@command("POST", "/v1/runs/{run}/retry", KeyScope.RUN, status=201)
async def retry_run(office: RequestContext, asked: RunSelector) -> QueuedRunResponse:
    """Queue a new run with what a finished one was given."""
    keep_queued(office)
    return QueuedRunResponse.from_model(
        await runs.run_again(office.store, office.caller, asked.run)
    )


@command("POST", "/v1/tasks/{task}/retry", KeyScope.RUN, status=201)
async def retry_task(office: RequestContext, asked: TaskSelector) -> RetriedRunResponse:
    """Queue a new run with what the newest failed run of a task was given."""
    task = await resolve_task(office, asked.task, asked.space)
    wanted = RunFilter(task_id=task.id, state=RunState.FAILED, limit=1)
    failed = await office.store.read(store_views.list_runs, wanted)
    if not failed:
        raise NotFound("failed run", task.name, f"see `rota runs --task {task.name}`")
    retried = partial(_retried, failed[0].id)
    keep_queued(office, shape=retried)
    return retried(await runs.run_again(office.store, office.caller, failed[0].id))


@command("POST", "/v1/runs/{run}/answer", KeyScope.RUN)
async def answer_run(office: RequestContext, asked: AnswerInput) -> AnsweredRunResponse:
    """Give a question its one answer; the run goes on in the queue.

    What a person approves for Rota to do is done with the answer, once, or told as refused.
    """
    store, caller = office.store, office.caller
    run = await lookup.find_run(store, caller, asked.run)
    known = await store.read(list_questions, [run.id])
    if asked.question is not None:
        known = [question for question in known if question.id == asked.question]
        if not known:
            raise NotFound("question", asked.question, f"see `rota run {run.id}`")
    if not known:
        raise IllegalMove(run.state, "be answered: it has asked nothing")
    newest, seen, decide = known[-1].id, asked.action_hash, partial(approved_action, office)

    async def taken(within: RequestContext, done: object) -> AnsweredRunResponse | None:
        refused = done is None or done == [False]
        return None if refused else await _answered(within, known[-1], asked.answer)

    office.keep_seen(taken, settle, approve)
    await runs.answer_question(store, caller, newest, asked.answer, seen, decide)
    return await _answered(office, known[-1], asked.answer)


async def _answered(office: RequestContext, question: Question, answer: str) -> AnsweredRunResponse:
    store = office.store
    run = await lookup.find_run(store, office.caller, question.run_id)
    answered = await store.read(get_question, question.id)
    came = None if answered is None or answered.outcome is None else json.loads(answered.outcome)
    then = ended_by_answer(answer, question.epoch, await store.read(usage_of_run, run.id))
    return AnsweredRunResponse.from_model(run, outcome=came, then=then)


def _retried(retried: int, done: Enqueued) -> RetriedRunResponse:
    return RetriedRunResponse.from_model(done, retried=retried)


def keep_queued(
    office: RequestContext,
    key: str | None = None,
    shape: Callable[[Enqueued], QueuedRunResponse] = QueuedRunResponse.from_model,
) -> None:
    """Keep the answer with the run; a key that stands for another run is refused with it."""

    def queued(outcomes: list[list[Enqueued]]) -> QueuedRunResponse:
        ((done,),) = outcomes
        runs.check_conflict(key, done)
        return shape(done)

    def read_again(run_id: RunId | None) -> QueuedRunResponse | None:
        return None if run_id is None else shape(Enqueued(run_id=run_id))

    office.keep(lambda done: (queued if isinstance(done, list) else read_again)(done), *QUEUING)


Model = TypeVar("Model", bound=BaseModel)

LONGEST_OUTCOME = 32 * 1024
"""How many bytes the answer to a query may have that is told to the run that asked."""
NAMES = {"task_id": "task", "run_id": "run", "tool_access": "tools"}
"""Other words for fields, which agents use that asked elsewhere before."""
SECONDS = "timeout_sec"
OF_A_TASK = ("task", "payload", "key", "at", "timezone", "priority")


async def approved_action(
    office: RequestContext, run: Run, control: ControlRequest
) -> ApprovedAction:
    """Return what Rota does for a run, as it may be done for whoever approves it."""
    scope, decide = _DECIDING[control.action]
    check_scope(office.caller, scope)
    space = await office.store.read(find_space, run.space)
    inner = replace(office, caller=restrict_to_space(office.caller, space.name, space.role))
    try:
        return await decide(inner, run, _fields(control.payload))
    except Refused as fault:
        return ApprovedAction(
            known=json.dumps({"ok": False, **fault_record(fault)}, ensure_ascii=False)
        )


async def _run_of_task(office: RequestContext, run: Run, said: dict[str, Any]) -> ApprovedAction:  # noqa: ARG001
    for name in said:
        if name not in OF_A_TASK:
            raise Invalid("payload", name, f"name a task, and if wanted {', '.join(OF_A_TASK[1:])}")
    return ApprovedAction(queues=await make_batch(office, _read(CreateRun, {"task": None, **said})))


async def _run_of_agent(office: RequestContext, run: Run, said: dict[str, Any]) -> ApprovedAction:  # noqa: ARG001
    return ApprovedAction(queues=await make_batch(office, _read(CreateRun, {"agent": said})))


async def _end(office: RequestContext, run: Run, said: dict[str, Any]) -> ApprovedAction:
    store, asked = office.store, _read(RunSelector, said)
    found = await lookup.find_run(store, office.caller, asked.run)
    why = f"cancelled by {office.caller.name}, as run {run.id} asked"
    return ApprovedAction(ends=await runs.end_of(store, found, why, office.app.chance))


async def _query(office: RequestContext, run: Run, said: dict[str, Any]) -> ApprovedAction:  # noqa: ARG001
    return ApprovedAction(known=_told(await ask_sql(office, _read(SqlInput, said))))


_Deciding = Callable[[RequestContext, Run, dict[str, Any]], Awaitable[ApprovedAction]]
_DECIDING: dict[ControlAction, tuple[KeyScope, _Deciding]] = {
    ControlAction.ENQUEUE_TASK: (KeyScope.RUN, _run_of_task),
    ControlAction.ENQUEUE_AGENTIC_TASK: (KeyScope.RUN, _run_of_agent),
    ControlAction.KILL_TASK_RUN: (KeyScope.RUN, _end),
    ControlAction.QUERY_CENTRAL_DB: (KeyScope.SQL, _query),
}


def _fields(payload: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent has written
    """Return what an action is about, in the words of the commands."""
    if not isinstance(payload, dict):
        raise Invalid("payload", payload, "give an object with what the action is about")
    told: dict[str, Any] = payload
    said = {NAMES.get(name, name): value for name, value in told.items()}
    if SECONDS in said:
        said["timeout"] = f"{said.pop(SECONDS)}s"
    if isinstance(said.get("task"), int):
        said["task"] = str(said["task"])
    return said


def _read(takes: type[Model], said: dict[str, Any]) -> Model:
    try:
        return takes.model_validate_json(json.dumps(said), strict=True)
    except ValidationError as fault:
        raise validation_error(fault) from None


def _told(found: SqlResponse) -> str:
    """Return a table as JSON; rows that are too much are left off, and it says so."""
    rows = found.rows
    while True:
        truncated = found.truncated or len(rows) < len(found.rows)
        record = {"ok": True, "columns": found.columns, "rows": rows, "truncated": truncated}
        text = json.dumps(record, ensure_ascii=False)
        if len(text.encode()) <= LONGEST_OUTCOME:
            return text
        if not rows:
            raise SqlRefused("the names of the columns are too long: name them shorter")
        rows = rows[: len(rows) // 2]


MAX_NAME = 4_096


class ArtifactSelector(RunSelector):
    """One file of a run; its name may have folders in it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]


class ArtifactResponse(ResponseModel):
    """A file that a run has left behind."""

    name: str
    size: int
    modified_at: datetime


class ArtifactListResponse(ResponseModel):
    """Files, by name.

    `left_out` counts what is no plain file with a name of its own, such as links and pipes; `more`
    says that there is more than is told.
    """

    artifacts: list[ArtifactResponse]
    left_out: int
    more: bool


@command("GET", "/v1/runs/{run}/artifacts", KeyScope.READ)
async def list_artifacts(office: RequestContext, asked: RunSelector) -> ArtifactListResponse:
    """List the files that a run has left on the machine that answers."""
    run = await find_run(office.store, office.caller, asked.run)
    found = ArtifactList()
    if office.app.artifacts is not None:
        found = await asyncio.to_thread(office.app.artifacts.list_artifacts, run.space, run.id)
    given = [ArtifactResponse.from_model(artifact) for artifact in found.files]
    return ArtifactListResponse(artifacts=given, left_out=found.left_out, more=found.more)


async def open_artifact(office: RequestContext, asked: ArtifactSelector) -> OpenArtifact:
    """Give the bytes of one file that a run has left.

    The answer is `application/octet-stream` and an attachment, at most 1 GiB.
    """
    check_scope(office.caller, KeyScope.READ)
    run = await find_run(office.store, office.caller, asked.run)
    if office.app.artifacts is None:
        raise NotFound("artifact", asked.name)
    return await asyncio.to_thread(office.app.artifacts.open, run.space, run.id, asked.name)

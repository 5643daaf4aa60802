"""Runs, one-off work, approved actions and artifacts.

An approved action is executed with the rights that both the run's space and the approving caller
have. If the caller may not do it, the approval is refused and the question stays open. If it fails,
the error is the outcome that the run gets.
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
from rota.commands.errors import error_record
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
    parse_length,
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
    """A one-off run of an agent."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    agent: Word | None = None
    model_tier: Tier | None = Field(
        default=None, description="Model of the agent, by its tier in the settings."
    )
    tools: list[Word] | None = Field(default=None, max_length=1_000)
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class OneOffScriptInput(RequestModel):
    """A one-off run of a program."""

    command: list[Text] = Field(min_length=1, max_length=1_000)
    shell: bool = Field(default=False, description="Run the command in a shell, as one line.")
    output: OutputFormat | None = None
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class CreateRun(RequestModel):
    """A run of a task, or a one-off run: exactly one of task, agent and script."""

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
            message = f"give exactly one of {', '.join(ONE_OF)}"
            raise ValueError(message)
        return self


async def make_batch(context: RequestContext, request: CreateRun) -> RunBatch:
    """Return the requested run, to be queued."""
    store = context.store
    at = await _start(context, request)
    if request.task is not None:
        task = await resolve_task(context, request.task, request.space)
        payload = request.payload
    else:
        space = resolve_space(context, request.space)
        kind = TaskKind.AGENT if request.agent is not None else TaskKind.SCRIPT
        task = await tasks.task_for(store, context.caller, kind, space)
        payload = _one_off_record(context, request)
    template = runs.make_template(task, RunSource.ENQUEUE, store.now(), at, request.priority)
    return runs.batch_of(template, payload, request.key)


async def _start(context: RequestContext, request: CreateRun) -> datetime | None:
    if request.at is None:
        return None
    home = (await context.store.read(find_space, resolve_space(context, request.space))).timezone
    now = from_micros(context.store.now())
    return parse_instant(request.at, request.timezone or home, now, "at")


def _one_off_record(context: RequestContext, request: CreateRun) -> dict[str, Any]:
    fields = request.agent or request.script
    record = {} if fields is None else fields.model_dump(exclude_none=True)
    if fields is not None and fields.timeout is not None:
        span = parse_length(fields.timeout, "timeout")
        record["timeout"] = None if span is None else span.total_seconds()
    if request.script is not None:
        check_script(record)
    if request.payload is not None:
        record["payload"] = request.payload
    return (
        resolve_agent(context.app.plugins.agents, TaskKind.AGENT, record)
        if request.agent
        else record
    )


QUEUING = (enqueue, requeue_reader)
"""The store operations that queue a requested run."""
ActionHash = Annotated[
    str,
    TextFormat(
        r"[0-9a-f]{64}",
        "use the 64 hexadecimal digits that `rota questions` shows, such as 9f86d081…",
    ),
]


class RunsQuery(RequestModel):
    """Filter for runs."""

    task: TaskRef | None = None
    space: SpaceName | None = None
    state: RunState | None = None
    before: Id | None = None
    limit: Limit = 50
    suppressed: bool = Field(default=False, description="Include runs whose gate found no work.")


class RunList(ResponseModel):
    """Runs, newest first; `next` continues the list as `before`."""

    runs: list[RunResponse]
    next: int | None


class QueuedRunResponse(ResponseModel):
    """A queued run; `created` is false if a run with the key existed already."""

    run: Annotated[int, From("run_id")]
    created: bool


class RetriedRunResponse(QueuedRunResponse):
    """The retry of a failed run."""

    retried: int


class RunDetailResponse(RunResponse):
    """A run with all details; `trace_id` identifies it in logs."""

    trace_id: str
    attempts: list[AttemptResponse]
    events: list[EventResponse]
    logs: list[OutputResponse]
    deliveries: list[DeliveryResponse]
    questions: list[QuestionResponse]
    heartbeat: HeartbeatResponse | None


class AnsweredRunResponse(RunResponse):
    """A run after an answer; `outcome` is the result of an approved action of Rota.

    `then` is what happens to the run if the answer ends it.
    """

    outcome: Json = None
    then: str | None = None


class OpenQuestionResponse(ResponseModel):
    """An open question, with its run."""

    question: QuestionResponse
    run: RunResponse


class OpenQuestionList(ResponseModel):
    """Open questions, oldest first."""

    questions: list[OpenQuestionResponse]


class AnswerInput(RunSelector):
    """An answer to a question of a run, by default to the newest."""

    answer: Annotated[Text, StringConstraints(min_length=1, max_length=runs.MAX_ANSWER)]
    question: Id | None = None
    action_hash: ActionHash | None = Field(
        default=None, description="Hash of the action; required for approvals."
    )


@command("GET", "/v1/runs", KeyScope.READ)
async def list_runs(context: RequestContext, request: RunsQuery) -> RunList:
    """List runs, newest first."""
    name, space = request.task, request.space
    if name is not None:
        task = await resolve_task(context, name, space)
        name, space = task.name, task.space
    found = await find_runs(
        context.store,
        context.caller,
        task=name,
        space=space,
        state=request.state,
        before=None if request.before is None else RunId(request.before),
        limit=request.limit,
        suppressed=request.suppressed,
    )
    more = found[-1].id if len(found) == request.limit else None
    return RunList(runs=[RunResponse.from_model(run) for run in found], next=more)


@command("GET", "/v1/questions", KeyScope.READ)
async def list_open_questions(context: RequestContext, request: RequestModel) -> OpenQuestionList:  # noqa: ARG001
    """List open questions with their runs."""
    found = await open_questions(context.store, context.caller)
    return OpenQuestionList(
        questions=[
            OpenQuestionResponse(
                question=QuestionResponse.from_model(q), run=RunResponse.from_model(run)
            )
            for q, run in found
        ]
    )


@command("POST", "/v1/runs", KeyScope.RUN, status=201)
async def create_run(context: RequestContext, request: CreateRun) -> QueuedRunResponse:
    """Queue a run; with a key, at most one."""
    record_queued(context, request.key)
    ((done,),) = await runs.queue(context.store, [await make_batch(context, request)])
    return QueuedRunResponse.from_model(done)


@command("GET", "/v1/runs/{run}", KeyScope.READ)
async def show_run(context: RequestContext, request: RunSelector) -> RunDetailResponse:
    """Return a run with its attempts, events, deliveries, questions and latest output."""
    view = await view_run(context.store, context.caller, request.run)
    return RunDetailResponse.from_model(
        view.run,
        trace_id=trace_id(context.store.database.incarnation, view.run.id),
        attempts=[AttemptResponse.from_model(attempt) for attempt in view.attempts],
        events=[EventResponse.from_model(event) for event in view.events],
        logs=[OutputResponse.from_model(event) for event in view.output],
        deliveries=[DeliveryResponse.from_model(delivery) for delivery in view.deliveries],
        questions=[QuestionResponse.from_model(question) for question in view.questions],
        heartbeat=None if view.heartbeat is None else HeartbeatResponse.from_model(view.heartbeat),
    )


@command("POST", "/v1/runs/{run}/cancel", KeyScope.RUN)
async def cancel_run(context: RequestContext, request: RunSelector) -> RunResponse:
    """Cancel a run, or ask its worker to stop it."""
    store, caller = context.store, context.caller

    async def cancelled(within: RequestContext, _: object) -> RunResponse | None:
        run = await lookup.find_run(within.store, caller, request.run)
        over = run.state in FINISHED or run.cancel_requested_at is not None
        return RunResponse.from_model(run) if over else None

    context.record_with(cancelled, settle, request_cancel)
    return RunResponse.from_model(
        await runs.cancel_run(store, caller, request.run, context.app.chance)
    )


@command("POST", "/v1/runs/{run}/retry", KeyScope.RUN, status=201)
async def retry_run(context: RequestContext, request: RunSelector) -> QueuedRunResponse:
    """Queue a new run with the input of a finished one."""
    record_queued(context)
    return QueuedRunResponse.from_model(
        await runs.run_again(context.store, context.caller, request.run)
    )


@command("POST", "/v1/tasks/{task}/retry", KeyScope.RUN, status=201)
async def retry_task(context: RequestContext, request: TaskSelector) -> RetriedRunResponse:
    """Queue a new run with the input of the newest failed run of a task."""
    task = await resolve_task(context, request.task, request.space)
    query = RunFilter(task_id=task.id, state=RunState.FAILED, limit=1)
    failed = await context.store.read(store_views.list_runs, query)
    if not failed:
        raise NotFound("failed run", task.name, f"see `rota runs --task {task.name}`")
    retried = partial(_retried, failed[0].id)
    record_queued(context, shape=retried)
    return retried(await runs.run_again(context.store, context.caller, failed[0].id))


@command("POST", "/v1/runs/{run}/answer", KeyScope.RUN)
async def answer_run(context: RequestContext, request: AnswerInput) -> AnsweredRunResponse:
    """Answer a question of a run, which continues from the queue.

    An approved action of Rota is executed with the answer, once, or refused.
    """
    store, caller = context.store, context.caller
    run = await lookup.find_run(store, caller, request.run)
    known = await store.read(list_questions, [run.id])
    if request.question is not None:
        known = [question for question in known if question.id == request.question]
        if not known:
            raise NotFound("question", request.question, f"see `rota run {run.id}`")
    if not known:
        raise IllegalMove(run.state, "be answered: it has no question")
    newest, seen, decide = known[-1].id, request.action_hash, partial(approved_action, context)

    async def taken(within: RequestContext, done: object) -> AnsweredRunResponse | None:
        refused = done is None or done == [False]
        return None if refused else await _answered(within, known[-1], request.answer)

    context.record_with(taken, settle, approve)
    await runs.answer_question(store, caller, newest, request.answer, seen, decide)
    return await _answered(context, known[-1], request.answer)


async def _answered(
    context: RequestContext, question: Question, answer: str
) -> AnsweredRunResponse:
    store = context.store
    run = await lookup.find_run(store, context.caller, question.run_id)
    answered = await store.read(get_question, question.id)
    outcome = None if answered is None or answered.outcome is None else json.loads(answered.outcome)
    then = ended_by_answer(answer, question.epoch, await store.read(usage_of_run, run.id))
    return AnsweredRunResponse.from_model(run, outcome=outcome, then=then)


def _retried(retried: int, done: Enqueued) -> RetriedRunResponse:
    return RetriedRunResponse.from_model(done, retried=retried)


def record_queued(
    context: RequestContext,
    key: str | None = None,
    shape: Callable[[Enqueued], QueuedRunResponse] = QueuedRunResponse.from_model,
) -> None:
    """Record the response with the run; refuse a key that another run has."""

    def queued(outcomes: list[list[Enqueued]]) -> QueuedRunResponse:
        ((done,),) = outcomes
        runs.check_conflict(key, done)
        return shape(done)

    def read_again(run_id: RunId | None) -> QueuedRunResponse | None:
        return None if run_id is None else shape(Enqueued(run_id=run_id))

    context.record(lambda done: (queued if isinstance(done, list) else read_again)(done), *QUEUING)


Model = TypeVar("Model", bound=BaseModel)

MAX_OUTCOME = 32 * 1024
"""Maximum size in bytes of a query result that a run gets."""
FIELD_NAMES = {"task_id": "task", "run_id": "run", "tool_access": "tools"}
"""Fields by the names that some agents use for them."""
SECONDS_FIELD = "timeout_sec"
OF_A_TASK = ("task", "payload", "key", "at", "timezone", "priority")


async def approved_action(
    context: RequestContext, run: Run, control: ControlRequest
) -> ApprovedAction:
    """Return the approved action of a run, checked against the rights of the caller."""
    scope, decide = _ACTIONS[control.action]
    check_scope(context.caller, scope)
    space = await context.store.read(find_space, run.space)
    inner = replace(context, caller=restrict_to_space(context.caller, space.name, space.role))
    try:
        return await decide(inner, run, _command_fields(control.payload))
    except Refused as error:
        return ApprovedAction(
            known=json.dumps({"ok": False, **error_record(error)}, ensure_ascii=False)
        )


async def _run_of_task(context: RequestContext, _: Run, fields: dict[str, Any]) -> ApprovedAction:
    for name in fields:
        if name not in OF_A_TASK:
            raise Invalid(
                "payload", name, f"give a task, and optionally {', '.join(OF_A_TASK[1:])}"
            )
    return ApprovedAction(
        queues=await make_batch(context, _read(CreateRun, {"task": None, **fields}))
    )


async def _run_of_agent(context: RequestContext, _: Run, fields: dict[str, Any]) -> ApprovedAction:
    return ApprovedAction(queues=await make_batch(context, _read(CreateRun, {"agent": fields})))


async def _end(context: RequestContext, run: Run, fields: dict[str, Any]) -> ApprovedAction:
    store, request = context.store, _read(RunSelector, fields)
    found = await lookup.find_run(store, context.caller, request.run)
    why = f"cancelled by {context.caller.name}, as requested by run {run.id}"
    return ApprovedAction(ends=await runs.end_of(store, found, why, context.app.chance))


async def _query(context: RequestContext, _: Run, fields: dict[str, Any]) -> ApprovedAction:
    return ApprovedAction(known=_query_outcome(await ask_sql(context, _read(SqlInput, fields))))


_Action = Callable[[RequestContext, Run, dict[str, Any]], Awaitable[ApprovedAction]]
_ACTIONS: dict[ControlAction, tuple[KeyScope, _Action]] = {
    ControlAction.ENQUEUE_TASK: (KeyScope.RUN, _run_of_task),
    ControlAction.ENQUEUE_AGENTIC_TASK: (KeyScope.RUN, _run_of_agent),
    ControlAction.KILL_TASK_RUN: (KeyScope.RUN, _end),
    ControlAction.QUERY_CENTRAL_DB: (KeyScope.SQL, _query),
}


def _command_fields(payload: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent has written
    """Return the payload of an action with the field names of the commands."""
    if not isinstance(payload, dict):
        raise Invalid("payload", payload, "give an object with the fields of the action")
    fields = {str(FIELD_NAMES.get(name, name)): value for name, value in payload.items()}
    if SECONDS_FIELD in fields:
        fields["timeout"] = f"{fields.pop(SECONDS_FIELD)}s"
    if isinstance(fields.get("task"), int):
        fields["task"] = str(fields["task"])
    return fields


def _read(takes: type[Model], fields: dict[str, Any]) -> Model:
    try:
        return takes.model_validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise validation_error(error) from None


def _query_outcome(found: SqlResponse) -> str:
    """Return a query result as JSON, truncated to the maximum size."""
    rows = found.rows
    while True:
        truncated = found.truncated or len(rows) < len(found.rows)
        record = {"ok": True, "columns": found.columns, "rows": rows, "truncated": truncated}
        text = json.dumps(record, ensure_ascii=False)
        if len(text.encode()) <= MAX_OUTCOME:
            return text
        if not rows:
            raise SqlRefused("the column names are too long: use shorter ones")
        rows = rows[: len(rows) // 2]


MAX_NAME = 4_096


class ArtifactSelector(RunSelector):
    """An artifact of a run; its name can contain folders."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]


class ArtifactResponse(ResponseModel):
    """An artifact of a run."""

    name: str
    size: int
    modified_at: datetime


class ArtifactListResponse(ResponseModel):
    """Artifacts, by name.

    `left_out` counts entries that are not regular files, such as links and pipes; `more` means that
    the list is incomplete.
    """

    artifacts: list[ArtifactResponse]
    left_out: int
    more: bool


@command("GET", "/v1/runs/{run}/artifacts", KeyScope.READ)
async def list_artifacts(context: RequestContext, request: RunSelector) -> ArtifactListResponse:
    """List the artifacts of a run on the daemon's machine."""
    run = await find_run(context.store, context.caller, request.run)
    found = ArtifactList()
    if context.app.artifacts is not None:
        found = await asyncio.to_thread(context.app.artifacts.list_artifacts, run.space, run.id)
    given = [ArtifactResponse.from_model(artifact) for artifact in found.files]
    return ArtifactListResponse(artifacts=given, left_out=found.left_out, more=found.more)


async def open_artifact(context: RequestContext, request: ArtifactSelector) -> OpenArtifact:
    """Return the content of an artifact.

    The response is an attachment of the type `application/octet-stream`, at most 1 GiB.
    """
    check_scope(context.caller, KeyScope.READ)
    run = await find_run(context.store, context.caller, request.run)
    if context.app.artifacts is None:
        raise NotFound("artifact", request.name)
    return await asyncio.to_thread(context.app.artifacts.open, run.space, run.id, request.name)

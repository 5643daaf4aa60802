"""Runs: queue, list, look at, cancel, retry, answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from rota.doors.commands.fields import (
    WHOLE,
    Id,
    Json,
    Limit,
    RunKey,
    SpaceName,
    Spelled,
    TaskRef,
    Text,
    Word,
)
from rota.doors.commands.finding import space_of, task_of
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
from rota.doors.commands.wishes import Length, Line, Zone, length
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.errors import IllegalMove, NotFound
from rota.flow.define import adhoc, runs
from rota.flow.define.agents import with_agent
from rota.flow.define.policies import HIGHEST_PRIORITY
from rota.flow.observe.moments import parse_instant
from rota.flow.observe.runs import list_runs as find_runs
from rota.flow.observe.runs import open_questions, view_run
from rota.model.ids import RunId
from rota.model.instants import from_micros
from rota.model.keys import KeyScope
from rota.model.states import RunState
from rota.model.tasks import TaskKind
from rota.model.views import RunFilter
from rota.model.wishes import Output
from rota.rules.programs import check_script

Tier = Literal["low", "medium", "high"]
ActionHash = Annotated[
    str,
    Spelled(
        r"[0-9a-f]{64}",
        "copy the 64 digits and letters that `rota questions` shows, such as 9f86d081…",
    ),
]
ONE_OF = ("task", "agent", "script")


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


class AgentAsked(Asked):
    """Work for an agent, in words."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    agent: Word | None = None
    model_tier: Tier | None = Field(
        default=None, description="A model that the settings name for the agent."
    )
    tools: list[Word] | None = Field(default=None, max_length=1_000)
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class ScriptAsked(Asked):
    """A program to be run."""

    command: list[Text] = Field(min_length=1, max_length=1_000)
    shell: bool = Field(default=False, description="The command is one line for a shell.")
    output: Output | None = None
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class NewRun(Asked):
    """A run of a task, or work that is done once: exactly one of task, agent and script."""

    task: TaskRef | None = None
    agent: AgentAsked | None = None
    script: ScriptAsked | None = None
    space: SpaceName | None = None
    payload: Json = None
    key: RunKey | None = None
    at: Line | None = None
    timezone: Zone | None = None
    priority: Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY), WHOLE] | None = None

    @model_validator(mode="after")
    def _one_work(self) -> NewRun:
        if len([name for name in ONE_OF if getattr(self, name) is not None]) != 1:
            message = f"say what to run: exactly one of {', '.join(ONE_OF)}"
            raise ValueError(message)
        return self


class RunQueued(Given):
    """A run that stands in the queue; `created` is false if it stood there already."""

    run: int
    created: bool


class TaskRetried(RunQueued):
    """A run that does again what another one failed at."""

    retried: int


class RunShown(RunGiven):
    """A run with everything that belongs to it."""

    attempts: list[AttemptGiven]
    events: list[EventGiven]
    logs: list[LogGiven]
    deliveries: list[DeliveryGiven]
    questions: list[QuestionGiven]
    heartbeat: HeartbeatGiven | None


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
    store = office.store
    at = await _start(office, asked)
    if asked.task is not None:
        task = await task_of(office, asked.task, asked.space)
        payload = asked.payload
    else:
        space = space_of(office, asked.space)
        kind = TaskKind.AGENT if asked.agent is not None else TaskKind.SCRIPT
        task = await adhoc.task_for(store, office.caller, kind, space)
        payload = _errand(office, asked)
    done = await runs.enqueue(store, task, payload, key=asked.key, at=at, priority=asked.priority)
    return RunQueued(run=done.run_id, created=done.created)


@command("GET", "/v1/runs/{run}", KeyScope.READ)
async def show_run(office: Office, asked: OneRun) -> RunShown:
    """Return a run with its attempts, events, messages, questions and the end of its output."""
    view = await view_run(office.store, office.caller, asked.run)
    return RunShown(
        **dict(run_given(view.run)),
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
    return run_given(await runs.cancel_run(store, caller, asked.run, office.chance))


@command("POST", "/v1/runs/{run}/retry", KeyScope.RUN, status=201)
async def retry_run(office: Office, asked: OneRun) -> RunQueued:
    """Queue a new run with what a finished one was given."""
    done = await runs.run_again(office.store, office.caller, asked.run)
    return RunQueued(run=done.run_id, created=done.created)


@command("POST", "/v1/tasks/{task}/retry", KeyScope.RUN, status=201)
async def retry_task(office: Office, asked: OneTask) -> TaskRetried:
    """Queue a new run with what the newest failed run of a task was given."""
    task = await task_of(office, asked.task, asked.space)
    wanted = RunFilter(task_id=task.id, state=RunState.FAILED, limit=1)
    failed = await office.store.list_runs(wanted)
    if not failed:
        raise NotFound("failed run", task.name, f"see `rota runs --task {task.name}`")
    done = await runs.run_again(office.store, office.caller, failed[0].id)
    return TaskRetried(run=done.run_id, created=done.created, retried=failed[0].id)


@command("POST", "/v1/runs/{run}/answer", KeyScope.RUN)
async def answer_run(office: Office, asked: Answered) -> RunGiven:
    """Give a question its one answer; the run goes on in the queue."""
    store, caller = office.store, office.caller
    run = await runs.find_run(store, caller, asked.run)
    known = await store.list_questions([run.id])
    if asked.question is not None:
        known = [question for question in known if question.id == asked.question]
        if not known:
            raise NotFound("question", asked.question, f"see `rota run {run.id}`")
    if not known:
        raise IllegalMove(run.state, "be answered: it has asked nothing")
    newest = known[-1].id
    seen = asked.action_hash
    return run_given(await runs.answer_question(store, caller, newest, asked.answer, seen))


async def _start(office: Office, asked: NewRun) -> datetime | None:
    if asked.at is None:
        return None
    home = (await office.store.find_space(space_of(office, asked.space))).timezone
    now = from_micros(office.store.now())
    return parse_instant(asked.at, asked.timezone or home, now, "at")


def _errand(office: Office, asked: NewRun) -> dict[str, Any]:
    said = asked.agent or asked.script
    record = {} if said is None else said.model_dump(exclude_none=True)
    if said is not None and said.timeout is not None:
        span = length(said.timeout, "timeout")
        record["timeout"] = None if span is None else span.total_seconds()
    if asked.script is not None:
        check_script(record)
    if asked.payload is not None:
        record["payload"] = asked.payload
    return with_agent(office.agents, TaskKind.AGENT, record) if asked.agent else record

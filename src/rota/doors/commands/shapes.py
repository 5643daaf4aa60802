"""Values as they go over a wire: stable names, ISO 8601 instants, lengths in seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from rota.doors.commands.fields import Id, Json, SpaceName, TaskRef
from rota.errors import RotaError
from rota.model.codec import to_json
from rota.model.deliveries import Delivery, DeliveryState
from rota.model.events import Event, EventName
from rota.model.instants import to_micros
from rota.model.plans import ScheduleState, StoredSchedule
from rota.model.runs import Attempt, Cause, Question, Run, Source
from rota.model.schedules import RuleKind
from rota.model.spaces import Role, Space
from rota.model.states import Place, RunState
from rota.model.tasks import AfterOn, Policy, Pool, Task, TaskKind
from rota.timing.rules import from_record
from rota.timing.words import describe


class Asked(BaseModel):
    """A request; unknown fields are refused, and numbers are not read from words."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Given(BaseModel):
    """An answer; the functions below make it of values that are right already."""

    model_config = ConfigDict(frozen=True)


class Nothing(Asked):
    """A request that needs no words."""


class OneTask(Asked):
    """One task, by id or by name; a name with a slash is found by its id only."""

    task: TaskRef
    space: SpaceName | None = None


class OneRun(Asked):
    """One run."""

    run: Id


class SpaceGiven(Given):
    """A person's or group's own corner."""

    name: str
    role: Role
    timezone: str
    created_at: datetime


class ScheduleGiven(Given):
    """When a task runs."""

    id: int
    name: str
    task: str
    task_id: int
    space: str
    kind: RuleKind | None
    words: str
    timezone: str
    state: ScheduleState
    note: str | None
    next_at: datetime | None
    version: int
    rule: dict[str, Any]


class AfterGiven(Given):
    """The task that a task follows."""

    task: str
    on: AfterOn


class TaskGiven(Given):
    """What to do, when, and under which rules."""

    id: int
    name: str
    space: str
    thread: str | None
    title: str
    kind: TaskKind
    route: str
    instructions: str | None
    call: str | None
    state: Literal["enabled", "disabled", "paused"]
    paused_until: datetime | None
    disabled_reason: str | None
    failures: int
    origin: str
    after: AfterGiven | None
    policy: dict[str, Any]
    schedules: list[ScheduleGiven]
    created_at: datetime
    updated_at: datetime

    def etag(self) -> str:
        """Return what changes whenever the task or one of its schedules does."""
        parts = [to_micros(self.updated_at), *(s.version for s in self.schedules)]
        return f'"{self.id}-{"-".join(format(part, "x") for part in parts)}"'


class RunGiven(Given):
    """The work for one slot, message, trigger or call."""

    id: int
    task: str
    task_id: int
    space: str
    state: RunState
    place: Place | None
    source: Source
    pool: Pool
    priority: int
    route: str
    attempt: int
    cause: Cause
    retries: int
    losses: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    cancel_requested_at: datetime | None
    stuck: bool
    slot_at: datetime | None
    slot_key: str | None
    upstream: int | None
    key: str | None
    payload: Json
    result: Json
    error_code: str | None
    error: str | None


class AttemptGiven(Given):
    """One try at a run, ended."""

    number: int
    cause: Cause
    worker: str | None
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None


class QuestionGiven(Given):
    """What a run waits to be told."""

    id: int
    run: int
    kind: Literal["ask", "lost"]
    question: str
    context: str
    options: list[str]
    asked_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    answer: str | None
    answered_by: str | None


class EventGiven(Given):
    """One recorded fact."""

    id: int
    at: datetime
    name: EventName
    task_id: int | None
    run: int | None
    data: dict[str, Any]


class DeliveryGiven(Given):
    """A message in the outbox."""

    id: int
    run: int | None
    channel: str
    target: str
    body: str
    state: DeliveryState
    tries: int
    created_at: datetime
    sent_at: datetime | None
    error: str | None


def space_given(space: Space) -> SpaceGiven:
    """Return a space as it goes over a wire."""
    return SpaceGiven.model_construct(
        name=space.name,
        role=space.role,
        timezone=space.timezone,
        created_at=space.created_at,
    )


class _Told(NamedTuple):
    record: dict[str, Any]
    kind: RuleKind | None
    words: str


@lru_cache(maxsize=10_000)
def _told(rule: str) -> _Told:
    """Return what a stored rule says, and says in words; many schedules share one."""
    record = json.loads(rule)
    try:
        read = from_record(record)
        return _Told(record, read.kind, describe(read))
    except RotaError as fault:  # set aside by the planner; the rest of the answer still stands
        return _Told(record, None, f"cannot be read: {fault}")


@lru_cache(maxsize=1_000)
def _policy(policy: Policy) -> dict[str, Any]:
    record = to_json(policy)
    return record if isinstance(record, dict) else {}


def schedule_given(schedule: StoredSchedule) -> ScheduleGiven:
    """Return a schedule with its rule, and the rule in words."""
    record, kind, words = _told(schedule.rule)
    return ScheduleGiven.model_construct(
        id=schedule.id,
        name=schedule.name,
        task=schedule.task,
        task_id=schedule.task_id,
        space=schedule.space,
        kind=kind,
        words=words,
        timezone=str(record.get("timezone", "UTC")),
        state=schedule.state,
        note=schedule.note,
        next_at=schedule.next_at,
        version=schedule.version,
        rule=record,
    )


def task_given(task: Task, schedules: Sequence[StoredSchedule], now: datetime) -> TaskGiven:
    """Return a task with its schedules."""
    paused = task.paused_until is not None and task.paused_until > now
    after = (
        None
        if task.after is None
        else AfterGiven.model_construct(task=task.after.task, on=task.after.on)
    )
    return TaskGiven.model_construct(
        id=task.id,
        name=task.name,
        space=task.space,
        thread=task.thread,
        title=task.title,
        kind=task.kind,
        route=task.route,
        instructions=_text(task.spec.get("instructions")),
        call=_text(task.spec.get("call")),
        state="disabled" if not task.enabled else "paused" if paused else "enabled",
        paused_until=task.paused_until,
        disabled_reason=task.disabled_reason,
        failures=task.failures,
        origin=task.origin,
        after=after,
        policy=_policy(task.policy),
        schedules=[schedule_given(schedule) for schedule in schedules],
        created_at=task.created_at,
        updated_at=task.updated_at,
    )


def run_given(run: Run) -> RunGiven:
    """Return a run as it goes over a wire."""
    return RunGiven.model_construct(
        id=run.id,
        task=run.task,
        task_id=run.task_id,
        space=run.space,
        state=run.state,
        place=run.place,
        source=run.source,
        pool=run.pool,
        priority=run.priority,
        route=run.route,
        attempt=run.epoch,
        cause=run.cause,
        retries=run.retries,
        losses=run.losses,
        created_at=run.created_at,
        available_at=run.available_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        expires_at=run.expires_at,
        cancel_requested_at=run.cancel_requested_at,
        stuck=run.stuck,
        slot_at=run.slot_at,
        slot_key=run.slot_key,
        upstream=run.upstream_id,
        key=run.key,
        payload=json.loads(run.payload),
        result=None if run.result is None else json.loads(run.result),
        error_code=run.error_code,
        error=run.error,
    )


def attempt_given(attempt: Attempt) -> AttemptGiven:
    """Return an attempt as it goes over a wire."""
    return AttemptGiven.model_construct(
        number=attempt.number,
        cause=attempt.cause,
        worker=attempt.worker,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        error=attempt.error,
    )


def question_given(question: Question) -> QuestionGiven:
    """Return a question as it goes over a wire."""
    return QuestionGiven.model_construct(
        id=question.id,
        run=question.run_id,
        kind="lost" if question.kind == "lost" else "ask",
        question=question.question,
        context=question.context,
        options=list(question.options),
        asked_at=question.asked_at,
        expires_at=question.expires_at,
        answered_at=question.answered_at,
        answer=question.answer,
        answered_by=question.answered_by,
    )


def event_given(event: Event) -> EventGiven:
    """Return an event as it goes over a wire."""
    return EventGiven.model_construct(
        id=event.id,
        at=event.at,
        name=event.name,
        task_id=event.task_id,
        run=event.run_id,
        data=event.data,
    )


def delivery_given(delivery: Delivery) -> DeliveryGiven:
    """Return a delivery as it goes over a wire."""
    return DeliveryGiven.model_construct(
        id=delivery.id,
        run=delivery.run_id,
        channel=delivery.channel,
        target=delivery.target,
        body=delivery.body,
        state=delivery.state,
        tries=delivery.tries,
        created_at=delivery.created_at,
        sent_at=delivery.sent_at,
        error=delivery.error,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

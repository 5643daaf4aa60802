"""Base models of requests and responses, and the responses that commands share."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from rota.commands.fields import Id, Json, SpaceName, TaskRef
from rota.flow.observe.views import check_state_of
from rota.model.checks import CheckState, SuppressionReason
from rota.model.events import Event, EventName
from rota.model.heartbeats import Heartbeat
from rota.model.notifications import Delivery, DeliveryKind, DeliveryState, MailFields
from rota.model.runs import (
    AttemptCause,
    EndedAttempt,
    Question,
    QueueState,
    Run,
    RunSource,
    RunState,
)
from rota.model.spaces import Space, SpaceRole
from rota.model.tasks import Pool


class RequestModel(BaseModel):
    """A request; unknown fields are refused, and numbers are not read from words."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """An answer; the functions below make it of values that are right already."""

    model_config = ConfigDict(frozen=True)


class EmptyRequest(RequestModel):
    """A request that needs no words."""


class TaskSelector(RequestModel):
    """One task, by id or by name; a name with a slash is found by its id only."""

    task: TaskRef
    space: SpaceName | None = None


class RunSelector(RequestModel):
    """One run."""

    run: Id


class SpaceResponse(ResponseModel):
    """A person's or group's own corner."""

    name: str
    role: SpaceRole
    timezone: str
    created_at: datetime


class RunResponse(ResponseModel):
    """The work for one slot, message, trigger or call.

    `check_state` says of one that ended whether its task's checks hold; `suppressed` why nobody was
    told of a success: its gate found no work (`by_gate`), or its result said so (`by_result`).
    `took_seconds` is how long its newest attempt worked, once that is over; `finished_at` may be
    later, where nobody was there to hear of its end.
    """

    id: int
    task: str
    task_id: int
    space: str
    state: RunState
    queue_state: QueueState | None
    source: RunSource
    pool: Pool
    priority: int
    route: str
    attempt: int
    cause: AttemptCause
    retries: int
    losses: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    took_seconds: float | None
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
    check_state: CheckState | None
    suppressed: SuppressionReason | None


class AttemptResponse(ResponseModel):
    """One try at a run, ended; `exit` tells how its processes ended, where it had any.

    Its `reason` says what ended them, `killed` that it took force, `proven` that none is left.
    `check_results` is what its task's checks found: the check, whether it passed, and the evidence.
    """

    number: int
    cause: AttemptCause
    worker: str | None
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None
    exit: dict[str, Any] | None
    check_results: list[dict[str, Any]] | None


class HeartbeatResponse(ResponseModel):
    """The newest sample of the newest attempt; `missed_reason` says why no newer one came.

    `memory_bytes` counts shared memory for each process.
    """

    at: datetime
    attempt: int
    alive: bool
    state: str
    pid: int | None
    processes: int | None
    cpu_seconds: float | None
    memory_bytes: int | None
    output_at: datetime | None
    last_line: str | None
    pane: str | None
    missed_reason: str | None


class QuestionResponse(ResponseModel):
    """What a run waits to be told, or was told.

    An approval shows its whole `action`; `default` is what counts when nobody answers in time;
    `outcome` is what came of an action that Rota did itself.
    """

    id: int
    run: int
    attempt: int
    kind: Literal["ask", "approval", "lost"]
    question: str
    context: str
    options: list[str]
    asked_at: datetime
    expires_at: datetime
    answered_at: datetime | None
    answer: str | None
    answered_by: str | None
    default: str | None
    action: str | None
    action_hash: str | None
    outcome: Json = None


class EventResponse(ResponseModel):
    """One recorded fact."""

    id: int
    at: datetime
    name: EventName
    task_id: int | None
    run: int | None
    data: dict[str, Any]


class OutputResponse(ResponseModel):
    """A part of what a run's program wrote, from an offset in its stream on.

    `ansi` is the text with its colours, for terminals, where it has any. The line of an `open` one
    was not whole yet, and one that `continues` goes on with the line of the one before.
    """

    id: int
    at: datetime
    stream: Literal["out", "err"]
    offset: int
    text: str
    ansi: str | None
    open: bool
    continues: bool


class MailResponse(ResponseModel):
    """What a mail has beside its body; the ids are of what it answers, the oldest first."""

    subject: str
    format: Literal["plain", "html"]
    in_reply_to: str | None
    references: list[str]


class AttachmentResponse(ResponseModel):
    """A file that goes with a message, as it was when it was enclosed."""

    name: str
    size: int
    sha256: str


class DeliveryResponse(ResponseModel):
    """A message in the outbox."""

    id: int
    run: int | None
    channel: str
    target: str
    body: str
    kind: DeliveryKind
    mail: MailResponse | None
    attachments: list[AttachmentResponse]
    state: DeliveryState
    tries: int
    created_at: datetime
    sent_at: datetime | None
    error: str | None


def space_given(space: Space) -> SpaceResponse:
    """Return a space as it goes over a wire."""
    return SpaceResponse.model_construct(
        name=space.name,
        role=space.role,
        timezone=space.timezone,
        created_at=space.created_at,
    )


def run_given(run: Run) -> RunResponse:
    """Return a run as it goes over a wire."""
    return RunResponse.model_construct(
        id=run.id,
        task=run.task,
        task_id=run.task_id,
        space=run.space,
        state=run.state,
        place=run.queue_state,
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
        took_seconds=None if run.took is None else run.took.total_seconds(),
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
        checked=check_state_of(run),
        mark=run.suppressed,
    )


def attempt_given(attempt: EndedAttempt) -> AttemptResponse:
    """Return an attempt as it goes over a wire."""
    return AttemptResponse.model_construct(
        number=attempt.epoch,
        cause=attempt.cause,
        worker=attempt.worker_id,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        outcome=attempt.outcome,
        error=attempt.error,
        ending=attempt.exit,
        checks=attempt.check_results,
    )


def heartbeat_given(heard: Heartbeat) -> HeartbeatResponse:
    """Return a heartbeat as it goes over a wire."""
    sign = heard.sample
    return HeartbeatResponse.model_construct(
        at=heard.at,
        attempt=sign.epoch,
        alive=sign.alive,
        state=sign.state,
        pid=sign.pid,
        processes=sign.processes,
        cpu_seconds=sign.cpu_seconds,
        memory_bytes=sign.memory_bytes,
        output_at=sign.output_at,
        last_line=sign.last_line,
        pane=sign.pane,
        silence=heard.missed_reason,
    )


def question_given(question: Question) -> QuestionResponse:
    """Return a question as it goes over a wire."""
    return QuestionResponse.model_construct(
        id=question.id,
        run=question.run_id,
        attempt=question.epoch,
        kind=question.kind,
        question=question.question,
        context=question.context,
        options=list(question.options),
        asked_at=question.asked_at,
        expires_at=question.expires_at,
        answered_at=question.answered_at,
        answer=question.answer,
        answered_by=question.answered_by,
        default=question.default,
        action=question.action,
        action_hash=question.digest,
        outcome=None if question.outcome is None else json.loads(question.outcome),
    )


def event_given(event: Event) -> EventResponse:
    """Return an event as it goes over a wire."""
    return EventResponse.model_construct(
        id=event.id,
        at=event.at,
        name=event.name,
        task_id=event.task_id,
        run=event.run_id,
        data=event.data,
    )


def log_given(event: Event) -> OutputResponse:
    """Return what a program wrote as it goes over a wire."""
    return OutputResponse.model_construct(
        id=event.id,
        at=event.at,
        stream=event.data["stream"],
        offset=event.data["at"],
        text=event.data["text"],
        ansi=event.data.get("ansi"),
        open=event.data.get("open", False),
        continues=event.data.get("continues", False),
    )


def delivery_given(delivery: Delivery) -> DeliveryResponse:
    """Return a delivery as it goes over a wire."""
    return DeliveryResponse.model_construct(
        id=delivery.id,
        run=delivery.run_id,
        channel=delivery.channel,
        target=delivery.target,
        body=delivery.body,
        kind=delivery.kind,
        mail=None if delivery.mail is None else _mail_given(delivery.mail),
        files=[AttachmentResponse.model_construct(**asdict(each)) for each in delivery.attachments],
        state=delivery.state,
        tries=delivery.tries,
        created_at=delivery.created_at,
        sent_at=delivery.sent_at,
        error=delivery.error,
    )


def _mail_given(mail: MailFields) -> MailResponse:
    return MailResponse.model_construct(
        subject=mail.subject,
        format=mail.format,
        in_reply_to=mail.in_reply_to,
        references=list(mail.references),
    )

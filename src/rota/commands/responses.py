"""Base models of requests and responses, and the responses that commands share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter, itemgetter, methodcaller
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from rota.commands.fields import Id, Json, SpaceName, TaskRef
from rota.flow.observe.views import check_state_of
from rota.model.checks import CheckState, SuppressionReason
from rota.model.events import EventName
from rota.model.notifications import DeliveryKind, DeliveryState
from rota.model.runs import (
    AttemptCause,
    QueueState,
    RunSource,
    RunState,
)
from rota.model.spaces import SpaceRole
from rota.model.tasks import Pool


class RequestModel(BaseModel):
    """A request; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class From(NamedTuple):
    """Where a field of a response comes from.

    `attribute` is that of the source, with the field's own name by default; an empty one is the
    source itself. `read` turns a value that is not None into the field's.
    """

    attribute: str | None = None
    read: Callable[[Any], Any] | None = None


class ResponseModel(BaseModel):
    """A response. Its fields are the attributes of a model, unless they say otherwise."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def from_model(cls, source: object, **given: Any) -> Self:  # noqa: ANN401 - fields of any type
        """Return the response about a model, unvalidated, with some fields given by the caller.

        A field with a default keeps it unless it is given or names its attribute.
        """
        plan = _plan(cls, frozenset(given))
        values = dict(zip(plan.names, plan.attributes(source), strict=True))
        for name, read in plan.reads:
            if values[name] is not None:
                values[name] = read(values[name])
        made: Self = plan.template.model_copy(update=values | given)
        return made


class _Plan(NamedTuple):
    names: tuple[str, ...]
    attributes: Callable[[object], tuple[Any, ...]]
    reads: tuple[tuple[str, Callable[[Any], Any]], ...]
    template: Any
    """A response without values: copying it is faster than making one."""


@cache
def _plan(kind: type[ResponseModel], given: frozenset[str]) -> _Plan:
    """Return how a response is filled, worked out once for each kind."""
    names, attributes, reads = [], [], []
    for name, field in kind.model_fields.items():
        origin = next((one for one in field.metadata if isinstance(one, From)), None)
        if name in given or (origin is None and not field.is_required()):
            continue
        origin = origin or From()
        names.append(name)
        attributes.append(name if origin.attribute is None else origin.attribute)
        read = origin.read or _nested(field.annotation)
        if read is not None:
            reads.append((name, read))
    required = [name for name, field in kind.model_fields.items() if field.is_required()]
    template = kind.model_construct(_fields_set=set(), **dict.fromkeys(required))
    return _Plan(tuple(names), _getter(attributes), tuple(reads), template)


def _getter(attributes: Sequence[str]) -> Callable[[object], tuple[Any, ...]]:
    """Return what gets attributes, of which some may be the object itself."""
    if "" not in attributes and len(attributes) > 1:
        found: Callable[[object], tuple[Any, ...]] = attrgetter(*attributes)
        return found
    each = [attrgetter(name) if name else _itself for name in attributes]
    return lambda source: tuple(get(source) for get in each)


def _itself(source: object) -> object:
    return source


def _nested(annotation: Any) -> Callable[[Any], Any] | None:  # noqa: ANN401 - an annotation
    """Return what makes the responses inside another one, if its type has any."""
    if get_origin(annotation) in {Union, UnionType}:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, ResponseModel):
        return annotation.from_model
    if get_origin(annotation) is not list:
        return None
    (item,) = get_args(annotation)
    if isinstance(item, type) and issubclass(item, ResponseModel):
        return lambda values: [item.from_model(value) for value in values]
    return list


class EmptyRequest(RequestModel):
    """A request without fields."""


class TaskSelector(RequestModel):
    """A task, by id or name; a task whose name has a slash is found by id only."""

    task: TaskRef
    space: SpaceName | None = None


class RunSelector(RequestModel):
    """A run."""

    run: Id


class SpaceResponse(ResponseModel):
    """A space."""

    name: str
    role: SpaceRole
    timezone: str
    created_at: datetime


class RunResponse(ResponseModel):
    """A run: the work for one slot, message, call or request.

    `check_state` is whether the task's checks passed. `suppressed` is why the delivery of a success
    was suppressed: by the gate (`by_gate`) or by the result (`by_result`). `took_seconds` is the
    duration of the newest ended attempt; `finished_at` can be later if no daemon ran when the
    attempt ended.
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
    attempt: Annotated[int, From("epoch")]
    cause: AttemptCause
    retries: int
    losses: int
    created_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    took_seconds: Annotated[float | None, From("took", timedelta.total_seconds)]
    expires_at: datetime | None
    cancel_requested_at: datetime | None
    stuck: bool
    slot_at: datetime | None
    slot_key: str | None
    upstream: Annotated[int | None, From("upstream_id")]
    key: str | None
    payload: Annotated[Json, From(read=json.loads)]
    result: Annotated[Json, From(read=json.loads)]
    error_code: str | None
    error: str | None
    check_state: Annotated[CheckState | None, From("", check_state_of)]
    suppressed: SuppressionReason | None


class AttemptResponse(ResponseModel):
    """An ended attempt of a run; `exit` is how its processes ended, if it had any.

    Its `reason` is why they ended, `killed` whether they were killed, `proven` whether no process
    is left. `check_results` are the check results: the check, whether it passed, and the evidence.
    """

    number: Annotated[int, From("epoch")]
    cause: AttemptCause
    worker: Annotated[str | None, From("worker_id")]
    started_at: datetime
    ended_at: datetime
    outcome: str
    error: str | None
    exit: dict[str, Any] | None
    check_results: list[dict[str, Any]] | None


class HeartbeatResponse(ResponseModel):
    """The newest heartbeat of the newest attempt; `missed_reason` is why there is no newer one.

    `memory_bytes` counts shared memory once for each process.
    """

    at: datetime
    attempt: Annotated[int, From("sample.epoch")]
    alive: Annotated[bool, From("sample.alive")]
    state: Annotated[str, From("sample.state")]
    pid: Annotated[int | None, From("sample.pid")]
    processes: Annotated[int | None, From("sample.processes")]
    cpu_seconds: Annotated[float | None, From("sample.cpu_seconds")]
    memory_bytes: Annotated[int | None, From("sample.memory_bytes")]
    output_at: Annotated[datetime | None, From("sample.output_at")]
    last_line: Annotated[str | None, From("sample.last_line")]
    pane: Annotated[str | None, From("sample.pane")]
    missed_reason: str | None


class QuestionResponse(ResponseModel):
    """A question of a run, open or answered.

    An approval has the complete `action`. `default` is the answer if nobody answers in time.
    `outcome` is the result of an approved action that Rota executed.
    """

    id: int
    run: Annotated[int, From("run_id")]
    attempt: Annotated[int, From("epoch")]
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
    action_hash: Annotated[str | None, From("digest")]
    outcome: Annotated[Json, From(read=json.loads)] = None


class EventResponse(ResponseModel):
    """A recorded event."""

    id: int
    at: datetime
    name: EventName
    task_id: int | None
    run: Annotated[int | None, From("run_id")]
    data: dict[str, Any]


class OutputResponse(ResponseModel):
    """A part of the output of a run's program, at an offset in its stream.

    `ansi` is the text with terminal colors, if it has any. `open` means that its last line is not
    complete, and `continues` that it begins in the middle of a line.
    """

    id: int
    at: datetime
    stream: Annotated[Literal["out", "err"], From("data", itemgetter("stream"))]
    offset: Annotated[int, From("data", itemgetter("at"))]
    text: Annotated[str, From("data", itemgetter("text"))]
    ansi: Annotated[str | None, From("data", methodcaller("get", "ansi"))]
    open: Annotated[bool, From("data", methodcaller("get", "open", False))]
    continues: Annotated[bool, From("data", methodcaller("get", "continues", False))]


class MailResponse(ResponseModel):
    """The fields of a mail besides its body; `references` are message ids, oldest first."""

    subject: str
    format: Literal["plain", "html"]
    in_reply_to: str | None
    references: list[str]


class AttachmentResponse(ResponseModel):
    """A file attached to a message."""

    name: str
    size: int
    sha256: str


class DeliveryResponse(ResponseModel):
    """A delivery in the outbox."""

    id: int
    run: Annotated[int | None, From("run_id")]
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

"""What the end of an attempt writes: deliveries, questions, notes, approved actions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rota.model.checks import CheckState, SuppressionReason
from rota.model.ids import Epoch, QuestionId, RunId, SpaceId, TaskId
from rota.model.notifications import Attachment, DeliveryKind, MailFields, Notification
from rota.model.runs import AttemptCause, RunBatch, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """A message for the outbox; `dedupe_key` is the same for the same message of a retried run."""

    space_id: SpaceId
    channel: str
    target: str
    body: str
    dedupe_key: str
    kind: DeliveryKind = DeliveryKind.MESSAGE
    mail: MailFields | None = None
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuestion:
    """A question to be put to a person; `kind` is as a Question's."""

    kind: str
    question: str
    context: str
    options: tuple[str, ...]
    expires_at: int
    default: str | None = None
    action: str | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettlementExtras:
    """The parts of a settlement that a plain success does not have."""

    available_at: int | None = None
    cause: AttemptCause | None = None
    result: str | None = None
    error_code: str | None = None
    error: str | None = None
    question: NewQuestion | None = None
    answered: QuestionId | None = None
    answer: str | None = None
    answered_by: str | None = None
    deliveries: tuple[NewDelivery, ...] = ()
    successors: tuple[RunBatch, ...] = ()
    counts: int = 0
    """+1 adds to the task's consecutive failures, -1 resets them, 0 leaves them."""
    disable_after: int = 0
    finishes: bool = False
    """Whether the task was to run until it has succeeded, which it has."""
    exit: str | None = None
    """How the processes of the attempt ended, as JSON."""
    away: int = 0
    """For how many microseconds they had been gone before anybody heard of it."""
    notes: AttemptNotes | None = None
    notification: Notification | None = None
    unbegun: bool = False
    """Whether the attempt had no program that could have read what it was given."""


PLAIN = SettlementExtras()
"""Nothing beside the move."""

PLAIN_SUCCESS = SettlementExtras(counts=-1)
"""A success without a result, messages or successors: what most runs end with."""


class Settlement(NamedTuple):
    """One move of one run, compare-and-set on the state and epoch it was decided for.

    One that was lost also has to be its lost `worker_id`'s still: nobody has adopted it meanwhile.
    """

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    was: RunState
    state: RunState
    outcome: str
    extras: SettlementExtras = PLAIN
    worker_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptNotes:
    """What Rota found out about an attempt, and what the attempt left to be remembered.

    `check_results` is what its checks found, as JSON. `remembered` is what its gate wants to find
    again, as JSON, and `next_check` the run that looks again; both count only with a success.
    """

    check_results: str | None = None
    check_state: CheckState | None = None
    suppressed: SuppressionReason | None = None
    remembered: str | None = None
    next_check: RunBatch | None = None
    stop_reason: str | None = None
    """Which budget ended it."""


NOTHING = AttemptNotes()
"""Nothing beside the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedAction:
    """What is done in the transaction of the answer that approves it: exactly one of three.

    `queues` is one run for the queue. `ends` is how a run ends that is cancelled, decided as if it
    stood in the queue: whatever it is about then, it is ended, or whoever works on it is asked to
    stop. `known` is what came of it already, as JSON: what a query found, or why nothing is done.
    """

    queues: RunBatch | None = None
    ends: Settlement | None = None
    known: str | None = None

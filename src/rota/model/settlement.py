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
    """A question to be stored; `kind` is that of Question."""

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
    """Change of the task's consecutive failures: +1 adds one, -1 resets them, 0 keeps them."""
    disable_after: int = 0
    finishes: bool = False
    """Whether this success completes a task with `until_success`."""
    exit: str | None = None
    """The exit record as JSON."""
    away: int = 0
    """For how many microseconds its processes had been gone before that was noticed."""
    notes: AttemptNotes | None = None
    notification: Notification | None = None
    unbegun: bool = False
    """Whether the program was not started, so that nothing has read its input."""


PLAIN = SettlementExtras()
"""A transition and nothing else."""

PLAIN_SUCCESS = SettlementExtras(counts=-1)
"""A success without result, messages and successors: the most frequent case."""


class Settlement(NamedTuple):
    """One transition of one run: compare-and-set on the state and epoch it was decided for.

    A lost run must also still be held by `worker_id`: otherwise it was adopted meanwhile.
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
    """Notes about an attempt besides its outcome.

    `check_results` holds the check results as JSON. `remembered` is the state its gate wants back
    next time, as JSON, and `next_check` the run that checks again; both apply only after a success.
    """

    check_results: str | None = None
    check_state: CheckState | None = None
    suppressed: SuppressionReason | None = None
    remembered: str | None = None
    next_check: RunBatch | None = None
    stop_reason: str | None = None
    """The budget that stopped it."""


NOTHING = AttemptNotes()
"""An outcome and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovedAction:
    """What is done in the transaction of the answer that approves it; exactly one field is set.

    `queues` is a run to queue. `ends` is how a run is cancelled, decided as if it were queued: if
    it is running by then, its worker is asked to stop it. `known` is a result that exists already,
    as JSON: the rows of a query, or why nothing is done.
    """

    queues: RunBatch | None = None
    ends: Settlement | None = None
    known: str | None = None

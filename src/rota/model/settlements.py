"""What the store is told to do when a run moves on: an end, a retry, a question, an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rota.model.asides import Aside
from rota.model.deliveries import DeliveryKind, Enclosure, Mail
from rota.model.ids import Epoch, QuestionId, RunId, SpaceId, TaskId
from rota.model.notices import Notice
from rota.model.runs import Cause, RunBatch
from rota.model.states import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """A message for the outbox; `dedupe_key` is the same for the same message of a retried run."""

    space_id: SpaceId
    channel: str
    target: str
    body: str
    dedupe_key: str
    kind: DeliveryKind = DeliveryKind.MESSAGE
    mail: Mail | None = None
    files: tuple[Enclosure, ...] = ()


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
class Extras:
    """The parts of a settlement that a plain success does not have."""

    available_at: int | None = None
    cause: Cause | None = None
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
    ending: str | None = None
    """How the processes of the attempt ended, as JSON."""
    away: int = 0
    """For how many microseconds they had been gone before anybody heard of it."""
    aside: Aside | None = None
    notice: Notice | None = None
    unbegun: bool = False
    """Whether the attempt had no program that could have read what it was given."""


PLAIN = Extras()
"""Nothing beside the move."""

PLAIN_SUCCESS = Extras(counts=-1)
"""A success without a result, messages or successors: what most runs end with."""


class Settlement(NamedTuple):
    """One move of one run, compare-and-set on the state and epoch it was decided for.

    One that was lost also has to be its lost `holder`'s still: nobody has adopted it meanwhile.
    """

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    was: RunState
    state: RunState
    outcome: str
    extras: Extras = PLAIN
    holder: str | None = None

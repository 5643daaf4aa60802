"""Deliveries and their states; notification targets and levels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import DeliveryId, RunId, SpaceId


class DeliveryState(StrEnum):
    """Where a delivery is in its life."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"
    DEAD = "dead"
    WITHDRAWN = "withdrawn"


AT_REST = frozenset({DeliveryState.SENT, DeliveryState.WITHDRAWN})
"""Where nobody needs to look at a delivery any more."""


class DeliveryKind(StrEnum):
    """What a delivery is: what a run wrote, what came of it, or what people are told of it."""

    MESSAGE = "message"
    RESULT = "result"
    NOTIFICATION = "notification"


@dataclass(frozen=True, slots=True, kw_only=True)
class MailFields:
    """What a mail has beside its body.

    `in_reply_to` and `references` are the ids of what it answers, the oldest first.
    """

    subject: str = ""
    format: str = "plain"
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that goes with a message: an artifact of its run, as it was when it was enclosed."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message in the outbox."""

    id: DeliveryId
    run_id: RunId | None
    channel: str
    target: str
    body: str
    dedupe_key: str
    state: DeliveryState
    tries: int
    available_at: datetime
    created_at: datetime
    sent_at: datetime | None
    error: str | None
    kind: DeliveryKind = DeliveryKind.MESSAGE
    mail: MailFields | None = None
    attachments: tuple[Attachment, ...] = ()


class NotificationLevel(StrEnum):
    """How much something matters, from the priority of a run or task."""

    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTarget:
    """Where a space wants its notices: of runs and tasks whose priority is at least `min_priority`.

    Results of tasks that were created without a place of their own go to the `is_default` one.
    """

    space_id: SpaceId
    space: str
    channel: str
    target: str
    min_priority: int
    is_default: bool
    updated_at: datetime

    @property
    def to(self) -> str:
        """Where it leads, as people write it."""
        return f"{self.channel}:{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What is to be told of a run that moves on, and where beside the preferences of its space.

    One that is `asking` is worth something only while its run waits.
    """

    text: str
    to: str | None = None
    asking: bool = False

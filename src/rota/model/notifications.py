"""Deliveries and their states; notification targets and levels."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import DeliveryId, RunId, SpaceId


class DeliveryState(StrEnum):
    """State of a delivery."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    UNKNOWN = "unknown"
    DEAD = "dead"
    WITHDRAWN = "withdrawn"


AT_REST = frozenset({DeliveryState.SENT, DeliveryState.WITHDRAWN})
"""States of deliveries that need no attention."""


class DeliveryKind(StrEnum):
    """What a delivery carries: a message of a run, its result, or a notification about it."""

    MESSAGE = "message"
    RESULT = "result"
    NOTIFICATION = "notification"


@dataclass(frozen=True, slots=True, kw_only=True)
class MailFields:
    """Fields of a mail besides its body.

    `in_reply_to` and `references` are the ids of the mails it answers, oldest first.
    """

    subject: str = ""
    format: str = "plain"
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file sent with a message: an artifact of the run as it was when it was attached."""

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
    """Urgency of a notification, derived from the priority of its run or task."""

    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationTarget:
    """A target for notifications about runs and tasks whose priority is at least `min_priority`.

    The `usual` target is also the default for results of tasks without a target of their own.
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
        """The target as people write it."""
        return f"{self.channel}:{self.target}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification about a run, with a target besides those of its space.

    If `asking`, it is withdrawn once its run no longer waits.
    """

    text: str
    to: str | None = None
    asking: bool = False

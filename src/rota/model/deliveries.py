"""Outbound messages and their life: pending, sending, then sent, unknown, dead or withdrawn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import DeliveryId, RunId


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
    NOTICE = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """What a mail has beside its body.

    `in_reply_to` and `references` are the ids of what it answers, the oldest first.
    """

    subject: str = ""
    format: str = "plain"
    in_reply_to: str | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
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
    mail: Mail | None = None
    files: tuple[Enclosure, ...] = ()

"""Outbound messages and the life of one: pending, sending, then sent, unknown or dead."""

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

"""The outbox: take deliveries, mark what became of them."""

from __future__ import annotations

import json

from rota.model.events import EventName
from rota.model.ids import DeliveryId, RunId
from rota.model.instants import from_micros, maybe_instant
from rota.model.json import from_json, to_json
from rota.model.notifications import Attachment, Delivery, DeliveryKind, DeliveryState, MailFields
from rota.store.notifications import withdraw
from rota.store.transactions import EVENTS, QueryRows, Row, Transaction

LONGEST_SENDING = 90 * 1_000_000
"""How long a try may take, in microseconds; after that nobody waits for its outcome any more."""

EVENT_OF = {
    DeliveryState.SENT: EventName.DELIVERY_SENT,
    DeliveryState.UNKNOWN: EventName.DELIVERY_UNKNOWN,
    DeliveryState.DEAD: EventName.DELIVERY_DEAD,
}


def as_delivery(row: Row) -> Delivery:
    """Return a row of deliveries as a value."""
    (
        delivery_id,
        run_id,
        channel,
        target,
        body,
        dedupe_key,
        state,
        tries,
        available_at,
        created_at,
        sent_at,
        error,
        kind,
        mail,
        files,
    ) = row
    return Delivery(
        id=DeliveryId(delivery_id),
        run_id=None if run_id is None else RunId(run_id),
        channel=channel,
        target=target,
        body=body,
        dedupe_key=dedupe_key,
        state=DeliveryState(state),
        tries=tries,
        available_at=from_micros(available_at),
        created_at=from_micros(created_at),
        sent_at=maybe_instant(sent_at),
        error=error,
        kind=DeliveryKind(kind),
        mail=None if mail is None else mail_of(mail),
        attachments=() if files is None else from_json(tuple[Attachment, ...], json.loads(files)),
    )


def mail_text(mail: MailFields | None) -> str | None:
    """Return what is stored of a mail."""
    return None if mail is None else json.dumps(to_json(mail), ensure_ascii=False)


def mail_of(text: str) -> MailFields:
    """Return a mail that was stored."""
    return from_json(MailFields, json.loads(text))


def files_text(files: tuple[Attachment, ...]) -> str | None:
    """Return what is stored of the files of a message."""
    return json.dumps(to_json(files), ensure_ascii=False) if files else None


async def claim_deliveries(tx: Transaction, worker: str, most: int) -> list[Delivery]:
    """Take pending deliveries for sending; each take counts as a try and lasts a bounded time.

    What asks for an answer that nobody waits for is not taken any more.
    """
    now = tx.now()
    ids = [row[0] for row in await tx.rows("pick_deliveries", now=now, most=most)]
    if ids:
        gone = await withdraw(tx, ids, now)
        ids = [delivery_id for delivery_id in ids if delivery_id not in gone]
    if not ids:
        return []
    await tx.run("take_deliveries", ids=ids, worker=worker, until=now + LONGEST_SENDING)
    return [as_delivery(row) for row in await tx.rows("get_deliveries", ids=ids)]


async def record_delivery(
    tx: Transaction, delivery: Delivery, state: DeliveryState, error: str | None, available_at: int
) -> bool:
    """Record what became of one try; false if the delivery is no longer the caller's."""
    now = tx.now()
    rows = await tx.rows(
        "mark_delivery",
        id=delivery.id,
        tries=delivery.tries,
        state=state.value,
        error=error,
        available_at=available_at,
        now=now,
    )
    if rows and state in EVENT_OF:
        record: dict[str, object] = {
            "name": EVENT_OF[state].value,
            "run_id": delivery.run_id,
            "data": json.dumps({"delivery_id": delivery.id, "channel": delivery.channel}),
        }
        await tx.run("insert_events", rows=QueryRows([record]), now=now)
        tx.wake(EVENTS)
    return bool(rows)


async def list_deliveries_of_worker(tx: Transaction, worker: str, most: int) -> list[Delivery]:
    """Return deliveries a worker has taken and not marked."""
    rows = await tx.rows("deliveries_of_worker", worker=worker, most=most)
    return [as_delivery(row) for row in rows]


async def list_orphaned_deliveries(tx: Transaction, most: int) -> list[Delivery]:
    """Return deliveries whose worker is gone, or whose time to send is over."""
    now = tx.now()
    rows = await tx.rows("orphaned_deliveries", now=now, most=most)
    return [as_delivery(row) for row in rows]


async def next_delivery(tx: Transaction) -> int | None:
    """Return when the next pending delivery may be sent."""
    rows = await tx.rows("next_delivery")
    value: int | None = rows[0][0]
    return value

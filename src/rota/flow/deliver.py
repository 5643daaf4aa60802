"""Deliver: messages of the outbox are sent.

A message that a channel refuses is sent again later, with growing pauses. If a channel does not
answer, the message becomes `unknown`: it may have arrived, so it is reported and not sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

from rota.faultpoints import reach
from rota.model.notifications import Delivery, DeliveryState
from rota.ports.channel import Channel, ChannelRefused
from rota.ports.clock import Random
from rota.rules.settlement import DELIVERY_RETRY, delay
from rota.store.outbox import claim_deliveries, list_deliveries_of_worker, record_delivery
from rota.store.store import Store

log = logging.getLogger(__name__)

MOST = 100
LONGEST_SEND = 30.0
BROKEN_OFF = "sending was interrupted"
Mark: TypeAlias = tuple[Delivery, DeliveryState, str | None, int]
"""A delivery, its new state, the error, and when it may be sent again."""


class InFlightDeliveries:
    """Deliveries that this sender has claimed and whose outcome is not recorded yet.

    The store may become unavailable between sending and recording. The outcome is then recorded
    when the store is back, and the message is not sent again.
    """

    def __init__(self) -> None:
        self.marks: dict[int, Mark | None] = {}
        self.in_doubt = False
        self.taking = asyncio.Lock()


async def deliver(
    store: Store,
    channels: Mapping[str, Channel],
    worker: str,
    chance: Random,
    in_hand: InFlightDeliveries | None = None,
) -> int:
    """Send a batch of due messages; return how many were tried."""
    mine = InFlightDeliveries() if in_hand is None else in_hand
    async with mine.taking:
        await _catch_up(store, worker, mine)
        mine.in_doubt = True  # until the answer arrives, it is unknown which messages were claimed
        taken = await store.write(claim_deliveries, worker, MOST)
        mine.in_doubt = False
        mine.marks.update((delivery.id, None) for delivery in taken)
    outbox = _Hand(store, mine)
    targets: dict[tuple[str, str], list[Delivery]] = {}
    for delivery in taken:
        targets.setdefault((delivery.channel, delivery.target), []).append(delivery)
    faults = await asyncio.gather(
        *(_send_all(outbox, channels, wanted, chance) for wanted in targets.values())
    )
    for fault in faults:
        if fault is not None:
            raise fault
    return len(taken)


async def _catch_up(store: Store, worker: str, mine: InFlightDeliveries) -> None:
    """Record pending outcomes, and release messages that were claimed by a lost answer."""
    outbox = _Hand(store, mine)
    for mark in [mark for mark in mine.marks.values() if mark is not None]:
        await outbox.record(*mark)
    if mine.in_doubt:
        for delivery in await store.read(list_deliveries_of_worker, worker, MOST):
            if delivery.id not in mine.marks:
                await outbox.record(delivery, DeliveryState.PENDING, None, store.now())


class _Hand:
    """Records outcomes of deliveries, and keeps each until the store has accepted it."""

    def __init__(self, store: Store, mine: InFlightDeliveries) -> None:
        self.now = store.now
        self._store = store
        self._mine = mine

    async def record(
        self, delivery: Delivery, state: DeliveryState, error: str | None, available_at: int
    ) -> None:
        """Record what became of one try, now or when the store is back."""
        try:
            await self._store.write(record_delivery, delivery, state, error, available_at)
        except BaseException:
            self.keep(delivery, state, error, available_at)
            raise
        self._mine.marks.pop(delivery.id, None)

    def keep(
        self, delivery: Delivery, state: DeliveryState, error: str | None, available_at: int
    ) -> None:
        """Record the outcome of one attempt later."""
        self._mine.marks[delivery.id] = (delivery, state, error, available_at)


async def _send_all(
    outbox: _Hand, channels: Mapping[str, Channel], wanted: list[Delivery], chance: Random
) -> Exception | None:
    """Send the messages of one target; return its error, so that other targets are served first."""
    try:
        await _send_in_order(outbox, channels, wanted, chance)
    except Exception as fault:  # noqa: BLE001 - reported by the caller
        return fault
    return None


async def _send_in_order(
    outbox: _Hand, channels: Mapping[str, Channel], wanted: list[Delivery], chance: Random
) -> None:
    """Send the messages of one target in order; after a slow one the others are released."""
    slow = False
    left = deque(wanted)
    try:
        while left:
            delivery = left.popleft()
            if slow:
                await outbox.record(delivery, DeliveryState.PENDING, None, outbox.now())
            else:
                slow = await _send(outbox, channels.get(delivery.channel), delivery, chance)
    finally:
        for delivery in left:
            outbox.keep(delivery, DeliveryState.PENDING, None, outbox.now())


async def _send(outbox: _Hand, channel: Channel | None, delivery: Delivery, chance: Random) -> bool:
    """Send one message and record its outcome; return whether the channel took too long."""
    if channel is None:
        await _dead(outbox, delivery, f"no channel {delivery.channel!r} is configured")
        return False
    try:
        async with asyncio.timeout(LONGEST_SEND):
            reach("delivery.send")
            await channel.send(delivery)
            reach("delivery.sent")
    except TimeoutError:
        reason = f"the channel did not answer within {LONGEST_SEND:.0f} s"
        await outbox.record(delivery, DeliveryState.UNKNOWN, reason, outbox.now())
        return True
    except ChannelRefused as refusal:
        await _refused(outbox, delivery, refusal, chance)
    except asyncio.CancelledError:
        outbox.keep(delivery, DeliveryState.UNKNOWN, BROKEN_OFF, outbox.now())
        raise
    except Exception as fault:
        log.warning("delivery.unknown", extra={"delivery_id": delivery.id}, exc_info=True)
        reason = f"{type(fault).__name__}: {fault}"
        await outbox.record(delivery, DeliveryState.UNKNOWN, reason, outbox.now())
    else:
        await outbox.record(delivery, DeliveryState.SENT, None, outbox.now())
    return False


async def _refused(
    outbox: _Hand, delivery: Delivery, refusal: ChannelRefused, chance: Random
) -> None:
    if refusal.final or delivery.tries >= DELIVERY_RETRY.attempts:
        await _dead(outbox, delivery, str(refusal))
        return
    wait = delay(DELIVERY_RETRY, delivery.tries, chance.random())
    again = outbox.now() + int(wait.total_seconds() * 1_000_000)
    await outbox.record(delivery, DeliveryState.PENDING, str(refusal), again)


async def _dead(outbox: _Hand, delivery: Delivery, why: str) -> None:
    """Mark a message as dead and log it."""
    facts = {"delivery_id": delivery.id, "run_id": delivery.run_id, "error": why}
    log.warning("delivery.dead", extra=facts)
    await outbox.record(delivery, DeliveryState.DEAD, why, outbox.now())

"""Deliver: the outbox is sent.

A channel that says no is asked again later, with growing pauses. A channel that does not answer
leaves the message `unknown`: nobody can tell whether it arrived, so it is shown and not sent again.
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
from rota.store.outbox import claim_deliveries, list_held_deliveries, record_delivery
from rota.store.store import Store

log = logging.getLogger(__name__)

MOST = 100
LONGEST_SEND = 30.0
BROKEN_OFF = "its sending was broken off"
Mark: TypeAlias = tuple[Delivery, DeliveryState, str | None, int]
"""A delivery, what became of it, why, and when it may be tried again."""


class InFlightDeliveries:
    """What a postman has taken and the store has not been told yet.

    The store may go away between a message and its record. Then the message is in this process's
    hand: what is known of it is recorded when the store is back, and it is not sent again.
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
    """Send a batch of what is due; return how many were tried."""
    mine = InFlightDeliveries() if in_hand is None else in_hand
    async with mine.taking:
        await _catch_up(store, worker, mine)
        mine.in_doubt = True  # until the answer is here, nobody knows what was taken
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
    """Record what could not be recorded, and give back what was taken by a lost answer."""
    outbox = _Hand(store, mine)
    for mark in [mark for mark in mine.marks.values() if mark is not None]:
        await outbox.record(*mark)
    if mine.in_doubt:
        for delivery in await store.read(list_held_deliveries, worker, MOST):
            if delivery.id not in mine.marks:
                await outbox.record(delivery, DeliveryState.PENDING, None, store.now())


class _Hand:
    """Marks deliveries, and keeps each mark in hand until the store has taken it."""

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
        """Record what became of one try later."""
        self._mine.marks[delivery.id] = (delivery, state, error, available_at)


async def _send_all(
    outbox: _Hand, channels: Mapping[str, Channel], wanted: list[Delivery], chance: Random
) -> Exception | None:
    """Send messages for one target; its fault waits until the other targets have been served."""
    try:
        await _send_in_order(outbox, channels, wanted, chance)
    except Exception as fault:  # noqa: BLE001 - told by the caller
        return fault
    return None


async def _send_in_order(
    outbox: _Hand, channels: Mapping[str, Channel], wanted: list[Delivery], chance: Random
) -> None:
    """Send messages for one target one after the other; a slow one sends the rest back."""
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
    """Send one message and record what is known of it; true if the channel took too long."""
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
    """Give a message up, and say so."""
    facts = {"delivery_id": delivery.id, "run_id": delivery.run_id, "error": why}
    log.warning("delivery.dead", extra=facts)
    await outbox.record(delivery, DeliveryState.DEAD, why, outbox.now())

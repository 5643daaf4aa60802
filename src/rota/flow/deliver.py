"""Deliver: the outbox is sent.

A channel that says no is asked again later, with growing pauses. A channel that does not answer
leaves the message `unknown`: nobody can tell whether it arrived, so it is shown and not sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from rota.errors import Unavailable
from rota.faultpoints import reach
from rota.model.deliveries import Delivery, DeliveryState
from rota.model.tasks import Retry
from rota.ports.channel import Channel, ChannelRefused
from rota.ports.clock import Random
from rota.ports.store import Outbox
from rota.rules.retry import delay

log = logging.getLogger(__name__)

MOST = 100
LONGEST_SEND = 30.0
MARK_TRIES = 5
MARK_PAUSE = 2.0
TRIES = Retry(attempts=8, base=timedelta(seconds=2), factor=3.0, cap=timedelta(hours=1))


async def deliver(
    store: Outbox, channels: Mapping[str, Channel], worker: str, chance: Random
) -> int:
    """Send a batch of what is due; return how many were tried."""
    taken = await store.take_deliveries(worker, MOST)
    targets: dict[tuple[str, str], list[Delivery]] = {}
    for delivery in taken:
        targets.setdefault((delivery.channel, delivery.target), []).append(delivery)
    await asyncio.gather(
        *(_send_in_order(store, channels, wanted, chance) for wanted in targets.values())
    )
    return len(taken)


async def _send_in_order(
    store: Outbox, channels: Mapping[str, Channel], wanted: list[Delivery], chance: Random
) -> None:
    """Send messages for one target one after the other; a slow one sends the rest back."""
    slow = False
    for delivery in wanted:
        if slow:
            await _mark(store, delivery, DeliveryState.PENDING, None, store.now())
        else:
            slow = await _send(store, channels.get(delivery.channel), delivery, chance)


async def _send(store: Outbox, channel: Channel | None, delivery: Delivery, chance: Random) -> bool:
    """Send one message and record what is known of it; true if the channel took too long."""
    if channel is None:
        reason = f"no channel {delivery.channel!r} is configured"
        await _mark(store, delivery, DeliveryState.DEAD, reason, store.now())
        return False
    try:
        async with asyncio.timeout(LONGEST_SEND):
            reach("delivery.send")
            await channel.send(delivery)
            reach("delivery.sent")
    except TimeoutError:
        reason = f"the channel did not answer within {LONGEST_SEND:.0f} s"
        await _mark(store, delivery, DeliveryState.UNKNOWN, reason, store.now())
        return True
    except ChannelRefused as refusal:
        await _refused(store, delivery, refusal, chance)
    except Exception as fault:
        log.warning("delivery.unknown", extra={"delivery_id": delivery.id}, exc_info=True)
        reason = f"{type(fault).__name__}: {fault}"
        await _mark(store, delivery, DeliveryState.UNKNOWN, reason, store.now())
    else:
        await _mark(store, delivery, DeliveryState.SENT, None, store.now())
    return False


async def _mark(
    store: Outbox, delivery: Delivery, state: DeliveryState, error: str | None, available_at: int
) -> None:
    """Write down what is known of a message, and do not give that up at the first fault."""
    for _ in range(MARK_TRIES - 1):
        try:
            await store.mark_delivery(delivery, state, error, available_at)
        except Unavailable:
            await asyncio.sleep(MARK_PAUSE)
        else:
            return
    await store.mark_delivery(delivery, state, error, available_at)


async def _refused(
    store: Outbox, delivery: Delivery, refusal: ChannelRefused, chance: Random
) -> None:
    if refusal.final or delivery.tries >= TRIES.attempts:
        await _mark(store, delivery, DeliveryState.DEAD, str(refusal), store.now())
        return
    wait = delay(TRIES, delivery.tries, chance.random())
    again = store.now() + int(wait.total_seconds() * 1_000_000)
    await _mark(store, delivery, DeliveryState.PENDING, str(refusal), again)

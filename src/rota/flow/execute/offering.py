"""Offering: what is said in a thread reaches the run that goes on there, if its program listens.

Nothing moves here: a message stays what it is until the program has acknowledged it. What it never
acknowledges is read by the run that was queued with the message. Which message a mailbox calls by
which number is on record, so that an acknowledgement counts after a restart, too; a message that
was put there just before one may lie there twice, with the same id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from rota.errors import NotFound, Unavailable
from rota.flow.execute.hearing import Hearing
from rota.flow.execute.patiently import patiently
from rota.flow.execute.readying import Ready
from rota.flow.execute.steering import Steer, steerable
from rota.model.inside import Held
from rota.model.keeping import Kept
from rota.model.messages import MOST_PENDING, ThreadMessage
from rota.ports.mailboxes import Box, files_in
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.ports.yard import Yard
from rota.rules.prompts import media_of

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
AGAIN_SECONDS = 0.5
"""How soon a program that does not listen yet is offered again what it was offered."""
TOPIC = "messages"


class Offer:
    """One try that is offered what is said in its conversation."""

    def __init__(
        self,
        store: Store,
        put: Callable[[ThreadMessage], Awaitable[int | None]],
        kept: Kept,
        thread: str,
    ) -> None:
        self._store = store
        self._put = put
        self._kept = kept
        self._thread = thread
        self._giving = asyncio.Lock()
        self.name = f"{kept.run_id}.{kept.epoch}.{kept.nonce}"

    async def go_on(self) -> None:
        """Offer what there is and what comes, until this is cancelled."""
        said = asyncio.Event()
        stop = self._store.subscribe(lambda topic: said.set() if topic == TOPIC else None)
        try:
            while True:
                said.clear()
                pause = LOOK_SECONDS if await self._give() else AGAIN_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await said.wait()
        finally:
            stop()

    async def _give(self) -> bool:
        """Give what is new, in its order; false if something is left."""
        kept, store = self._kept, self._store
        try:
            for message in await store.pending_messages(self._thread, self.name, MOST_PENDING):
                async with self._giving:
                    number = await self._put(message)
                    if number is None:
                        return False
                    await store.box_message(message.id, self.name, number)
        except Unavailable as fault:
            log.warning("run.not_offered", extra={"run_id": kept.run_id, "error": str(fault)})
            return False
        return True

    async def read(self, number: int) -> int:
        """Note that everything is read up to a message; return how much was new."""
        async with self._giving:  # what lies there is on record before it counts as read
            message = await self._store.boxed_message(self.name, number)
        taken = None
        if message is not None:
            kept = self._kept
            taken = await self._store.take_messages(kept.run_id, kept.epoch, message)
        if taken is None:
            raise NotFound("message", number, "see those in your mailbox")
        return taken


class Offering:
    """Offers messages to the tries that go on here.

    A try whose program is steered finds them on its input, any other in its mailbox, `box`.
    """

    def __init__(self, store: Store, box: Box | None = None, yard: Yard | None = None) -> None:
        self._store = store
        self._yard = yard
        self.box = box
        self._steered: dict[int, Steer] = {}
        self._going: dict[int, tuple[Offer, asyncio.Future[None]]] = {}

    def begin(self, assignment: Assignment, kept: Kept, ready: Ready | None = None) -> None:
        """Offer a try what is said in its conversation, as long as it goes on."""
        thread = assignment.lease.thread
        self.end(kept.run_id)
        put = None if thread is None else self._way(kept, ready)
        if put is not None and thread is not None:
            offer = Offer(self._store, put, kept, thread)
            self._going[kept.run_id] = offer, asyncio.ensure_future(offer.go_on())

    def _way(
        self, kept: Kept, ready: Ready | None
    ) -> Callable[[ThreadMessage], Awaitable[int | None]] | None:
        agent, box, yard = None if ready is None else steerable(ready), self.box, self._yard
        files = None if box is None or yard is None else files_in(yard.mailbox(kept))
        if agent is not None and yard is not None:
            steer = self._steered[kept.run_id] = Steer(yard, kept, agent, files)
            return steer.put if box is None else partial(_brought, box, kept, steer)
        if box is None:
            return None
        tell = partial(told, files=files)
        return lambda message: box.give(kept.run_id, kept.epoch, message, tell)

    async def heard(self, kept: Kept, hearing: Hearing) -> None:
        """Note what a steered program has taken in; end its input when it has nothing to do.

        What it has said is on record before: a later process hears all of it again, so that an
        acknowledgement counts whenever this process dies.
        """
        steer = self._steered.get(kept.run_id)
        if steer is None or steer.kept.nonce != kept.nonce:
            return
        upto = steer.upto(hearing.taken)
        if upto > steer.taken:
            take = self._store.take_messages
            await patiently(lambda: take(kept.run_id, kept.epoch, upto))
            steer.taken = upto
        wanted, hearing.wanted = hearing.wanted, []
        for line in wanted:
            steer.want(line)
        if hearing.over:
            steer.close()
        elif hearing.at_rest:
            steer.close_unless_more()

    def end(self, run_id: int) -> None:
        """Offer a run nothing more."""
        self._steered.pop(run_id, None)
        if run_id in self._going:
            self._going.pop(run_id)[1].cancel()

    async def acknowledged(self, held: Held, number: int) -> int:
        """Note that an attempt has read everything up to the message its mailbox calls so."""
        offer, _ = self._going.get(held.run_id, (None, None))
        if offer is None or not offer.name.startswith(f"{held.run_id}.{held.epoch}."):
            raise NotFound("message", number, "see those in your mailbox")
        return await offer.read(number)


async def _brought(box: Box, kept: Kept, steer: Steer, message: ThreadMessage) -> int | None:
    """Tell a message to a program that is steered, once its files are there."""
    if message.files and not steer.has(message):
        message = await box.bring(kept, message)
    return await steer.put(message)


def told(message: ThreadMessage, files: str | None) -> dict[str, Any]:
    """Return a message as a program is told it that finds the files of messages in a folder."""
    return {
        "id": message.id,
        "sender": message.sender,
        "time": message.at.isoformat(),
        "thread": message.thread,
        "text": message.body,
        **media_of(message, files),
    }

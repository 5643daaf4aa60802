"""Messages for a running agent: follow-up messages, its input, its mailbox.

A message keeps its state until the program has acknowledged it; the reader run reads messages that
were not acknowledged. The numbers of messages in a mailbox are stored, so that an acknowledgement
counts after a restart. A message that was written just before a crash may be in the mailbox twice,
with the same id.

The input file from which the keeper feeds a program records what it got: each message is a line,
once, in order. A process that takes over completes a partial line. Nothing is written after the
input has ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from rota.errors import NotFound, Unavailable
from rota.flow.attempt.attempt import missing_files_report
from rota.flow.attempt.output import OutputParser
from rota.flow.attempt.prepare import PreparedAttempt
from rota.flow.attempt.programs import ProgramControl
from rota.flow.attempt.prompt import AgentPrompt
from rota.model.attempts import Assignment, AttemptReport, KeptAttempt
from rota.model.audit import AttemptIdentity
from rota.model.ids import RunId
from rota.model.threads import MAX_PENDING, ThreadMessage
from rota.ports.agent import AgentWorkspace, PreparedProgram, SteerableAgent
from rota.ports.keeper import KeeperHome
from rota.ports.mailbox import MailboxFolder, MailboxService, files_in
from rota.rules.prompts import message_files
from rota.store.store import Store, until_available
from rota.store.threads import (
    acknowledge_messages,
    find_mailbox_message,
    pending_messages,
    record_mailbox_number,
)

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
AGAIN_SECONDS = 0.5
"""Interval at which a message is offered again to a program that does not accept messages yet."""
TOPIC = "messages"


class MessageOffer:
    """One launch that is offered the messages of its thread."""

    def __init__(
        self,
        store: Store,
        put: Callable[[ThreadMessage], Awaitable[int | None]],
        kept: KeptAttempt,
        thread: str,
    ) -> None:
        self._store = store
        self._put = put
        self._kept = kept
        self._thread = thread
        self._giving = asyncio.Lock()
        self.name = f"{kept.run_id}.{kept.epoch}.{kept.nonce}"

    async def go_on(self) -> None:
        """Offer current and new messages until cancelled."""
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
        """Give new messages in order; return False if some are left."""
        kept, store = self._kept, self._store
        try:
            for message in await store.read(pending_messages, self._thread, self.name, MAX_PENDING):
                async with self._giving:
                    number = await self._put(message)
                    if number is None:
                        return False
                    await store.write(record_mailbox_number, message.id, self.name, number)
        except Unavailable as fault:
            log.warning("message.offer_failed", extra={"run_id": kept.run_id, "error": str(fault)})
            return False
        return True

    async def read(self, number: int) -> int:
        """Record that all messages up to a number are read; return how many were new."""
        async with self._giving:  # a message must be recorded before it counts as read
            message = await self._store.read(find_mailbox_message, self.name, number)
        taken = None
        if message is not None:
            kept = self._kept
            taken = await self._store.write(acknowledge_messages, kept.run_id, kept.epoch, message)
        if taken is None:
            raise NotFound("message", number, "see those in your mailbox")
        return taken


class MessageDelivery:
    """Offers messages to running launches.

    A program with line input gets them on its input, any other in its mailbox, `box`.
    """

    def __init__(
        self, store: Store, box: MailboxFolder | None = None, yard: KeeperHome | None = None
    ) -> None:
        self._store = store
        self._yard = yard
        self.box = box
        self._steered: dict[int, InputWriter] = {}
        self._going: dict[int, tuple[MessageOffer, asyncio.Future[None]]] = {}

    def begin(
        self, assignment: Assignment, kept: KeptAttempt, ready: PreparedAttempt | None = None
    ) -> None:
        """Offer messages to a launch while it runs."""
        thread = assignment.lease.thread
        self.end(kept.run_id)
        put = None if thread is None else self._way(kept, ready)
        if put is not None and thread is not None:
            offer = MessageOffer(self._store, put, kept, thread)
            self._going[kept.run_id] = offer, asyncio.ensure_future(offer.go_on())

    def _way(
        self, kept: KeptAttempt, ready: PreparedAttempt | None
    ) -> Callable[[ThreadMessage], Awaitable[int | None]] | None:
        agent, box, yard = None if ready is None else is_steerable(ready), self.box, self._yard
        files = None if box is None or yard is None else files_in(yard.make_mailbox(kept))
        if agent is not None and yard is not None:
            steer = self._steered[kept.run_id] = InputWriter(yard, kept, agent, files)
            return steer.put if box is None else partial(_brought, box, kept, steer)
        if box is None:
            return None
        tell = partial(message_text, files=files)
        return lambda message: box.put_message(kept.run_id, kept.epoch, message, tell)

    async def heard(self, kept: KeptAttempt, hearing: OutputParser) -> None:
        """Record messages that a program has acknowledged, and end its input when it is idle.

        The output is recorded first. A later process reads it again, so an acknowledgement counts
        whenever this process dies.
        """
        steer = self._steered.get(kept.run_id)
        if steer is None or steer.kept.nonce != kept.nonce:
            return
        upto = steer.upto(hearing.taken)
        if upto > steer.taken:
            write = partial(self._store.write, acknowledge_messages, kept.run_id, kept.epoch, upto)
            await until_available(write)
            steer.taken = upto
        wanted, hearing.wanted = hearing.wanted, []
        for line in wanted:
            steer.want(line)
        if hearing.over:
            steer.close()
        elif hearing.at_rest:
            steer.close_unless_more()

    def end(self, run_id: int) -> None:
        """Stop offering messages to a run."""
        self._steered.pop(run_id, None)
        if run_id in self._going:
            self._going.pop(run_id)[1].cancel()

    async def acknowledged(self, held: AttemptIdentity, number: int) -> int:
        """Record that an attempt has read all messages up to a number of its mailbox."""
        offer, _ = self._going.get(held.run_id, (None, None))
        if offer is None or not offer.name.startswith(f"{held.run_id}.{held.epoch}."):
            raise NotFound("message", number, "see those in your mailbox")
        return await offer.read(number)


async def _brought(
    box: MailboxFolder, kept: KeptAttempt, steer: InputWriter, message: ThreadMessage
) -> int | None:
    """Write a message to the input of a program after its files."""
    if message.files and not steer.has(message):
        message = await box.put_files(kept, message)
    return await steer.put(message)


def message_text(message: ThreadMessage, files: str | None) -> dict[str, Any]:
    """Return a message as a program reads it, with the paths of its files."""
    return {
        "id": message.id,
        "sender": message.sender,
        "time": message.at.isoformat(),
        "thread": message.thread,
        "text": message.body,
        **message_files(message, files),
    }


def is_steerable(ready: PreparedAttempt) -> SteerableAgent | None:
    """Return the agent of an attempt if it accepts messages on its input."""
    agent: object = ready.agent
    return (
        agent if isinstance(agent, SteerableAgent) and agent.accepts_messages(ready.wish) else None
    )


def add_steering(ready: PreparedAttempt, assignment: Assignment) -> AgentWorkspace:
    """Return the workspace of a launch, whose input stays open if messages may arrive."""
    steers = assignment.lease.thread is not None and is_steerable(ready) is not None
    return replace(ready.room, steered=True) if steers else ready.room


class InputWriter:
    """The input file of one launch."""

    def __init__(
        self, yard: KeeperHome, kept: KeptAttempt, agent: SteerableAgent, files: str | None = None
    ) -> None:
        self._yard = yard
        self._agent = agent
        self._files = files
        self.kept = kept
        self.taken = 0
        """The last message that is recorded as acknowledged."""
        self._given: list[int] = []
        self._lines: set[bytes] = set()
        self._wanted: list[bytes] = []
        self._at = 0
        self._torn = b""
        self._ended = True
        self._look()
        self._ring()

    def _ring(self) -> None:
        """Wake the reader, because a process may have died after writing and before waking."""
        try:
            self._yard.write_input(self.kept, self._at + len(self._torn), b"", end=self._ended)
        except OSError as fault:
            log.warning(
                "message.send_failed", extra={"run_id": self.kept.run_id, "error": str(fault)}
            )

    def _look(self) -> None:
        """Read the current content of the file, whoever wrote it."""
        data, self._ended = self._yard.read_input(self.kept)
        *whole, self._torn = data.split(b"\n")
        self._at = len(data) - len(self._torn)
        self._lines = {line + b"\n" for line in whole}
        found = (self._agent.message_in(line) for line in whole)
        self._given = [number for number in found if number is not None]

    def has(self, message: ThreadMessage) -> bool:
        """Return whether a message is in the file."""
        return message.id in self._given

    async def put(self, message: ThreadMessage) -> int | None:
        """Append a message unless it is there; return its number, None if the input has ended."""
        if self.has(message):
            return self._given.index(message.id) + 1
        if not self._write(self._agent.message_line(message, self._files)):
            return None
        self._given.append(message.id)
        self._write_wanted()
        return len(self._given)

    def want(self, line: str) -> None:
        """Append a required line unless it is there.

        It waits until a partial line before it is complete.
        """
        self._wanted.append(line.encode())
        self._write_wanted()

    def _write_wanted(self) -> None:
        while self._wanted and (self._wanted[0] in self._lines or self._write(self._wanted[0])):
            self._wanted.pop(0)

    def _write(self, line: bytes) -> bool:
        """Append a line; return False if the input has ended or cannot be written now."""
        if self._ended or not line.startswith(self._torn):
            return False
        try:
            self._yard.write_input(self.kept, self._at, line)
        except OSError as fault:
            log.warning(
                "message.send_failed", extra={"run_id": self.kept.run_id, "error": str(fault)}
            )
            self._look()
            return False
        self._at, self._torn = self._at + len(line), b""
        self._lines.add(line)
        return True

    def upto(self, taken: int) -> int:
        """Return the last given message that an acknowledgement covers."""
        return max((number for number in self._given if number <= taken), default=0)

    def close_unless_more(self) -> None:
        """End the input of an idle program, unless there are more messages."""
        if max(self._given, default=0) <= self.taken:
            self.close()

    def close(self) -> None:
        """End the input; remaining messages are not read from there."""
        if not self._ended:
            self._yard.write_input(self.kept, self._at, b"", end=True)
            self._ended = True


Heard = TypeVar("Heard")


class AttemptMailbox:
    """The mailboxes of attempts; without mailboxes all methods do nothing."""

    def __init__(
        self, yard: KeeperHome, minding: ProgramControl, mailboxes: MailboxService | None
    ) -> None:
        self._yard = yard
        self._minding = minding
        self._mailboxes = mailboxes

    def told(self, room: AgentWorkspace, kept: KeptAttempt) -> AgentWorkspace:
        """Return a workspace with the mailbox of its launch."""
        if self._mailboxes is None:
            return room
        box = self._yard.make_mailbox(kept)
        return replace(room, mailbox=box, ids={**room.ids, "ROTA_MAILBOX": box})

    def files(self, assignment: Assignment, kept: KeptAttempt) -> str | None:
        """Return the folder of message files of a launch; None without a mailbox."""
        if self._mailboxes is None or assignment.lease.thread is None:
            return None
        return files_in(self._yard.make_mailbox(kept))

    async def bring(
        self,
        kept: KeptAttempt,
        told: AgentPrompt,
        prepared: PreparedProgram,
        ready: PreparedAttempt,
        room: AgentWorkspace,
    ) -> PreparedProgram | AttemptReport:
        """Write the message files of a prompt into the mailbox of the launch.

        Returns the program, prepared again if files are missing, or the report of a failure.
        """
        if self._mailboxes is None:
            return prepared
        try:
            lying = [await self._mailboxes.put_files(kept, message) for message in told.carrying]
        except Unavailable as fault:
            return missing_files_report(str(fault))
        now = told.having(lying)
        return prepared if now is told else ready.agent.prepare(now.wish, room)

    async def open(self, assignment: Assignment, kept: KeptAttempt) -> None:
        """Start serving the mailbox of a launch."""
        if self._mailboxes is not None:
            stop = partial(self._minding.cancel, kept, 0.0)
            await self._mailboxes.open(assignment, kept, self._yard.make_mailbox(kept), stop)

    async def while_served(
        self,
        assignment: Assignment,
        kept: KeptAttempt,
        hear: Callable[[], Awaitable[Heard]],
        stopped: Callable[[], bool],
    ) -> tuple[Heard, str | None]:
        """Serve a mailbox while its program runs, and then the remaining commands.

        For a stopped program nothing more is executed. Returns the result of `hear`, and why the
        attempt must fail, if so.
        """
        if self._mailboxes is None:
            return await hear(), None
        await self.open(assignment, kept)
        heard = await hear()
        return heard, await self._mailboxes.close(kept, drain=not stopped())

    def leave(self, run_id: RunId) -> None:
        """Stop serving the mailbox of a run in this process."""
        if self._mailboxes is not None:
            self._mailboxes.release(run_id)

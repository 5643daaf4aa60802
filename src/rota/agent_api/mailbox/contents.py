"""What Rota puts into a mailbox: message files, follow-up messages and snapshots.

They lie in `in/files/ID`, ID being the message's. That folder is filled under another name and then
renamed: where it is, all files of its message are, whoever died meanwhile.

A message is only given to a program that has said `listen`, and not any more once it has said
`close`. It counts as read when the program says `ack` with its number. What was never acknowledged
was never read, whatever became of the program: whoever gave it keeps it for the next run.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from rota.agent_api.mailbox.folder import FOLDER, NEW, PRIVATE, Mailbox
from rota.errors import Unavailable
from rota.flow.attempt.programs import await_uninterrupted
from rota.model.audit import AttemptIdentity
from rota.model.spaces import SpaceRole
from rota.model.threads import MessageFile, ThreadFilter, ThreadMessage
from rota.ports.mailbox import FILES, Acknowledged
from rota.store.store import Store, until_available
from rota.store.tasks import find_space
from rota.store.threads import list_threads, read_message_file

log = logging.getLogger(__name__)

OWN = 0o700

Result = TypeVar("Result")
Off: TypeAlias = Callable[..., Awaitable[Any]]


class FileDelivery:
    """Lays files into one mailbox, one at a time: so much of them is held in memory."""

    def __init__(self, box: Mailbox, store: Store, off: Off) -> None:
        self._box = box
        self._store = store
        self._off = off

    async def bring(self, message: ThreadMessage) -> ThreadMessage:
        """Lay the files of a message there, unless they are, and return what is known of them.

        Raises Unavailable if that fails; whatever happens on the way, nothing half done is left.
        """
        aside = f".{secrets.token_hex(8)}"
        try:
            lying = await self._whole(self._lying, message)
            if lying is None:
                lying = await self._lay(aside, message)
        except BaseException as fault:
            with suppress(OSError, RuntimeError):  # the threads may have ended with the daemon
                await self._whole(self._drop, aside)
            if not isinstance(fault, OSError):
                raise
            why = os.strerror(fault.errno or 0).lower()
            sentence = f"the files of message {message.id} cannot be written: {why}"
            raise Unavailable(sentence) from fault
        return replace(message, lost=frozenset(file.name for file in message.files) - lying)

    async def _lay(self, aside: str, message: ThreadMessage) -> frozenset[str]:
        """Lay files there; what is gone, or not what was sent, will never be had again."""
        await self._whole(self._begin, aside)
        lying = set()
        for position, facts in enumerate(message.files):
            content = await until_available(
                partial(self._store.read, read_message_file, message.id, position)
            )
            if content is not None and await self._whole(self._add, aside, facts, content):
                lying.add(facts.name)
            else:
                told = {"message_id": message.id, "file": facts.name}
                log.warning("message.file_lost", extra=told)
        await self._whole(self._end, aside, message)
        return frozenset(lying)

    async def _whole(self, work: Callable[..., Result], *args: object) -> Result:
        """Do something beside the loop, to its end also when this is cancelled meanwhile."""
        doing: asyncio.Future[Result] = asyncio.ensure_future(self._off(work, *args))
        if await await_uninterrupted(doing):
            doing.exception()
            raise asyncio.CancelledError
        return doing.result()

    def _lying(self, message: ThreadMessage) -> frozenset[str] | None:
        """Return which files of a message lie there; None if it was not brought."""
        with self._box.within(FILES) as held:
            try:
                folder = os.open(str(message.id), FOLDER, dir_fd=held)
            except FileNotFoundError:
                return None
        try:
            with os.scandir(folder) as entries:
                return frozenset(entry.name for entry in entries)
        finally:
            os.close(folder)

    def _begin(self, aside: str) -> None:
        with self._box.within(FILES) as held:
            os.mkdir(aside, OWN, dir_fd=held)

    def _add(self, aside: str, facts: MessageFile, content: bytes) -> bool:
        """Lay a file there; false if it is not the one that was sent."""
        if hashlib.sha256(content).hexdigest() != facts.sha256:
            return False
        with self._box.within(FILES) as held:
            folder = os.open(aside, FOLDER, dir_fd=held)
        try:
            file = os.open(facts.name, NEW, PRIVATE, dir_fd=folder)
            with os.fdopen(file, "wb") as writing:
                writing.write(content)
        finally:
            os.close(folder)
        return True

    def _end(self, aside: str, message: ThreadMessage) -> None:
        with self._box.within(FILES) as held:
            os.rename(aside, str(message.id), src_dir_fd=held, dst_dir_fd=held)

    def _drop(self, aside: str) -> None:
        """Take away what was begun, which makes room on a full disk."""
        with self._box.within(FILES) as held:
            folder = os.open(aside, FOLDER, dir_fd=held)
            try:
                with os.scandir(folder) as entries:
                    names = [entry.name for entry in entries]
                for name in names:
                    os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)
            os.rmdir(aside, dir_fd=held)


STATE = "state.json"
MOST_UNREAD = 100
"""How many messages may wait in a mailbox; more is for the next run."""


async def nobody(held: AttemptIdentity, number: int) -> None:
    """Tell nobody."""


class FollowUpMessages:
    """The messages of one mailbox; what it knows stands in the mailbox, for the next process."""

    def __init__(
        self, held: AttemptIdentity, box: Mailbox, off: Off, acknowledged: Acknowledged = nobody
    ) -> None:
        self._held = held
        self._box = box
        self._off = off
        self._acknowledged = acknowledged
        self._state: dict[str, Any] = {}
        self.verbs: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            "listen": self._listen,
            "ack": self._ack,
            "close": self._close,
        }

    async def open(self) -> None:
        """Learn what an earlier process has left."""
        self._state = await self._off(self._box.shown, STATE)

    @property
    def _given(self) -> int:
        given = self._state.get("given")
        return given if isinstance(given, int) else 0

    @property
    def _listening(self) -> bool:
        return self._state.get("listening") is True

    async def give(self, tell: Callable[[], Awaitable[Mapping[str, Any]]]) -> int | None:
        """Put a message into the mailbox and return its number; None if nobody would read it.

        Only then is it asked for, with all that it needs brought here.
        """
        if not self._listening or len(await self._off(self._box.unread)) >= MOST_UNREAD:
            return None
        message = await tell()
        number = self._given + 1
        await self._note(given=number)
        await self._off(self._box.give, number, {**message, "number": number})
        return number

    async def _note(self, **facts: object) -> None:
        self._state = {**self._state, **facts}
        await self._off(self._box.show, STATE, self._state)

    async def _listen(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields:
            return _unknown(fields)
        await self._note(listening=True)
        return {"ok": True, "unread": await self._off(self._box.unread)}

    async def _close(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields:
            return _unknown(fields)
        await self._note(listening=False)
        return {"ok": True, "unread": await self._off(self._box.unread)}

    async def _ack(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        number = fields.get("number")
        if set(fields) != {"number"} or type(number) is not int:
            return _refused("invalid", "number: give the number of a message, and nothing else")
        if not 1 <= number <= self._given:
            return _refused("not_found", f"no message {number} was given: see in/messages")
        if number in await self._off(self._box.unread):
            await self._acknowledged(self._held, number)
            await self._off(self._box.take_back, number)
        return {"ok": True, "number": number}


def _unknown(fields: Mapping[str, Any]) -> dict[str, Any]:
    return _refused("invalid", f"{next(iter(fields))[:80]}: there is no such field; give none")


def _refused(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


MOST_TASKS = 100
MAX_THREADS = 1_000
TOLD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tasks.json": ("list_tasks", {"limit": MOST_TASKS}),
    "sessions.json": ("list_sessions", {}),
}
"""What is shown, and the command that would tell the same; what nobody can tell is not shown."""
THREADS = "threads.json"


class CommandDispatcher(Protocol):
    """Who carries commands out for attempts."""

    async def serve(
        self, held: AttemptIdentity, verb: str, fields: Mapping[str, Any], request_id: str
    ) -> dict[str, Any]:
        """Return the answer: `ok`, and what was found or what was wrong."""


class SnapshotWriter:
    """Shows programs what they may see themselves, and no more."""

    def __init__(self, desk: CommandDispatcher, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def fill(
        self, held: AttemptIdentity, box: Mailbox, off: Callable[..., Awaitable[Any]]
    ) -> list[str]:
        """Put what there is now into a mailbox; return the names of the files."""
        shown = []
        for name, (verb, fields) in TOLD.items():
            found = await self._desk.serve(held, verb, fields, f"snapshot-{verb}")
            if found.pop("ok") is True:
                await off(box.show, name, found)
                shown.append(name)
        with suppress(Unavailable):
            await off(box.show, THREADS, {"threads": await self._threads(held)})
            shown.append(THREADS)
        return shown

    async def _threads(self, held: AttemptIdentity) -> list[dict[str, str | None]]:
        space = await self._store.read(find_space, held.space)
        seen = None if space.role is SpaceRole.MAIN else space.id
        found = await self._store.read(list_threads, ThreadFilter(seen, limit=MAX_THREADS))
        return [
            {
                "space": each.space,
                "thread": each.key,
                "title": each.title,
                "task": each.task,
                "said_at": None if each.said_at is None else each.said_at.isoformat(),
            }
            for each in found
        ]

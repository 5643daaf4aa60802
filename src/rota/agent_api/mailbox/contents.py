"""What Rota puts into a mailbox: message files, follow-up messages and snapshots.

Message files are in `in/files/ID`, where ID is the id of the message. The folder is written under
another name and renamed, so that it is complete when it exists.

Rota gives messages only to a program that has sent `listen`, until it sends `close`. A message
counts as read when the program acknowledges its number. The next run gets messages that were not
acknowledged.
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
    """Writes message files into one mailbox, one at a time to limit memory."""

    def __init__(self, box: Mailbox, store: Store, off: Off) -> None:
        self._box = box
        self._store = store
        self._off = off

    async def bring(self, message: ThreadMessage) -> ThreadMessage:
        """Write the files of a message unless they exist, and return their metadata.

        Raises Unavailable on failure and then leaves no incomplete folder.
        """
        aside = f".{secrets.token_hex(8)}"
        try:
            lying = await self._whole(self._lying, message)
            if lying is None:
                lying = await self._lay(aside, message)
        except BaseException as fault:
            with suppress(
                OSError, RuntimeError
            ):  # the worker threads may have ended with the daemon
                await self._whole(self._drop, aside)
            if not isinstance(fault, OSError):
                raise
            why = os.strerror(fault.errno or 0).lower()
            sentence = f"the files of message {message.id} cannot be written: {why}"
            raise Unavailable(sentence) from fault
        return replace(message, lost=frozenset(file.name for file in message.files) - lying)

    async def _lay(self, aside: str, message: ThreadMessage) -> frozenset[str]:
        """Write files and return the names of those that are missing or damaged in the store."""
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
        """Run a function in a thread to its end, even if this task is cancelled."""
        doing: asyncio.Future[Result] = asyncio.ensure_future(self._off(work, *args))
        if await await_uninterrupted(doing):
            doing.exception()
            raise asyncio.CancelledError
        return doing.result()

    def _lying(self, message: ThreadMessage) -> frozenset[str] | None:
        """Return which files of a message exist; None if it was not written yet."""
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
        """Write a file; return False if its content does not match its hash."""
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
        """Delete an incomplete folder, which also frees space on a full disk."""
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
"""Maximum number of waiting messages in a mailbox; others go to the next run."""


async def nobody(held: AttemptIdentity, number: int) -> None:
    """Ignore an acknowledgement."""


class FollowUpMessages:
    """The messages of one mailbox; all state is in the mailbox, for the next process."""

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
        """Read the state that an earlier process left."""
        self._state = await self._off(self._box.shown, STATE)

    @property
    def _given(self) -> int:
        given = self._state.get("given")
        return given if isinstance(given, int) else 0

    @property
    def _listening(self) -> bool:
        return self._state.get("listening") is True

    async def give(self, tell: Callable[[], Awaitable[Mapping[str, Any]]]) -> int | None:
        """Put a message into the mailbox and return its number; None if nobody listens.

        The message and its files are prepared only after this check.
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
            return _refused("invalid", "number: give only the number of a message")
        if not 1 <= number <= self._given:
            return _refused("not_found", f"no message {number} was given: see in/messages")
        if number in await self._off(self._box.unread):
            await self._acknowledged(self._held, number)
            await self._off(self._box.take_back, number)
        return {"ok": True, "number": number}


def _unknown(fields: Mapping[str, Any]) -> dict[str, Any]:
    return _refused("invalid", f"{next(iter(fields))[:80]}: unknown field")


def _refused(code: str, message: str) -> dict[str, Any]:
    return {"ok": False, "error": {"code": code, "message": message}}


MOST_TASKS = 100
MAX_THREADS = 1_000
TOLD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tasks.json": ("list_tasks", {"limit": MOST_TASKS}),
    "sessions.json": ("list_sessions", {}),
}
"""The snapshot files and the commands that produce them; refused commands are left out."""
THREADS = "threads.json"


class CommandDispatcher(Protocol):
    """Executes commands for attempts."""

    async def serve(
        self, held: AttemptIdentity, verb: str, fields: Mapping[str, Any], request_id: str
    ) -> dict[str, Any]:
        """Return the answer with `ok` and the result or the error."""


class SnapshotWriter:
    """Writes what a program may see itself into its mailbox."""

    def __init__(self, desk: CommandDispatcher, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def fill(
        self, held: AttemptIdentity, box: Mailbox, off: Callable[..., Awaitable[Any]]
    ) -> list[str]:
        """Write the snapshots and return the names of the files."""
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
                "said_at": None
                if each.last_message_at is None
                else each.last_message_at.isoformat(),
            }
            for each in found
        ]

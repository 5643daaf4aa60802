"""Bringing: the files of messages, laid into a mailbox for its program to read.

They lie in `in/files/ID`, ID being the message's. That folder is filled under another name and then
renamed: where it is, all files of its message are, whoever died meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from rota.doors.inside.mailbox.box import FOLDER, NEW, PRIVATE, Box
from rota.errors import Unavailable
from rota.flow.execute.patiently import patiently, to_the_end
from rota.model.messages import MessageFile, ThreadMessage
from rota.ports.mailboxes import FILES
from rota.ports.store import Store

log = logging.getLogger(__name__)

OWN = 0o700

Result = TypeVar("Result")
Off: TypeAlias = Callable[..., Awaitable[Any]]


class Bringing:
    """Lays files into one mailbox, one at a time: so much of them is held in memory."""

    def __init__(self, box: Box, store: Store, off: Off) -> None:
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
            content = await patiently(partial(self._store.message_content, message.id, position))
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
        if await to_the_end(doing):
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

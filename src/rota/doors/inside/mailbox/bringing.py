"""Bringing: the files of messages, laid into a mailbox for its program to read.

They lie in `in/files/ID`, ID being the message's. That folder is filled under another name and then
renamed: where it is, all files of its message are, whoever died meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from rota.doors.inside.mailbox.box import FOLDER, NEW, PRIVATE, Box
from rota.errors import Unavailable
from rota.flow.execute.patiently import patiently
from rota.model.messages import MessageFile, ThreadMessage
from rota.ports.mailboxes import FILES
from rota.ports.store import Store

OWN = 0o700

Off: TypeAlias = Callable[..., Awaitable[Any]]


class Bringing:
    """Lays files into one mailbox, one at a time: so much of them is held in memory."""

    def __init__(self, box: Box, store: Store, off: Off) -> None:
        self._box = box
        self._store = store
        self._off = off

    async def bring(self, message: ThreadMessage) -> None:
        """Lay the files of a message there, unless they are; raises Unavailable if that fails."""
        aside = f".{secrets.token_hex(8)}"
        try:
            if await self._off(self._is_there, message):
                return
            await self._off(self._begin, aside)
            for position, facts in enumerate(message.files):
                read = partial(self._store.message_content, message.id, position)
                content = await patiently(read)
                await self._off(self._add, aside, facts, _checked(message, facts, content))
            await self._off(self._end, aside, message)
        except OSError as fault:
            with suppress(OSError):
                await self._off(self._drop, aside)
            why = os.strerror(fault.errno or 0).lower()
            sentence = f"the files of message {message.id} cannot be written: {why}"
            raise Unavailable(sentence) from fault

    def _is_there(self, message: ThreadMessage) -> bool:
        with self._box.within(FILES) as held:
            try:
                os.stat(str(message.id), dir_fd=held, follow_symlinks=False)
            except FileNotFoundError:
                return False
        return True

    def _begin(self, aside: str) -> None:
        with self._box.within(FILES) as held:
            os.mkdir(aside, OWN, dir_fd=held)

    def _add(self, aside: str, facts: MessageFile, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != facts.sha256:
            raise Unavailable(f"the file {facts.name} is not the one that was sent: send it again")
        with self._box.within(FILES) as held:
            folder = os.open(aside, FOLDER, dir_fd=held)
        try:
            file = os.open(facts.name, NEW, PRIVATE, dir_fd=folder)
            with os.fdopen(file, "wb") as writing:
                writing.write(content)
        finally:
            os.close(folder)

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


def _checked(message: ThreadMessage, facts: MessageFile, content: bytes | None) -> bytes:
    if content is None:
        raise Unavailable(f"the file {facts.name} of message {message.id} is gone: send it again")
    return content

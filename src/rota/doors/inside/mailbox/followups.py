"""Follow-ups: messages that come while a program runs, and how it says that it has read them.

A message is only given to a program that has said `listen`, and not any more once it has said
`close`. It counts as read when the program says `ack` with its number. What was never acknowledged
was never read, whatever became of the program: whoever gave it keeps it for the next run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from rota.doors.inside.mailbox.box import Box
from rota.model.inside import Held
from rota.ports.mailboxes import Acknowledged

STATE = "state.json"
MOST_UNREAD = 100
"""How many messages may wait in a mailbox; more is for the next run."""

Off: TypeAlias = Callable[..., Awaitable[Any]]


async def nobody(held: Held, number: int) -> None:
    """Tell nobody."""


class FollowUps:
    """The messages of one mailbox; what it knows stands in the mailbox, for the next process."""

    def __init__(self, held: Held, box: Box, off: Off, acknowledged: Acknowledged = nobody) -> None:
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

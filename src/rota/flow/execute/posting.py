"""Posting: the mailbox of a try is open before its program starts, and empty before its verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from rota.errors import Unavailable
from rota.flow.execute.minding import Minding
from rota.flow.execute.readying import Ready
from rota.flow.execute.reporting import unbrought
from rota.flow.execute.trying import Told
from rota.model.ids import RunId
from rota.model.keeping import Kept
from rota.model.outcomes import Report
from rota.ports.agent import Prepared, Room
from rota.ports.mailboxes import Mailboxes, files_in
from rota.ports.runner import Assignment
from rota.ports.yard import Yard

Heard = TypeVar("Heard")


class Posting:
    """The mailboxes of attempts, as kept work uses them; where there are none, nothing happens."""

    def __init__(self, yard: Yard, minding: Minding, mailboxes: Mailboxes | None) -> None:
        self._yard = yard
        self._minding = minding
        self._mailboxes = mailboxes

    def told(self, room: Room, kept: Kept) -> Room:
        """Return a room whose program knows where the mailbox of its try is."""
        if self._mailboxes is None:
            return room
        box = self._yard.mailbox(kept)
        return replace(room, mailbox=box, ids={**room.ids, "ROTA_MAILBOX": box})

    def files(self, assignment: Assignment, kept: Kept) -> str | None:
        """Return where the program of a try finds the files of messages; None if nowhere."""
        if self._mailboxes is None or assignment.lease.thread is None:
            return None
        return files_in(self._yard.mailbox(kept))

    async def bring(
        self, kept: Kept, told: Told, prepared: Prepared, ready: Ready, room: Room
    ) -> Prepared | Report:
        """Lay the files of what a program is told into the mailbox of its try.

        Returns what is to be run, prepared again if files are lost, or that the attempt failed.
        """
        if self._mailboxes is None:
            return prepared
        try:
            lying = [await self._mailboxes.bring(kept, message) for message in told.carrying]
        except Unavailable as fault:
            return unbrought(str(fault))
        now = told.having(lying)
        return prepared if now is told else ready.agent.prepare(now.wish, room)

    async def open(self, assignment: Assignment, kept: Kept) -> None:
        """Serve the mailbox of a try, if nobody does."""
        if self._mailboxes is not None:
            stop = partial(self._minding.cancel, kept, 0.0)
            await self._mailboxes.open(assignment, kept, self._yard.mailbox(kept), stop)

    async def while_served(
        self,
        assignment: Assignment,
        kept: Kept,
        hear: Callable[[], Awaitable[Heard]],
        stopped: Callable[[], bool],
    ) -> tuple[Heard, str | None]:
        """Serve a mailbox while its program is heard, and then what the program has left there.

        Nothing more is carried out for one that somebody stopped. Returns what was heard, and why
        the attempt must fail, if so.
        """
        if self._mailboxes is None:
            return await hear(), None
        await self.open(assignment, kept)
        heard = await hear()
        return heard, await self._mailboxes.close(kept, drain=not stopped())

    def leave(self, run_id: RunId) -> None:
        """Serve the mailbox of a run no more, whoever will."""
        if self._mailboxes is not None:
            self._mailboxes.leave(run_id)

"""Mailboxes of attempts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from rota.model.attempts import Assignment, KeptAttempt
from rota.model.audit import AttemptIdentity
from rota.model.ids import Epoch, RunId
from rota.model.threads import ThreadMessage

OUT = "out"
"""What the program writes into; everybody else only reads there, and takes away."""
IN = "in"
"""What the program reads, and cannot write to behind walls."""
REPLIES = "replies"
"""The folder in `in` with the answers to commands."""
MESSAGES = "messages"
"""The folder in `in` with messages that came while the program ran."""
FILES = "files"
"""The folder in `in` with the files of messages, in a folder for each by its id."""


def files_in(box: str) -> str:
    """Return where the files of messages lie in a mailbox."""
    return f"{box}/{IN}/{FILES}"


Acknowledged: TypeAlias = Callable[[AttemptIdentity, int], Awaitable[object]]
"""Told that an attempt has read everything up to a number; raises if it was given none such."""


class MailboxFolder(Protocol):
    """Where a program that runs finds what it is told."""

    async def bring(self, kept: KeptAttempt, message: ThreadMessage) -> ThreadMessage:
        """Lay the files of a message into the mailbox of a try, all of them, unless they are there.

        Returns the message, which knows those that are `lost`: what is not what was sent is left
        out, now and ever after. Raises Unavailable, and lays none there, if they cannot be written.
        """

    async def give(
        self,
        run_id: RunId,
        epoch: Epoch,
        message: ThreadMessage,
        told: Callable[[ThreadMessage], Mapping[str, Any]],
    ) -> int | None:
        """Put a message, as it is told, into the mailbox of an attempt and return its number.

        None, and nothing is given, unless the program has said that it listens. It has read the
        message when it acknowledges the number, and not before. Its files are brought before.
        """


class MailboxService(MailboxFolder, Protocol):
    """The mailboxes of the attempts that are heard here, one for each try."""

    async def open(
        self, assignment: Assignment, kept: KeptAttempt, folder: str, stop: Callable[[str], None]
    ) -> None:
        """Serve a try's mailbox from now on; nothing happens if it is served already.

        Who opens one before the program starts fills in what the program is to find. `stop` is
        called once, with the reason, if the program misuses it: the attempt must fail. Raises
        Unavailable if the folder cannot be used.
        """

    async def close(self, kept: KeptAttempt, *, drain: bool) -> str | None:
        """Serve it no more, after what the program has left behind if that is still to be done.

        Call it when nothing of the program is alive. Returns why the attempt must fail, if so.
        """

    def leave(self, run_id: RunId) -> None:
        """Serve the mailbox of a run no more here: another process may, where its program goes on.

        Nothing happens where none is served.
        """

    def tell(self, acknowledged: Acknowledged) -> None:
        """Let somebody know of every message that a program acknowledges, from now on."""

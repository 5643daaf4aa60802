"""Mailboxes: folders through which attempts exchange commands, replies and messages with Rota."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from rota.model.attempts import Assignment, KeptAttempt
from rota.model.audit import AttemptIdentity
from rota.model.ids import Epoch, RunId
from rota.model.threads import ThreadMessage

OUT = "out"
"""Folder that the program writes to; Rota only reads and removes files in it."""
IN = "in"
"""Folder that the program reads; isolated programs cannot write to it."""
REPLIES = "replies"
"""Folder in `in` with replies to commands."""
MESSAGES = "messages"
"""Folder in `in` with messages that arrive while the program runs."""
FILES = "files"
"""Folder in `in` with the files of messages, one folder per message id."""


def files_in(box: str) -> str:
    """Return the folder with the files of messages in a mailbox."""
    return f"{box}/{IN}/{FILES}"


Acknowledged: TypeAlias = Callable[[AttemptIdentity, int], Awaitable[object]]
"""Called when an attempt acknowledges all messages up to a number; raises if there is none."""


class MailboxFolder(Protocol):
    """Puts messages and their files into the mailboxes of running programs."""

    async def put_files(self, kept: KeptAttempt, message: ThreadMessage) -> ThreadMessage:
        """Put the files of a message into the mailbox of a launch, unless they are there.

        Returns the message with the `lost` files noted: files that differ from what was sent are
        left out permanently. Raises Unavailable, and puts none there, if they cannot be written.
        """

    async def put_message(
        self,
        run_id: RunId,
        epoch: Epoch,
        message: ThreadMessage,
        told: Callable[[ThreadMessage], Mapping[str, Any]],
    ) -> int | None:
        """Put a message into the mailbox of an attempt and return its number.

        Returns None, and does nothing, unless the program has announced that it reads messages. It
        has read the message once it acknowledges the number. Its files must have been put there
        before.
        """


class MailboxService(MailboxFolder, Protocol):
    """Serves the mailboxes of the attempts of this process, one per launch."""

    async def open(
        self, assignment: Assignment, kept: KeptAttempt, folder: str, stop: Callable[[str], None]
    ) -> None:
        """Start serving the mailbox of a launch, unless it is served already.

        If called before the program starts, it also writes what the program expects to find. `stop`
        is called once, with the reason, if the program misuses the mailbox: the attempt must fail.
        Raises Unavailable if the folder cannot be used.
        """

    async def close(self, kept: KeptAttempt, *, drain: bool) -> str | None:
        """Stop serving a mailbox; with `drain`, first process what the program has left in it.

        Call it when no process of the program is alive. Returns why the attempt must fail, if so.
        """

    def release(self, run_id: RunId) -> None:
        """Stop serving the mailbox of a run that another process takes over, if one is served."""

    def set_callback(self, acknowledged: Acknowledged) -> None:
        """Register a callback for the messages that programs acknowledge."""

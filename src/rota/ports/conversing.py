"""What conversations need of a store: sessions that threads go on in, and messages."""

from __future__ import annotations

from typing import Protocol

from rota.model.ids import MessageId, RunId
from rota.model.keeping import KeptSession
from rota.model.messages import NewMessage, ThreadMessage
from rota.model.runs import RunBatch
from rota.model.sessions import AgentSession, Exchange, SessionFilter
from rota.ports.timed import Timed


class Conversing(Timed, Protocol):
    """Sessions and messages; what concerns a run that goes on is fenced by its epoch."""

    async def find_session(
        self, run_id: int, agent: str, *, shared: bool, own: bool
    ) -> KeptSession | None:
        """Return what a run goes on in: with `own` its session, with `shared` its thread's."""

    async def list_sessions(self, wanted: SessionFilter) -> list[AgentSession]:
        """Return sessions, newest first."""

    async def get_session(self, session_id: int) -> AgentSession | None:
        """Return a session; None if there is none, or it was cleared."""

    async def session_history(self, session_id: int, before: int, most: int) -> list[Exchange]:
        """Return what was said in a session, newest first."""

    async def search_sessions(
        self, space: str | None, thread: str | None, words: str, most: int
    ) -> list[Exchange]:
        """Return where words were said or answered of late, newest first."""

    async def archive_session(self, session_id: int, title: str | None) -> bool:
        """Put a session aside, so that the next run begins a new one; false if there is none."""

    async def clear_session(self, session_id: int) -> bool:
        """Forget a session and what was said in it for good; false if there is none."""

    async def resume_session(self, session_id: int, title: str | None) -> bool:
        """Let the next run go on in a session; the one it takes the place of is archived."""

    async def say(self, message: NewMessage, reader: RunBatch | None) -> ThreadMessage:
        """Write a message down, and queue a run that reads it unless one is queued already.

        It is there with all its files, or not at all. Without a reader it asks for nobody, and is
        read with the next one that does.
        """

    async def read_again(self, run_id: int, reader: RunBatch) -> RunId | None:
        """Queue another run to read what an earlier one was to; None if that had nothing to."""

    async def give_messages(self, run_id: int, epoch: int, worker: str) -> list[ThreadMessage]:
        """Give a run everything it was queued to read, the same again at a later attempt."""

    async def take_messages(self, run_id: int, epoch: int, upto: int) -> int | None:
        """Note that a run which goes on has read everything up to a message; return how many.

        None if the run does not go on, or nothing of that number was said in its conversation.
        """

    async def message_content(self, message_id: int, position: int) -> bytes | None:
        """Return what is in a file of a message, the first at 0; None if there is no such one."""

    async def find_thread(self, key: str) -> int | None:
        """Return the space that a thread belongs to; None if there is no such thread."""

    async def pending_messages(self, thread: str, box: str, most: int) -> list[ThreadMessage]:
        """Return what nobody has read in a thread and is not in a box, oldest first."""

    async def box_message(self, message_id: int, box: str, number: int) -> None:
        """Note that a message lies in a box, and what it is called there."""

    async def boxed_message(self, box: str, number: int) -> MessageId | None:
        """Return the message that a box calls by a number."""

    async def list_messages(
        self, thread: str, space: str | None, before: int, most: int
    ) -> list[ThreadMessage]:
        """Return what was said in a thread, newest first."""

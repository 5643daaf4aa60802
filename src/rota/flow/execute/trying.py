"""What a try needs before it begins: its session, what its agent is told, and its time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from rota.flow.execute.again import Patience
from rota.flow.execute.patiently import patiently
from rota.flow.execute.preparing import wish_of
from rota.model.keeping import KeptSession
from rota.model.said import Usage
from rota.model.wishes import Wish
from rota.ports.agent import Agent, Room
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.rules.approvals import APPROVAL

ASKED = ("ask", APPROVAL)
"""The kinds of questions that a run has asked itself."""


class Trying:
    """Finds out what a try needs."""

    def __init__(
        self, store: Store, patience: Patience, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._store = store
        self._sleep = sleep
        self.patience = patience

    async def session(self, assignment: Assignment, agent: Agent, wish: Wish) -> KeptSession | None:
        """Return the session in which a run goes on, if its task wants that."""
        if not wish.keep_session:
            return None
        task, thread = assignment.lease.task_id, assignment.lease.thread
        found = await patiently(lambda: self._store.find_session(task, thread))
        return found if found is not None and found.agent == agent.name else None

    async def told(self, assignment: Assignment, wish: Wish, *, resumed: bool) -> Wish:
        """Return what an agent is told: with what it asked and was answered, if it has asked."""
        if not assignment.answers:
            return wish
        run_id = assignment.lease.run_id
        questions = await patiently(lambda: self._store.list_questions([run_id]))
        own = [question for question in questions if question.kind in ASKED]
        return wish_of(assignment, own, resumed=resumed)

    async def wait(self, until: int) -> None:
        """Wait until an instant."""
        while (left := until - self._store.now()) > 0:
            await self._sleep(left / 1_000_000)


def in_session(room: Room, session: KeptSession | None) -> Room:
    """Return the room of a try that goes on in a session."""
    if session is None:
        return room
    used = Usage(input=session.input, output=session.output, cached=session.cached)
    return replace(room, session=session.id, used=used)

"""Sessions of agents, and their exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rota.model.ids import Epoch, RunId, SessionId

LONGEST_SAID = 16 * 1024
"""How much of what an agent was told is kept with its session, in characters."""
LONGEST_TITLE = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """An agent's own conversation, as it stands in the store.

    It belongs to a thread, or to the one task that goes on in it. `name` is what the agent calls
    it. One that is not archived is what the next run goes on in.
    """

    id: SessionId
    space: str
    thread: str | None
    task: str | None
    agent: str
    name: str
    title: str
    input: int
    output: int
    cached: int
    runs: int
    started_at: datetime
    used_at: datetime
    archived_at: datetime | None


class Exchange(NamedTuple):
    """What an attempt told its agent in a session, and what its run came to."""

    session_id: SessionId
    run_id: RunId
    epoch: Epoch
    task: str | None
    at: datetime
    prompt: str
    state: str | None
    result: str | None
    error: str | None


class SessionFilter(NamedTuple):
    """Which sessions to list, newest first; None leaves it open."""

    space: str | None = None
    thread: str | None = None
    agent: str | None = None
    archived: bool | None = None
    before: int | None = None
    limit: int = 50


def title_of(said: str) -> str:
    """Return the first words of a text, on one line."""
    words = " ".join(said[: LONGEST_TITLE * 4].split())
    return words if len(words) <= LONGEST_TITLE else words[: LONGEST_TITLE - 1] + "…"

"""Sessions of agents, and their exchanges."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from rota.model.ids import Epoch, RunId, SessionId

MAX_PROMPT_TEXT = 16 * 1024
"""Characters of a prompt that are kept with its session."""
MAX_TITLE = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """A session of an agent, as stored.

    It belongs to a thread, or to the one task that continues it. `name` is the agent's id of it.
    The next run continues the session that is not archived.
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
    """The prompt of one attempt in a session, and the result of its run."""

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
    """Which sessions to list, newest first; None matches all."""

    space: str | None = None
    thread: str | None = None
    agent: str | None = None
    archived: bool | None = None
    before: int | None = None
    limit: int = 50


def title_of(said: str) -> str:
    """Return the start of a text, on one line."""
    words = " ".join(said[: MAX_TITLE * 4].split())
    return words if len(words) <= MAX_TITLE else words[: MAX_TITLE - 1] + "…"

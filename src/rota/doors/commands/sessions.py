"""Sessions: list, look at, search, put aside, forget, and go on in an earlier one."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from rota.doors.commands.fields import PLAIN, Id, Json, Limit, SpaceName, Text, ThreadKey, Word
from rota.doors.commands.finding import space_of
from rota.doors.commands.shapes import Asked, Given
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import sessions
from rota.model.keys import KeyScope
from rota.model.sessions import AgentSession, Exchange, SessionFilter
from rota.rules.permission import seen_space

Title = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
LAST = 2**62


class SessionsWanted(Asked):
    """Which sessions to list, newest first."""

    thread: ThreadKey | None = None
    agent: Word | None = None
    archived: bool | None = None
    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class SessionGiven(Given):
    """An agent's conversation; without `archived_at` the thread's next run goes on in it."""

    id: int
    space: str
    thread: str | None
    task: str | None = Field(description="Whose it is, if it is not a thread's.")
    agent: str
    name: str = Field(description="What the agent calls it.")
    title: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    runs: int
    started_at: datetime
    used_at: datetime
    archived_at: datetime | None


class Sessions(Given):
    """Sessions, newest first; `next` continues the list as `before`."""

    sessions: list[SessionGiven]
    next: int | None = None


class ExchangeGiven(Given):
    """What was said in a session, and what it came to."""

    session: int
    run: int
    attempt: int
    task: str | None
    at: datetime
    said: str
    state: str | None
    result: Json
    error: str | None


class OneSession(Asked):
    """One session, and which part of what was said in it."""

    session: Id
    before: Id | None = None
    limit: Limit = 50


class SessionShown(SessionGiven):
    """A session with what was said in it, newest first; `next` continues as `before`."""

    history: list[ExchangeGiven]
    next: int | None


class Words(Asked):
    """Words to be found in what was said and answered of late."""

    words: Annotated[Text, StringConstraints(min_length=1, max_length=200)]
    thread: ThreadKey | None = None
    space: SpaceName | None = None
    limit: Limit = 20


class Found(Given):
    """Where the words stand, newest first."""

    found: list[ExchangeGiven]


class MeantSessions(Asked):
    """A session, or what the next run of a thread would go on in."""

    session: Id | None = None
    thread: ThreadKey | None = None
    agent: Word | None = Field(default=None, description="Of a thread: only this agent's.")
    space: SpaceName | None = None

    @model_validator(mode="after")
    def _meant(self) -> MeantSessions:
        if self.session is None and self.thread is None:
            message = "say which: a session, or a thread"
            raise ValueError(message)
        return self


class PutAside(MeantSessions):
    """What is put aside, and what it is called from now on."""

    title: Title | None = None


class Resumed(Asked):
    """A session to go on in, and what the one in its place is called from now on."""

    session: Id
    title: Title | None = None
    thread: ThreadKey | None = None


def session_given(found: AgentSession) -> SessionGiven:
    """Return a session as it goes over a wire."""
    return SessionGiven(
        id=found.id,
        space=found.space,
        thread=found.thread,
        task=found.task,
        agent=found.agent,
        name=found.name,
        title=found.title,
        input_tokens=found.input,
        output_tokens=found.output,
        cached_tokens=found.cached,
        runs=found.runs,
        started_at=found.started_at,
        used_at=found.used_at,
        archived_at=found.archived_at,
    )


def _exchange(found: Exchange) -> ExchangeGiven:
    return ExchangeGiven(
        session=found.session_id,
        run=found.run_id,
        attempt=found.epoch,
        task=found.task,
        at=found.at,
        said=found.said,
        state=found.state,
        result=_result(found.result),
        error=found.error,
    )


def _result(text: str | None) -> Any:  # noqa: ANN401 - any JSON value
    """Return a result; of a long one that was found by its words, the beginning as it stands."""
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return text


def _listed(found: list[AgentSession]) -> Sessions:
    return Sessions(sessions=[session_given(one) for one in found])


@command("GET", "/v1/sessions", KeyScope.READ)
async def list_sessions(office: Office, asked: SessionsWanted) -> Sessions:
    """List sessions, newest first."""
    wanted = SessionFilter(
        space=seen_space(office.caller, asked.space),
        thread=asked.thread,
        agent=asked.agent,
        archived=asked.archived,
        before=asked.before,
        limit=asked.limit,
    )
    found = await office.store.list_sessions(wanted)
    more = found[-1].id if len(found) == asked.limit else None
    return Sessions(sessions=[session_given(one) for one in found], next=more)


@command("GET", "/v1/sessions/search", KeyScope.READ)
async def search_sessions(office: Office, asked: Words) -> Found:
    """Find words in the newest of what agents were told and have answered, newest first."""
    space = seen_space(office.caller, asked.space)
    found = await office.store.search_sessions(space, asked.thread, asked.words, asked.limit)
    return Found(found=[_exchange(one) for one in found])


@command("GET", "/v1/sessions/{session}", KeyScope.READ)
async def show_session(office: Office, asked: OneSession) -> SessionShown:
    """Return a session with what was said in it, newest first."""
    store = office.store
    found = await sessions.find_session(store, office.caller, asked.session)
    history = await store.session_history(found.id, asked.before or LAST, asked.limit)
    more = history[-1].run_id if len(history) == asked.limit else None
    told = [_exchange(one) for one in history]
    return SessionShown(**dict(session_given(found)), history=told, next=more)


@command("POST", "/v1/sessions/current/archive", KeyScope.RUN)
async def archive_session(office: Office, asked: PutAside) -> Sessions:
    """Put a session aside: the next run begins a new one, and this one can be resumed."""
    meant = await _meant(office, asked)

    async def archived(within: Office, _: object) -> Sessions:
        return _listed([await sessions.find_session(within.store, office.caller, meant[0].id)])

    if len(meant) == 1:
        office.keep_seen(archived, "archive_session")
    return _listed(await sessions.archive(office.store, office.caller, meant, asked.title))


@command("POST", "/v1/sessions/current/clear", KeyScope.RUN)
async def clear_session(office: Office, asked: MeantSessions) -> Sessions:
    """Forget a session and what was said in it for good: the next run begins a new one."""
    meant = await _meant(office, asked)
    if len(meant) == 1:
        office.keep(lambda _: _listed(meant), "clear_session")
    await sessions.clear(office.store, meant)
    return _listed(meant)


@command("POST", "/v1/sessions/{session}/resume", KeyScope.RUN)
async def resume_session(office: Office, asked: Resumed) -> SessionGiven:
    """Let the next run of its thread go on in a session; the one in its place is archived."""
    store, caller = office.store, office.caller
    meant = await sessions.find_session(store, caller, asked.session, asked.thread)

    async def resumed(within: Office, done: object) -> SessionGiven | None:
        found = await sessions.find_session(within.store, caller, meant.id) if done else None
        return None if found is None else session_given(found)

    office.keep_seen(resumed, "resume_session")
    return session_given(await sessions.resume(store, caller, meant, asked.title))


async def _meant(office: Office, asked: MeantSessions) -> list[AgentSession]:
    store, caller = office.store, office.caller
    if asked.session is not None:
        return [await sessions.find_session(store, caller, asked.session, asked.thread)]
    space = space_of(office, asked.space)
    return await sessions.current_of(store, caller, asked.thread or "", space, asked.agent)

"""Sessions: list, search, archive, clear and resume."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints, model_validator

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    PLAIN,
    Id,
    Json,
    Limit,
    SpaceName,
    Text,
    ThreadKey,
    Word,
    resolve_space,
)
from rota.commands.responses import From, RequestModel, ResponseModel
from rota.flow.define import messages
from rota.model.keys import KeyScope
from rota.model.sessions import AgentSession, SessionFilter
from rota.rules.permissions import visible_space
from rota.store import sessions as store_sessions
from rota.store.sessions import session_history

Title = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
LAST = 2**62


def _parsed_result(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a result; of a long one that was found by its words, the beginning as it stands."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class SessionsQuery(RequestModel):
    """Which sessions to list, newest first."""

    thread: ThreadKey | None = None
    agent: Word | None = None
    archived: bool | None = None
    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class SessionResponse(ResponseModel):
    """An agent's conversation; without `archived_at` the thread's next run goes on in it."""

    id: int
    space: str
    thread: str | None
    task: str | None = Field(description="Whose it is, if it is not a thread's.")
    agent: str
    name: str = Field(description="What the agent calls it.")
    title: str
    input_tokens: Annotated[int, From("input")]
    output_tokens: Annotated[int, From("output")]
    cached_tokens: Annotated[int, From("cached")]
    runs: int
    started_at: datetime
    used_at: datetime
    archived_at: datetime | None


class SessionList(ResponseModel):
    """Sessions, newest first; `next` continues the list as `before`."""

    sessions: list[SessionResponse]
    next: int | None = None


class ExchangeResponse(ResponseModel):
    """What was said in a session, and what it came to."""

    session: Annotated[int, From("session_id")]
    run: Annotated[int, From("run_id")]
    attempt: Annotated[int, From("epoch")]
    task: str | None
    at: datetime
    said: str
    state: str | None
    result: Annotated[Json, From(read=_parsed_result)]
    error: str | None


class SessionSelector(RequestModel):
    """One session, and which part of what was said in it."""

    session: Id
    before: Id | None = None
    limit: Limit = 50


class SessionDetailResponse(SessionResponse):
    """A session with what was said in it, newest first; `next` continues as `before`."""

    history: list[ExchangeResponse]
    next: int | None


class SearchSessions(RequestModel):
    """Words to be found in what was said and answered of late."""

    words: Annotated[Text, StringConstraints(min_length=1, max_length=200)]
    thread: ThreadKey | None = None
    space: SpaceName | None = None
    limit: Limit = 20


class SessionSearchResponse(ResponseModel):
    """Where the words stand, newest first."""

    found: list[ExchangeResponse]


class SessionSelection(RequestModel):
    """A session, or what the next run of a thread would go on in."""

    session: Id | None = None
    thread: ThreadKey | None = None
    agent: Word | None = Field(default=None, description="Of a thread: only this agent's.")
    space: SpaceName | None = None

    @model_validator(mode="after")
    def _meant(self) -> SessionSelection:
        if self.session is None and self.thread is None:
            message = "say which: a session, or a thread"
            raise ValueError(message)
        return self


class ArchivedSessionResponse(SessionSelection):
    """What is put aside, and what it is called from now on."""

    title: Title | None = None


class ResumedSessionResponse(RequestModel):
    """A session to go on in, and what the one in its place is called from now on."""

    session: Id
    title: Title | None = None
    thread: ThreadKey | None = None


def _listed(found: list[AgentSession]) -> SessionList:
    return SessionList(sessions=[SessionResponse.from_model(one) for one in found])


@command("GET", "/v1/sessions", KeyScope.READ)
async def list_sessions(office: RequestContext, asked: SessionsQuery) -> SessionList:
    """List sessions, newest first."""
    wanted = SessionFilter(
        space=visible_space(office.caller, asked.space),
        thread=asked.thread,
        agent=asked.agent,
        archived=asked.archived,
        before=asked.before,
        limit=asked.limit,
    )
    found = await office.store.read(store_sessions.list_sessions, wanted)
    more = found[-1].id if len(found) == asked.limit else None
    return SessionList(sessions=[SessionResponse.from_model(one) for one in found], next=more)


@command("GET", "/v1/sessions/search", KeyScope.READ)
async def search_sessions(office: RequestContext, asked: SearchSessions) -> SessionSearchResponse:
    """Find words in the newest of what agents were told and have answered, newest first."""
    space = visible_space(office.caller, asked.space)
    found = await office.store.read(
        store_sessions.search_sessions, space, asked.thread, asked.words, asked.limit
    )
    return SessionSearchResponse(found=[ExchangeResponse.from_model(one) for one in found])


@command("GET", "/v1/sessions/{session}", KeyScope.READ)
async def show_session(office: RequestContext, asked: SessionSelector) -> SessionDetailResponse:
    """Return a session with what was said in it, newest first."""
    store = office.store
    found = await messages.find_session(store, office.caller, asked.session)
    history = await store.read(session_history, found.id, asked.before or LAST, asked.limit)
    more = history[-1].run_id if len(history) == asked.limit else None
    told = [ExchangeResponse.from_model(one) for one in history]
    return SessionDetailResponse.from_model(found, history=told, next=more)


@command("POST", "/v1/sessions/current/archive", KeyScope.RUN)
async def archive_session(office: RequestContext, asked: ArchivedSessionResponse) -> SessionList:
    """Put a session aside: the next run begins a new one, and this one can be resumed."""
    meant = await _meant(office, asked)

    async def archived(within: RequestContext, _: object) -> SessionList:
        return _listed([await messages.find_session(within.store, office.caller, meant[0].id)])

    if len(meant) == 1:
        office.keep_seen(archived, store_sessions.archive_session)
    return _listed(await messages.archive(office.store, office.caller, meant, asked.title))


@command("POST", "/v1/sessions/current/clear", KeyScope.RUN)
async def clear_session(office: RequestContext, asked: SessionSelection) -> SessionList:
    """Forget a session and what was said in it for good: the next run begins a new one."""
    meant = await _meant(office, asked)
    if len(meant) == 1:
        office.keep(lambda _: _listed(meant), store_sessions.clear_session)
    await messages.clear(office.store, meant)
    return _listed(meant)


@command("POST", "/v1/sessions/{session}/resume", KeyScope.RUN)
async def resume_session(office: RequestContext, asked: ResumedSessionResponse) -> SessionResponse:
    """Let the next run of its thread go on in a session; the one in its place is archived."""
    store, caller = office.store, office.caller
    meant = await messages.find_session(store, caller, asked.session, asked.thread)

    async def resumed(within: RequestContext, done: object) -> SessionResponse | None:
        found = await messages.find_session(within.store, caller, meant.id) if done else None
        return None if found is None else SessionResponse.from_model(found)

    office.keep_seen(resumed, store_sessions.resume_session)
    return SessionResponse.from_model(await messages.resume(store, caller, meant, asked.title))


async def _meant(office: RequestContext, asked: SessionSelection) -> list[AgentSession]:
    store, caller = office.store, office.caller
    if asked.session is not None:
        return [await messages.find_session(store, caller, asked.session, asked.thread)]
    space = resolve_space(office, asked.space)
    return await messages.current_of(store, caller, asked.thread or "", space, asked.agent)

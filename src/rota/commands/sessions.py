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
NEWEST = 2**62


def _parsed_result(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a result; search results contain only the beginning of a long one, as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


class SessionsQuery(RequestModel):
    """Filter for sessions."""

    thread: ThreadKey | None = None
    agent: Word | None = None
    archived: bool | None = None
    space: SpaceName | None = None
    before: Id | None = None
    limit: Limit = 50


class SessionResponse(ResponseModel):
    """A session of an agent; without `archived_at`, the thread's next run continues it."""

    id: int
    space: str
    thread: str | None
    task: str | None = Field(description="Task of a session without a thread.")
    agent: str
    name: str = Field(description="Name that the agent gave it.")
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
    """One run in a session: its prompt and its result."""

    session: Annotated[int, From("session_id")]
    run: Annotated[int, From("run_id")]
    attempt: Annotated[int, From("epoch")]
    task: str | None
    at: datetime
    prompt: str
    state: str | None
    result: Annotated[Json, From(read=_parsed_result)]
    error: str | None


class SessionSelector(RequestModel):
    """A session, and which part of its history."""

    session: Id
    before: Id | None = None
    limit: Limit = 50


class SessionDetailResponse(SessionResponse):
    """A session with its history, newest first; `next` continues it as `before`."""

    history: list[ExchangeResponse]
    next: int | None


class SearchSessions(RequestModel):
    """Words to search for in recent prompts and results."""

    words: Annotated[Text, StringConstraints(min_length=1, max_length=200)]
    thread: ThreadKey | None = None
    space: SpaceName | None = None
    limit: Limit = 20


class SessionSearchResponse(ResponseModel):
    """Matching runs, newest first."""

    found: list[ExchangeResponse]


class SessionSelection(RequestModel):
    """A session, or the current ones of a thread."""

    session: Id | None = None
    thread: ThreadKey | None = None
    agent: Word | None = Field(default=None, description="Only the session of this agent.")
    space: SpaceName | None = None

    @model_validator(mode="after")
    def _selected(self) -> SessionSelection:
        if self.session is None and self.thread is None:
            message = "give a session or a thread"
            raise ValueError(message)
        return self


class ArchivedSessionResponse(SessionSelection):
    """A session to archive, and its new title."""

    title: Title | None = None


class ResumedSessionResponse(RequestModel):
    """A session to resume, and the title of the one it replaces."""

    session: Id
    title: Title | None = None
    thread: ThreadKey | None = None


def _session_list(found: list[AgentSession]) -> SessionList:
    return SessionList(sessions=[SessionResponse.from_model(one) for one in found])


@command("GET", "/v1/sessions", KeyScope.READ)
async def list_sessions(context: RequestContext, request: SessionsQuery) -> SessionList:
    """List sessions, newest first."""
    query = SessionFilter(
        space=visible_space(context.caller, request.space),
        thread=request.thread,
        agent=request.agent,
        archived=request.archived,
        before=request.before,
        limit=request.limit,
    )
    found = await context.store.read(store_sessions.list_sessions, query)
    more = found[-1].id if len(found) == request.limit else None
    return SessionList(sessions=[SessionResponse.from_model(one) for one in found], next=more)


@command("GET", "/v1/sessions/search", KeyScope.READ)
async def search_sessions(
    context: RequestContext, request: SearchSessions
) -> SessionSearchResponse:
    """Search recent prompts and results of agents, newest first."""
    space = visible_space(context.caller, request.space)
    found = await context.store.read(
        store_sessions.search_sessions, space, request.thread, request.words, request.limit
    )
    return SessionSearchResponse(found=[ExchangeResponse.from_model(one) for one in found])


@command("GET", "/v1/sessions/{session}", KeyScope.READ)
async def show_session(context: RequestContext, request: SessionSelector) -> SessionDetailResponse:
    """Return a session with its history, newest first."""
    store = context.store
    found = await messages.find_session(store, context.caller, request.session)
    history = await store.read(session_history, found.id, request.before or NEWEST, request.limit)
    more = history[-1].run_id if len(history) == request.limit else None
    exchanges = [ExchangeResponse.from_model(one) for one in history]
    return SessionDetailResponse.from_model(found, history=exchanges, next=more)


@command("POST", "/v1/sessions/current/archive", KeyScope.RUN)
async def archive_session(context: RequestContext, request: ArchivedSessionResponse) -> SessionList:
    """Archive a session: the next run starts a new one, and this one can be resumed."""
    selected = await _selected(context, request)

    async def archived(within: RequestContext, _: object) -> SessionList:
        return _session_list(
            [await messages.find_session(within.store, context.caller, selected[0].id)]
        )

    if len(selected) == 1:
        context.record_with(archived, store_sessions.archive_session)
    return _session_list(
        await messages.archive(context.store, context.caller, selected, request.title)
    )


@command("POST", "/v1/sessions/current/clear", KeyScope.RUN)
async def clear_session(context: RequestContext, request: SessionSelection) -> SessionList:
    """Delete a session and its history permanently: the next run starts a new one."""
    selected = await _selected(context, request)
    if len(selected) == 1:
        context.record(lambda _: _session_list(selected), store_sessions.clear_session)
    await messages.clear(context.store, selected)
    return _session_list(selected)


@command("POST", "/v1/sessions/{session}/resume", KeyScope.RUN)
async def resume_session(
    context: RequestContext, request: ResumedSessionResponse
) -> SessionResponse:
    """Resume a session for the next run of its thread; the current one is archived."""
    store, caller = context.store, context.caller
    selected = await messages.find_session(store, caller, request.session, request.thread)

    async def resumed(within: RequestContext, done: object) -> SessionResponse | None:
        found = await messages.find_session(within.store, caller, selected.id) if done else None
        return None if found is None else SessionResponse.from_model(found)

    context.record_with(resumed, store_sessions.resume_session)
    return SessionResponse.from_model(await messages.resume(store, caller, selected, request.title))


async def _selected(context: RequestContext, request: SessionSelection) -> list[AgentSession]:
    store, caller = context.store, context.caller
    if request.session is not None:
        return [await messages.find_session(store, caller, request.session, request.thread)]
    space = resolve_space(context, request.space)
    return await messages.current_of(store, caller, request.thread or "", space, request.agent)

"""Events as they happen: server-sent events that go on where a client was.

The routes stand beside the catalogue, because an answer without an end is no command's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated

from pydantic import Field, StringConstraints

from rota.doors.api.asgi import NO_CONTENT, Receive, Reply, Scope, Send
from rota.doors.api.hub import PAGE, Hub, Seat, Wish
from rota.doors.api.sending import SENDING_SECONDS, while_read
from rota.doors.commands.fields import Id, SpaceName, Spelled
from rota.doors.commands.shapes import Asked
from rota.doors.kit.catalogue import pattern_of
from rota.errors import NotFound, Unavailable
from rota.model.cursors import START, EventPage, Position, position_of
from rota.model.events import EventName
from rota.model.keys import KeyScope
from rota.model.states import FINISHED
from rota.ports.store import Store
from rota.rules.permission import Caller, check_scope, check_space, seen_space

HEARTBEAT_SECONDS = 15.0
MOST_CATCHING_UP = 8
MOST_OF_A_RUN = 10_000
HEADERS = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"))
LAST_EVENT_ID = b"last-event-id"
GONE = {"reason": "what follows this cursor is not known any more: read everything anew"}
SLOW = {"reason": "too much waited unread: read everything anew"}

Cursor = Position | None | bool
"""Where a client was: nowhere, at a position, or (False) where nobody can tell any more."""
After = Annotated[
    Annotated[
        str,
        StringConstraints(max_length=256),
        Spelled("[!-~]*", "give the id of an event as it was sent, such as 1.42"),
    ]
    | None,
    Field(description="A cursor; go on after it."),
]


class EventsWanted(Asked):
    """Which events to follow."""

    after: After = None
    space: SpaceName | None = None


class RunEventsWanted(Asked):
    """Which run to follow."""

    run: Id
    after: After = None


@dataclass(frozen=True, slots=True)
class Following:
    """A route whose answer has no end."""

    path: str
    takes: type[Asked]
    does: Callable[..., Awaitable[Stream | Reply]]

    @property
    def about(self) -> str:
        """What it is for."""
        return getdoc(self.does) or ""


class Streams:
    """Whom events are shown to, and from where on."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store = store
        self._hub = hub
        self._catching_up = asyncio.Semaphore(MOST_CATCHING_UP)

    async def reply(
        self, route: Following, scope: Scope, receive: Receive, asked: Asked
    ) -> Stream | Reply:
        """Return a stream for one request."""
        check_scope(scope["caller"], KeyScope.READ)
        return await route.does(self, scope, receive, asked)

    async def follow_events(self, scope: Scope, receive: Receive, asked: EventsWanted) -> Stream:
        """Send events as they happen: those of the caller's space, or every one to role `main`.

        Without a cursor the stream begins now. A cursor that is too old, or of a database that was
        restored since, gets one event `reset` and goes on from now.
        """
        caller: Caller = scope["caller"]
        named = seen_space(caller, asked.space)
        wish = Wish(space_id=None if named is None else (await self._store.find_space(named)).id)
        cursor = self._cursor(scope, asked.after)
        seat = await self._seat(scope, caller, wish)
        return Stream(self._events(seat, cursor), seat, receive)

    async def follow_run(
        self, scope: Scope, receive: Receive, asked: RunEventsWanted
    ) -> Stream | Reply:
        """Send the events of one run from its first on, and end with its `run.settled`.

        A client that comes again after the end is answered with 204, so that it stays away.
        """
        caller: Caller = scope["caller"]
        found = await self._store.get_run(asked.run)
        if found is None:
            raise NotFound("run", asked.run)
        try:
            check_space(caller, found.space)
        except NotFound:
            raise NotFound("run", asked.run) from None
        cursor = self._cursor(scope, asked.after)
        if found.state in FINISHED and await self._is_over(asked.run, cursor):
            return Reply(NO_CONTENT, b"")
        seat = await self._seat(scope, caller, Wish(run_id=asked.run))
        return Stream(self._run_events(seat, asked.run, cursor), seat, receive)

    async def _seat(self, scope: Scope, caller: Caller, wish: Wish) -> Seat:
        allowed: Callable[[], Awaitable[object]] = scope["allowed"]
        return await self._hub.seat(caller, wish, allowed)

    def _cursor(self, scope: Scope, after: str | None) -> Cursor:
        came = dict(scope["headers"]).get(LAST_EVENT_ID)
        text = after if came is None else came.decode("latin-1")
        if not text:
            return None
        found = position_of(text, self._store.incarnation)
        return False if found is None else found

    async def _is_over(self, run: int, cursor: Cursor) -> bool:
        """Whether a client has seen the end of a run."""
        if not isinstance(cursor, Position):
            return False
        page = await self._store.events_after(None, MOST_OF_A_RUN, run_id=run)
        return any(at <= cursor for at, e in page.events if e.name is EventName.SETTLED)

    async def _events(self, seat: Seat, cursor: Cursor) -> AsyncGenerator[bytes, None]:
        position = cursor
        while isinstance(position, Position):  # what was missed, before the seat has to hold more
            page = await self._page(position, seat.wish)
            position = False if page.gap else page.position
            if page.events:
                missed = b"".join(self._hub.frame(at, event) for at, event in page.events)
                yield missed
                await asyncio.sleep(self._hub.spend(len(missed)))
            if not page.more:
                break
        here = seat.begin(position if isinstance(position, Position) else START)
        while isinstance(position, Position) and position < here:
            page = await self._page(position, seat.wish)
            position = False if page.gap else page.position
            missed = b"".join(self._hub.frame(at, e) for at, e in page.events if at <= here)
            if missed:
                yield missed
            if not page.more:
                break
        if position is False:
            yield self._reset(here, GONE)
        else:
            yield f"id: {self._hub.cursor(max(here, seat.seen))}\n\n".encode()
        async for chunk in self._live(seat):
            yield chunk

    async def _run_events(
        self, seat: Seat, run: int, cursor: Cursor
    ) -> AsyncGenerator[bytes, None]:
        start = cursor if isinstance(cursor, Position) else START
        here = seat.begin(start)
        if cursor is False:
            yield self._reset(START, GONE)
        async with self._catching_up:
            page = await self._store.events_after(None, MOST_OF_A_RUN, run_id=run)
        for at, event in page.events:
            if start < at <= here:
                yield self._hub.frame(at, event)
                if event.name is EventName.SETTLED:
                    return
        async for chunk in self._live(seat):
            yield chunk

    async def _page(self, position: Position, wish: Wish) -> EventPage:
        async with self._catching_up:
            return await self._store.events_after(position, PAGE, space_id=wish.space_id)

    async def _live(self, seat: Seat) -> AsyncGenerator[bytes, None]:
        while True:
            chunk = await seat.take(HEARTBEAT_SECONDS)
            if seat.cut:
                yield self._reset(self._hub.position or START, SLOW)
                return
            if chunk:
                yield chunk
            if seat.over:
                return
            if not chunk:
                yield f": here\nid: {self._hub.cursor(self._hub.position or START)}\n\n".encode()

    def _reset(self, position: Position, data: dict[str, str]) -> bytes:
        cursor = self._hub.cursor(position)
        return f"id: {cursor}\nevent: reset\ndata: {json.dumps(data)}\n\n".encode()


class Stream:
    """An answer without an end, which gives its seat back however it ends."""

    def __init__(self, events: AsyncGenerator[bytes, None], seat: Seat, receive: Receive) -> None:
        self._events = events
        self._seat = seat
        self._receive = receive

    async def send(self, send: Send) -> None:
        """Send until there is no more, or nobody reads any more."""
        try:
            await while_read(self._write(send), self._receive)
        finally:
            self._seat.leave()
            await self._events.aclose()

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": list(HEADERS)}
        # A client that does not read, or a store that does not answer, ends the stream; whoever
        # comes again goes on where it was.
        with suppress(TimeoutError, Unavailable):
            await send(start)
            async for chunk in self._events:
                async with asyncio.timeout(SENDING_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


FOLLOWING = (
    Following("/v1/events", EventsWanted, Streams.follow_events),
    Following("/v1/runs/{run}/events", RunEventsWanted, Streams.follow_run),
)


def find_following(path: str) -> tuple[Following, dict[str, str]] | None:
    """Return the route at a path, and what stands in the path's fields."""
    for route in FOLLOWING:
        match = pattern_of(route.path).fullmatch(path)
        if match is not None:
            return route, match.groupdict()
    return None

"""Server-sent events: the event hub, subscriptions and resuming clients.

After `begin`, a subscription receives every event after its position, in chunks that all
subscriptions with the same filter share. A subscription whose buffer exceeds its limit is closed.
Streams have routes of their own, because their responses do not end.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import getdoc
from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints

from rota.api.asgi import (
    NO_CONTENT,
    SENDING_SECONDS,
    HttpResponse,
    Receive,
    Scope,
    Send,
    while_read,
)
from rota.commands.catalogue import pattern_of
from rota.commands.fields import Id, SpaceName, TextFormat
from rota.commands.responses import EventResponse, RequestModel
from rota.errors import NotFound, Unavailable, Unknown
from rota.model.events import (
    START,
    Event,
    EventName,
    EventPage,
    EventPosition,
    cursor_at,
    position_of,
)
from rota.model.keys import KeyScope
from rota.model.runs import FINISHED
from rota.model.spaces import SpaceRole
from rota.ports.clock import Clock, Random
from rota.rules.permissions import Caller, check_scope, check_space, visible_space
from rota.runtime.poller import Poller
from rota.store.events import last_event_position, list_events_after
from rota.store.store import Store
from rota.store.tasks import find_space
from rota.store.views import get_run

MOST_SEATS = 1_000
MOST_SEATS_OF_MEMBERS = 900
MOST_SEATS_OF_SPACE = 250
"""The first limit is for all clients, the others for member spaces, so `main` always finds room."""
MAX_KEPT = 1 << 20
"""Bytes that may wait for one client before it is disconnected."""
PAGE = 1_000
SHORTEST_PAGE = 100
HANDED_AT_ONCE = 40_000
"""Events times subscriptions that are distributed in one step."""
POLL_SECONDS = 1.0
"""Delay of events from other processes where the database sends no notification."""
HIDDEN_SECONDS = 0.05
"""Delay before the next check for events that a running transaction hides."""
IDLE_SECONDS = 3_600.0
PACE_SECONDS = 0.001
"""Pause for each subscription after distributing, so that many clients do not slow the engine."""
BYTES_A_SECOND = 8 << 20
"""Bytes a second for all clients together; beyond this rate events arrive later."""
BURST_SECONDS = 0.5
KEYS_SECONDS = 5.0


Allowed = Callable[[], Awaitable[object]]
"""Raises Unknown when a client has lost its permission."""


class EventFilter(NamedTuple):
    """Which events a client requests; None means all."""

    space_id: int | None = None
    run_id: int | None = None


class _Frame(NamedTuple):
    """An event and its serialized form."""

    position: EventPosition
    event: Event
    text: bytes


def _joined(frames: Sequence[_Frame]) -> bytes:
    return b"".join(frame.text for frame in frames)


class SubscriberLimitReached(Unavailable):
    """A limit of subscriptions is reached."""

    code = "too_many_streams"


class EventSubscription:
    """The buffer of one client and its right to stay subscribed."""

    def __init__(
        self, hub: EventHub, space: str | None, wish: EventFilter, allowed: Allowed
    ) -> None:
        self.wish = wish
        self.space = space
        self.cut = False
        self.over = False
        self.allowed = allowed
        self.seen = START
        self._hub = hub
        self._waiting: list[bytes] = []
        self._size = 0
        self._there = asyncio.Event()

    def begin(self, seen: EventPosition) -> EventPosition:
        """Start receiving events and return the position after which they are received.

        A client that has read from the store may have `seen` more than was distributed so far.
        """
        self.seen = seen
        return self._hub.begin(self)

    def offer(self, chunk: bytes, *, last: bool = False) -> None:
        """Append a chunk, or close the subscription if its buffer is full."""
        if self.over or self.cut:
            return
        self._size += len(chunk)
        if self._size > MAX_KEPT:
            self.cut_off()
            return
        self._waiting.append(chunk)
        self.over = last
        self._there.set()

    def cut_off(self) -> None:
        """Close a subscription that cannot receive all events."""
        self._waiting.clear()
        self.cut = True
        self._there.set()

    def end(self) -> None:
        """Close the subscription after its remaining chunks."""
        self.over = True
        self._there.set()

    async def take(self, seconds: float) -> bytes:
        """Return the waiting chunks, or nothing after so many seconds."""
        if not self._there.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._there.wait()
            except TimeoutError:
                return b""
        chunk, self._size = b"".join(self._waiting), 0
        self._waiting.clear()
        if not (self.over or self.cut):
            self._there.clear()
        return chunk

    def leave(self) -> None:
        """Release the subscription."""
        self._hub.leave(self)


class EventHub:
    """Reads events from the store for all subscriptions while there are any."""

    def __init__(self, store: Store, clock: Clock, chance: Random) -> None:
        self.position: EventPosition | None = None
        self.reads = 0
        self._store = store
        self._clock = clock
        self._seats: set[EventSubscription] = set()
        self._of: Counter[str] = Counter()
        self._begun: dict[EventFilter, set[EventSubscription]] = defaultdict(set)
        self._resume_at = 0.0
        self._spent_until = float("-inf")
        self._reader = Poller("live", self._read_step, clock, chance)
        self._guard = Poller("live keys", self._guard_step, clock, chance)
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] | None = None
        self._closed = False

    async def seat(self, caller: Caller, wish: EventFilter, allowed: Allowed) -> EventSubscription:
        """Return a new subscription, which the caller must release."""
        if self._closed:
            message = "this daemon is shutting down: reconnect"
            raise Unavailable(message)
        space = None if caller.role is SpaceRole.MAIN else caller.space
        self._check_free(space)
        seat = EventSubscription(self, space, wish, allowed)
        self._seats.add(seat)
        if space is not None:
            self._of[space] += 1
        self._start()
        try:
            if self.position is None:
                self._place(await self._store.read(last_event_position))
        except BaseException:
            self.leave(seat)
            raise
        self._reader.wake()
        return seat

    def _check_free(self, space: str | None) -> None:
        """Raise SubscriberLimitReached if a limit of subscriptions is reached."""
        if space is not None and self._of[space] >= MOST_SEATS_OF_SPACE:
            message = f"{MOST_SEATS_OF_SPACE} clients of this space follow events: close some"
            raise SubscriberLimitReached(message)
        of_members = space is not None and self._of.total() >= MOST_SEATS_OF_MEMBERS
        if of_members or len(self._seats) >= MOST_SEATS:
            message = "too many clients follow events: close some streams, or try again later"
            raise SubscriberLimitReached(message)

    def _place(self, end: EventPosition) -> None:
        """Start reading at the end of the log, unless another subscription has started."""
        if self.position is None:
            self.position = end

    def begin(self, seat: EventSubscription) -> EventPosition:
        """Start a subscription and return the position after which it receives events."""
        if self.position is None:
            message = "a subscription begins before it is registered"
            raise RuntimeError(message)
        self._begun[seat.wish].add(seat)
        return self.position

    def leave(self, seat: EventSubscription) -> None:
        """Release a subscription."""
        if seat not in self._seats:
            return
        self._seats.discard(seat)
        if seat.space is not None:
            self._of -= Counter({seat.space: 1})
        same = self._begun[seat.wish]
        same.discard(seat)
        if not same:
            del self._begun[seat.wish]
        if not self._seats:
            self.position = None

    async def close(self) -> None:
        """Close all subscriptions and stop reading."""
        self._closed = True
        for seat in tuple(self._seats):
            seat.end()
        if self._unsubscribe is not None:
            self._unsubscribe()
        for service in (self._reader, self._guard):
            service.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cursor(self, position: EventPosition) -> str:
        """Return the cursor of a position."""
        return cursor_at(self._store.database.incarnation, position)

    def frame(self, position: EventPosition, event: Event) -> bytes:
        """Serialize one event."""
        data = EventResponse.from_model(event).model_dump_json()
        return f"id: {self.cursor(position)}\nevent: {event.name.value}\ndata: {data}\n\n".encode()

    def _start(self) -> None:
        if self._tasks:
            return
        self._unsubscribe = self._store.subscribe(self._heard)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(s.run()) for s in (self._reader, self._guard)]

    def _heard(self, topic: str) -> None:
        if topic == "events":
            self._reader.wake()
        elif topic == "keys":
            self._guard.wake()

    async def _read_step(self) -> float:
        pause = self._resume_at - self._clock.monotonic()
        if pause > 0:
            await asyncio.sleep(pause)
        position = self.position
        if position is None:
            return IDLE_SECONDS
        most = max(SHORTEST_PAGE, min(PAGE, HANDED_AT_ONCE // max(1, len(self._seats))))
        page = await self._store.read(list_events_after, position, most)
        self.reads += 1
        if self.position is not position:  # all clients left meanwhile, and a new one may have come
            return 0.0
        self.position = page.position
        if page.gap:
            for seat in tuple(self._seats):
                seat.cut_off()
        elif page.events:
            rest = max(PACE_SECONDS * len(self._seats), self.spend(self._hand_out(page.events)))
            self._resume_at = self._clock.monotonic() + rest
        if page.more:
            return 0.0
        return HIDDEN_SECONDS if page.hidden else POLL_SECONDS

    def spend(self, size: int) -> float:
        """Count sent bytes and return how long to pause."""
        now = self._clock.monotonic()
        self._spent_until = max(now - BURST_SECONDS, self._spent_until) + size / BYTES_A_SECOND
        return max(0.0, self._spent_until - now)

    def _hand_out(self, events: Sequence[tuple[EventPosition, Event]]) -> int:
        """Distribute events to all matching subscriptions and return the number of bytes."""
        size = 0
        frames = [_Frame(at, event, self.frame(at, event)) for at, event in events]
        of_run: dict[int | None, list[_Frame]] = defaultdict(list)
        of_space: dict[int | None, list[_Frame]] = defaultdict(list)
        for frame in frames:
            of_run[frame.event.run_id].append(frame)
            of_space[frame.event.space_id].append(frame)
        for wish, seats in self._begun.items():
            wanted = frames
            if wish.run_id is not None:
                wanted = of_run.get(wish.run_id, [])
            elif wish.space_id is not None:
                wanted = of_space.get(wish.space_id, [])
            chunk = _joined(wanted)
            ends = wish.run_id is not None and any(
                frame.event.name is EventName.SETTLED for frame in wanted
            )
            for seat in seats if chunk else ():
                new = chunk
                if seat.seen >= wanted[0].position:
                    new = _joined([frame for frame in wanted if frame.position > seat.seen])
                if new:
                    size += len(new)
                    seat.offer(new, last=ends)
        return size

    async def _guard_step(self) -> float:
        for seat in tuple(self._seats):
            try:
                await seat.allowed()
            except Unknown:
                seat.end()
        return KEYS_SECONDS


HEARTBEAT_SECONDS = 15.0
MOST_CATCHING_UP = 8
MOST_OF_A_RUN = 10_000
HEADERS = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"))
LAST_EVENT_ID = b"last-event-id"
GONE = {"reason": "the events after this cursor are no longer available: read the current state"}
SLOW = {"reason": "the client read too slowly: read the current state"}

Cursor = EventPosition | None | bool
"""The position of a client: none, a position, or (False) one that is no longer available."""
After = Annotated[
    Annotated[
        str,
        StringConstraints(max_length=256),
        TextFormat("[!-~]*", "give the id of an event, such as 1.42"),
    ]
    | None,
    Field(description="A cursor; the stream continues after it."),
]


class EventsQuery(RequestModel):
    """Query parameters of the event stream."""

    after: After = None
    space: SpaceName | None = None


class RunEventsQuery(RequestModel):
    """Query parameters of the stream of one run."""

    run: Id
    after: After = None


@dataclass(frozen=True, slots=True)
class StreamRoute:
    """A route whose response does not end."""

    path: str
    takes: type[RequestModel]
    does: Callable[..., Awaitable[EventStreamResponse | HttpResponse]]

    @property
    def about(self) -> str:
        """The description of the route."""
        return getdoc(self.does) or ""


class EventStreams:
    """Creates event streams for requests."""

    def __init__(self, store: Store, hub: EventHub) -> None:
        self._store = store
        self._hub = hub
        self._catching_up = asyncio.Semaphore(MOST_CATCHING_UP)

    async def reply(
        self, route: StreamRoute, scope: Scope, receive: Receive, asked: RequestModel
    ) -> EventStreamResponse | HttpResponse:
        """Return the stream for one request."""
        check_scope(scope["caller"], KeyScope.READ)
        return await route.does(self, scope, receive, asked)

    async def follow_events(
        self, scope: Scope, receive: Receive, asked: EventsQuery
    ) -> EventStreamResponse:
        """Stream events as they happen: those of the caller's space, or all for the role `main`.

        Without a cursor the stream starts now. A cursor that is too old, or from before a restore,
        gets one event `reset`, and the stream continues from now.
        """
        caller: Caller = scope["caller"]
        named = visible_space(caller, asked.space)
        wish = EventFilter(
            space_id=None if named is None else (await self._store.read(find_space, named)).id
        )
        cursor = self._cursor(scope, asked.after)
        seat = await self._seat(scope, caller, wish)
        return EventStreamResponse(self._events(seat, cursor), seat, receive)

    async def follow_run(
        self, scope: Scope, receive: Receive, asked: RunEventsQuery
    ) -> EventStreamResponse | HttpResponse:
        """Stream the events of one run from its first, ending with `run.settled`.

        A client that reconnects after the end gets 204, so that it does not reconnect again.
        """
        caller: Caller = scope["caller"]
        found = await self._store.read(get_run, asked.run)
        if found is None:
            raise NotFound("run", asked.run)
        try:
            check_space(caller, found.space)
        except NotFound:
            raise NotFound("run", asked.run) from None
        cursor = self._cursor(scope, asked.after)
        if found.state in FINISHED and await self._is_over(asked.run, cursor):
            return HttpResponse(NO_CONTENT, b"")
        seat = await self._seat(scope, caller, EventFilter(run_id=asked.run))
        return EventStreamResponse(self._run_events(seat, asked.run, cursor), seat, receive)

    async def _seat(self, scope: Scope, caller: Caller, wish: EventFilter) -> EventSubscription:
        allowed: Callable[[], Awaitable[object]] = scope["allowed"]
        return await self._hub.seat(caller, wish, allowed)

    def _cursor(self, scope: Scope, after: str | None) -> Cursor:
        came = dict(scope["headers"]).get(LAST_EVENT_ID)
        text = after if came is None else came.decode("latin-1")
        if not text:
            return None
        found = position_of(text, self._store.database.incarnation)
        return False if found is None else found

    async def _is_over(self, run: int, cursor: Cursor) -> bool:
        """Return whether a client has received the end of a run."""
        if not isinstance(cursor, EventPosition):
            return False
        page = await self._store.read(list_events_after, None, MOST_OF_A_RUN, run_id=run)
        return any(at <= cursor for at, e in page.events if e.name is EventName.SETTLED)

    async def _events(self, seat: EventSubscription, cursor: Cursor) -> AsyncGenerator[bytes, None]:
        position = cursor
        while isinstance(
            position, EventPosition
        ):  # read missed events before subscribing, so that the buffer stays small
            page = await self._page(position, seat.wish)
            position = False if page.gap else page.position
            if page.events:
                missed = b"".join(self._hub.frame(at, event) for at, event in page.events)
                yield missed
                await asyncio.sleep(self._hub.spend(len(missed)))
            if not page.more:
                break
        here = seat.begin(position if isinstance(position, EventPosition) else START)
        while isinstance(position, EventPosition) and position < here:
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
        self, seat: EventSubscription, run: int, cursor: Cursor
    ) -> AsyncGenerator[bytes, None]:
        start = cursor if isinstance(cursor, EventPosition) else START
        here = seat.begin(start)
        if cursor is False:
            yield self._reset(START, GONE)
        async with self._catching_up:
            page = await self._store.read(list_events_after, None, MOST_OF_A_RUN, run_id=run)
        for at, event in page.events:
            if start < at <= here:
                yield self._hub.frame(at, event)
                if event.name is EventName.SETTLED:
                    return
        async for chunk in self._live(seat):
            yield chunk

    async def _page(self, position: EventPosition, wish: EventFilter) -> EventPage:
        async with self._catching_up:
            return await self._store.read(list_events_after, position, PAGE, space_id=wish.space_id)

    async def _live(self, seat: EventSubscription) -> AsyncGenerator[bytes, None]:
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

    def _reset(self, position: EventPosition, data: dict[str, str]) -> bytes:
        cursor = self._hub.cursor(position)
        return f"id: {cursor}\nevent: reset\ndata: {json.dumps(data)}\n\n".encode()


class EventStreamResponse:
    """An endless response that always releases its subscription."""

    def __init__(
        self, events: AsyncGenerator[bytes, None], seat: EventSubscription, receive: Receive
    ) -> None:
        self._events = events
        self._seat = seat
        self._receive = receive

    async def send(self, send: Send) -> None:
        """Send until the stream ends or the client stops reading."""
        try:
            await while_read(self._write(send), self._receive)
        finally:
            self._seat.leave()
            await self._events.aclose()

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": list(HEADERS)}
        # A client that does not read, or a store that does not answer, ends the stream. A
        # reconnecting client continues at its cursor.
        with suppress(TimeoutError, Unavailable):
            await send(start)
            async for chunk in self._events:
                async with asyncio.timeout(SENDING_SECONDS):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


FOLLOWING = (
    StreamRoute("/v1/events", EventsQuery, EventStreams.follow_events),
    StreamRoute("/v1/runs/{run}/events", RunEventsQuery, EventStreams.follow_run),
)


def find_following(path: str) -> tuple[StreamRoute, dict[str, str]] | None:
    """Return the stream route of a path and its path fields."""
    for route in FOLLOWING:
        match = pattern_of(route.path).fullmatch(path)
        if match is not None:
            return route, match.groupdict()
    return None

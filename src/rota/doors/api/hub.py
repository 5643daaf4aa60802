"""The hub of live events: one reader of the store hands out to every client what it finds.

A client has a seat. Whoever has taken one and begun gets everything from that position on, in
chunks that all seats with the same wish share. A seat that is not emptied is cut at a bound.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rota.doors.commands.shapes import event_given
from rota.errors import Unavailable, Unknown
from rota.model.cursors import START, Position, cursor_at
from rota.model.events import Event, EventName
from rota.model.spaces import Role
from rota.ports.clock import Clock, Random
from rota.ports.store import Store
from rota.rules.permission import Caller
from rota.runtime.service import Service

MOST_SEATS = 1_000
MOST_SEATS_OF_MEMBERS = 900
MOST_SEATS_OF_SPACE = 250
"""The first holds for everybody, the others for member spaces: main always finds a seat."""
MOST_KEPT = 1 << 20
"""Bytes that wait for a client before it is cut."""
PAGE = 1_000
SHORTEST_PAGE = 100
HANDED_AT_ONCE = 40_000
"""Events times seats that are handed out in one go."""
POLL_SECONDS = 1.0
"""How late an event of another process may be, where nobody tells of it."""
HIDDEN_SECONDS = 0.05
"""When to look again for events that a transaction keeps back."""
IDLE_SECONDS = 3_600.0
PACE_SECONDS = 0.001
"""What handing out rests for each seat, so that many clients do not take the engine's time."""
BYTES_A_SECOND = 8 << 20
"""What all clients together are sent; beyond it events come later, and none is left out."""
BURST_SECONDS = 0.5
KEYS_SECONDS = 5.0


Allowed = Callable[[], Awaitable[object]]
"""Raises Unknown once a client may not stay."""


class Wish(NamedTuple):
    """Which events a client wants to see; None is any."""

    space_id: int | None = None
    run_id: int | None = None


class _Frame(NamedTuple):
    """An event, and how it goes over the wire."""

    position: Position
    event: Event
    text: bytes


def _joined(frames: Sequence[_Frame]) -> bytes:
    return b"".join(frame.text for frame in frames)


class TooMany(Unavailable):
    """There is no seat left."""

    code = "too_many_streams"


class Seat:
    """One client: what waits for it, and whether it still belongs here."""

    def __init__(self, hub: Hub, space: str | None, wish: Wish, allowed: Allowed) -> None:
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

    def begin(self, seen: Position) -> Position:
        """Keep what comes from now on, and return after which position that is.

        A client that has caught up by itself may have `seen` more than was handed out so far.
        """
        self.seen = seen
        return self._hub.begin(self)

    def offer(self, chunk: bytes, *, last: bool = False) -> None:
        """Put something before the client, unless too much waits already."""
        if self.over or self.cut:
            return
        self._size += len(chunk)
        if self._size > MOST_KEPT:
            self.cut_off()
            return
        self._waiting.append(chunk)
        self.over = last
        self._there.set()

    def cut_off(self) -> None:
        """Let go of a client that cannot be given everything."""
        self._waiting.clear()
        self.cut = True
        self._there.set()

    def end(self) -> None:
        """Let the client go once it has what waits."""
        self.over = True
        self._there.set()

    async def take(self, seconds: float) -> bytes:
        """Return what has come; nothing after that many seconds without any."""
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
        """Give the seat back."""
        self._hub.leave(self)


class Hub:
    """Reads the store for as long as anybody has a seat."""

    def __init__(self, store: Store, clock: Clock, chance: Random) -> None:
        self.position: Position | None = None
        self.reads = 0
        self._store = store
        self._clock = clock
        self._seats: set[Seat] = set()
        self._of: Counter[str] = Counter()
        self._begun: dict[Wish, set[Seat]] = defaultdict(set)
        self._resume_at = 0.0
        self._spent_until = float("-inf")
        self._reader = Service("live", self._read_step, clock, chance)
        self._guard = Service("live keys", self._guard_step, clock, chance)
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] | None = None
        self._closed = False

    async def seat(self, caller: Caller, wish: Wish, allowed: Allowed) -> Seat:
        """Return a seat, which must be left again."""
        if self._closed:
            message = "this daemon is about to end: ask the next one"
            raise Unavailable(message)
        space = None if caller.role is Role.MAIN else caller.space
        self._check_free(space)
        seat = Seat(self, space, wish, allowed)
        self._seats.add(seat)
        if space is not None:
            self._of[space] += 1
        self._start()
        try:
            if self.position is None:
                self._place(await self._store.events_end())
        except BaseException:
            self.leave(seat)
            raise
        self._reader.wake()
        return seat

    def _check_free(self, space: str | None) -> None:
        """Refuse a client where a member space, all of them or everybody has no seat left."""
        if space is not None and self._of[space] >= MOST_SEATS_OF_SPACE:
            message = f"{MOST_SEATS_OF_SPACE} clients of this space follow events: close some"
            raise TooMany(message)
        of_members = space is not None and self._of.total() >= MOST_SEATS_OF_MEMBERS
        if of_members or len(self._seats) >= MOST_SEATS:
            message = "too many clients follow events: close some streams, or try again later"
            raise TooMany(message)

    def _place(self, end: Position) -> None:
        """Begin to read at the end, unless somebody else has begun meanwhile."""
        if self.position is None:
            self.position = end

    def begin(self, seat: Seat) -> Position:
        """Hand out to a seat from now on, and return after which position that is."""
        if self.position is None:
            message = "a seat begins before it was taken"
            raise RuntimeError(message)
        self._begun[seat.wish].add(seat)
        return self.position

    def leave(self, seat: Seat) -> None:
        """Take a seat back."""
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
        """Let every client go, and read no longer."""
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

    def cursor(self, position: Position) -> str:
        """Return a position as clients know it."""
        return cursor_at(self._store.incarnation, position)

    def frame(self, position: Position, event: Event) -> bytes:
        """Return one event as it goes over the wire."""
        data = event_given(event).model_dump_json()
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
        page = await self._store.events_after(position, most)
        self.reads += 1
        if self.position is not position:  # everybody left meanwhile, and somebody may have come
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
        """Count bytes that clients are sent, and return for how long to send no more."""
        now = self._clock.monotonic()
        self._spent_until = max(now - BURST_SECONDS, self._spent_until) + size / BYTES_A_SECOND
        return max(0.0, self._spent_until - now)

    def _hand_out(self, events: Sequence[tuple[Position, Event]]) -> int:
        """Put events before every seat that wants them, and return how many bytes that is."""
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

"""Running programs: follow their output, heartbeats, cancel, helper programs.

A keeper says by itself, every few seconds, how far it is. One that has said nothing between three
looks, a heartbeat apart, has missed two: it cannot mind timeouts or hear a wish to stop, so its
attempt is ended and lost. It is woken first, for it may only have been stopped. Looks are counted,
not hours: a process that was stopped itself, or a machine that slept, has not looked.

A look at many is spread over a moment, for a hundred at once would hold up the work that falls due
then. One that fails, or is not done in time, leaves out its own attempt and no other; it is not
begun again while it hangs, for each may hold a thread.

They need no row: the attempt's row stands until the attempt is settled, and whoever carries it on
finds their keepers by its number. One that was interrupted is ended, and done again from the start.

It happens beside everything else, because it may take long: an engine that hangs must not keep
anybody from being carried on.

A full disk, no descriptor to be had, an engine that does not answer: nothing of that ends a program
or sets one free. It is logged, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from rota.errors import Invalid, NotPermitted, Unavailable
from rota.flow.attempt.output import END, OutputParser
from rota.flow.attempt.prepare import PreparedAttempt
from rota.model.agents import AgentSpec
from rota.model.attempts import (
    AgentSessionRef,
    Assignment,
    ExitReason,
    ExitRecord,
    KeptAttempt,
    OutputChunk,
    OutputStream,
    ProgressNotice,
)
from rota.model.heartbeats import MAX_LINE, MAX_PANE, AttemptSample
from rota.model.instants import from_micros
from rota.model.programs import ResourceLimits
from rota.model.text import clean
from rota.ports.agent import Agent
from rota.ports.clock import Random
from rota.ports.keeper import KeeperHome
from rota.store.attempt_requests import attempts_waiting_for_answer, list_overdue_waiting_attempts
from rota.store.attempts import (
    count_output_events,
    drop_kept_attempt,
    list_kept_attempts,
    record_output,
)
from rota.store.store import RETRY_SECONDS, Store, until_available
from rota.store.views import list_run_output

log = logging.getLogger(__name__)

Content = TypeVar("Content")

READ_SECONDS = 60.0
"""How long what an attempt wrote may be unreadable before it is given up, once it has ended."""
SWEEP_SECONDS = 60.0
"""How long an engine may refuse to end what it runs before the attempt is given up as lost."""


class ProgramControl:
    """Looks at the programs of a home and ends them."""

    def __init__(self, yard: KeeperHome) -> None:
        self._yard = yard
        self._unasked: dict[str, asyncio.TimerHandle] = {}

    def look(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return how an attempt ended; while the machine gives no answer, it is taken to go on."""
        try:
            return self._yard.exit_record(kept)
        except OSError as fault:
            log.warning("run.unseen", extra={"run_id": kept.run_id, "error": str(fault)})
            return None

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree, while the machine refuses again and again until it has."""
        self._withdraw(kept)
        try:
            self._yard.cancel(kept, grace_seconds, why)
        except OSError as fault:
            log.warning("run.unasked", extra={"run_id": kept.run_id, "error": str(fault)})
            again = partial(self._ask_again, kept, grace_seconds, why)
            loop = asyncio.get_running_loop()
            self._unasked[kept.nonce] = loop.call_later(RETRY_SECONDS, again)

    def _ask_again(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        if self.look(kept) is None:
            self.cancel(kept, grace_seconds, why)
        else:
            self._withdraw(kept)

    def _withdraw(self, kept: KeptAttempt) -> None:
        """Forget an earlier wish that could not be told: there is a newer one, or no need."""
        waiting = self._unasked.pop(kept.nonce, None)
        if waiting is not None:
            waiting.cancel()

    async def end(self, kept: KeptAttempt, why: str) -> None:
        """End a program that nobody wants to hear, and wait until nothing of it is left."""
        while self.look(kept) is None:
            self.cancel(kept, 0.0, why)
            await self._yard.wait_for_change(kept, RETRY_SECONDS)
        await self.swept(kept)

    async def read(self, kept: KeptAttempt, stream: OutputStream, offset: int, most: int) -> bytes:
        """Return what a stream has at an offset, as soon as it can be read."""
        return await self._readable(
            kept, partial(self._yard.read_output, kept, stream, offset, most)
        )

    async def result(self, kept: KeptAttempt, assignment: Assignment) -> bytes | None:
        """Return what an attempt left in its result file, as soon as it can be read."""
        return await self._readable(kept, partial(self._yard.read_result, assignment))

    async def _readable(self, kept: KeptAttempt, read: Callable[[], Content]) -> Content:
        """Read until the machine lets it be, however long the program goes on: its timeouts hold.

        Of one that has ended, what cannot be read for too long is given up: raises Unavailable.
        """
        until = math.inf
        while True:
            try:
                return read()
            except OSError as fault:
                log.warning("run.unread", extra={"run_id": kept.run_id, "error": str(fault)})
                until = min(until, self._yard.boot_time() + READ_SECONDS)
                if self._yard.boot_time() >= until and self.look(kept) is not None:
                    raise Unavailable(f"what it wrote cannot be read: {fault}") from fault
            await asyncio.sleep(RETRY_SECONDS)

    async def sweep(self, kept: KeptAttempt) -> str:
        """End what outlives the tree and return what is left; only without is an attempt over."""
        try:
            await self._yard.clean_up(kept)
        except Unavailable as fault:
            why = {"run_id": kept.run_id, "attempt": kept.epoch, "error": str(fault)}
            log.warning("run.unswept", extra=why)
            return str(fault)
        return ""

    async def swept(self, kept: KeptAttempt) -> str:
        """Sweep until nothing is left, or it has lasted too long; return what is left then."""
        until = self._yard.boot_time() + SWEEP_SECONDS
        while left := await self.sweep(kept):
            if self._yard.boot_time() >= until:
                break
            await asyncio.sleep(RETRY_SECONDS)
        return left

    def close(self) -> None:
        """Ask for nothing more: the home is another process's now."""
        for waiting in self._unasked.values():
            waiting.cancel()
        self._unasked.clear()


LAST_WORDS = 2_000
NOBODY = "nobody waits for it any more"


class HelperResult(NamedTuple):
    """How a program ended, and the last it wrote; `ending` is None if it could not be started."""

    ending: ExitRecord | None
    words: str


class HelperPrograms:
    """Runs programs beside the work of attempts."""

    def __init__(
        self, yard: KeeperHome, minding: ProgramControl, script: Agent | None, chance: Random
    ) -> None:
        self._yard = yard
        self._minding = minding
        self._script = script
        self._chance = chance

    def ending(self, kept: KeptAttempt) -> Sequence[KeptAttempt]:
        """Ask for the end of what an earlier process has left beside an attempt; return it."""
        left = [
            each for each in self._yard.other_launches(kept) if self._minding.look(each) is None
        ]
        for each in left:
            self._minding.cancel(each, 0.0, NOBODY)
        return left

    async def end(self, kept: KeptAttempt) -> None:
        """End what an earlier process has left beside an attempt, and wait until it is gone."""
        while left := self.ending(kept):
            await self._yard.wait_for_change(left[0], RETRY_SECONDS)
        for each in self._yard.other_launches(kept):
            await self._minding.swept(each)

    async def run(
        self,
        kept: KeptAttempt,
        ready: PreparedAttempt,
        wish: AgentSpec,
        bounds: ResourceLimits,
        hold: Callable[[KeptAttempt | None], bool],
    ) -> HelperResult:
        """Run a program where the attempt's own ran, to its end.

        `hold` is told what can be ended, and says whether it is to end at once. Whoever ends it
        early gets its ending here as well: nothing is left of it afterwards.
        """
        if self._script is None:
            return HelperResult(None, "there is nothing here that runs programs")
        own = replace(
            kept,
            nonce=f"{int(self._chance.random() * 2**63):016x}",
            boot=self._yard.boot,
            executor=ready.site.executor,
        )
        room = replace(ready.room, session=None, result=None, settled=True)
        try:
            prepared = replace(self._script.prepare(wish, room), files=())
            start = self._yard.start(own, room, ready.site, ready.role, prepared, bounds)
            await _begun(asyncio.ensure_future(start))
            if hold(own):
                self._minding.cancel(own, bounds.grace_seconds, NOBODY)
            return await self._ended(own)
        except (Invalid, NotPermitted, Unavailable) as fault:
            return HelperResult(None, str(fault))
        finally:
            hold(None)

    async def _ended(self, own: KeptAttempt) -> HelperResult:
        while (ending := self._minding.look(own)) is None:
            await self._yard.wait_for_change(own, RETRY_SECONDS)
        await self._minding.swept(own)
        try:
            return HelperResult(ending, await self._last_words(own, ending))
        except Unavailable as fault:
            return HelperResult(ending, str(fault))

    async def _last_words(self, own: KeptAttempt, ending: ExitRecord) -> str:
        parts = []
        for stream, spooled in ((OutputStream.OUT, ending.out), (OutputStream.ERR, ending.err)):
            start = max(0, spooled.size - LAST_WORDS)
            data = await self._minding.read(own, stream, start, LAST_WORDS) + spooled.tail
            parts.append(clean(data[-LAST_WORDS:].decode("utf-8", "replace")).strip())
        return "\n".join(part for part in parts if part)


async def _begun(starting: asyncio.Future[None]) -> None:
    """Wait for a start, which nobody may leave half done: the home may be another's afterwards."""
    left = await await_uninterrupted(starting)
    starting.result()
    if left:
        raise asyncio.CancelledError


GONE_ON = "its run has gone on without it"
LEFT = "left"
LEFT_SECONDS = 60.0
"""How often it is looked for what no record tells of any more."""


class SupersededAttempts:
    """Discards the attempts of a home, each once at a time."""

    def __init__(
        self, store: Store, yard: KeeperHome, minding: ProgramControl, beside: HelperPrograms
    ) -> None:
        self._store = store
        self._yard = yard
        self._minding = minding
        self._beside = beside
        self._sweeping = asyncio.Lock()
        self._going: dict[str, asyncio.Future[None]] = {}
        self._look_at = -math.inf

    def begin(self, stale: Sequence[KeptAttempt], known: Sequence[KeptAttempt]) -> None:
        """Begin to discard attempts; what is left of one afterwards is begun again.

        Now and then those are swept as well that are not even known.
        """
        for kept in stale:
            self._once(kept.nonce, partial(self._discard, kept))
        if self._yard.boot_time() >= self._look_at:
            self._look_at = self._yard.boot_time() + LEFT_SECONDS
            self._once(LEFT, partial(self._sweep_left, known))

    def _once(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        if name not in self._going:
            going = self._going[name] = asyncio.ensure_future(work())
            going.add_done_callback(partial(self._over, name))

    def _over(self, name: str, going: asyncio.Future[None]) -> None:
        """Forget what is over; what has failed is begun again."""
        del self._going[name]
        if not going.cancelled() and going.exception() is not None:
            log.error("run.undiscarded", extra={"keeper": name}, exc_info=going.exception())

    async def _sweep_left(self, known: Sequence[KeptAttempt]) -> None:
        """Sweep what could not be swept before a later attempt of its run took its place."""
        for kept in await self._yard.find_uncleaned(known):
            async with self._sweeping:
                await self._minding.sweep(kept)

    async def _discard(self, kept: KeptAttempt) -> None:
        """End what is left of an attempt, and forget it."""
        if self._minding.look(kept) is None:
            self._minding.cancel(kept, 0.0, GONE_ON)
            return  # it is looked at again when its keeper has had the time to end it
        async with self._sweeping:  # those that end just now must not wait for all of them
            if await self._minding.sweep(kept) or self._beside.ending(kept):
                return
        await self._yard.delete(kept)
        await until_available(lambda: self._store.write(drop_kept_attempt, kept.run_id, kept.epoch))

    async def close(self) -> None:
        """Leave the rest to the next process of the home."""
        for going in tuple(self._going.values()):
            await detach_task(going)


ASKED_MICROS = 60 * 1_000_000
"""How long a program may go on after it has asked: time to end its turn, and no more."""
GRACE_SECONDS = 10.0
HAS_ASKED = "it has asked a person, and did not end its turn"


async def is_waiting_for_answer(store: Store, kept: KeptAttempt) -> bool:
    """Tell whether an attempt waits for a person already: then nothing is tried again."""
    return bool(
        await until_available(lambda: store.read(attempts_waiting_for_answer, [kept.run_id]))
    )


async def stop_waiting_attempts(
    store: Store, minding: ProgramControl, known: Sequence[KeptAttempt]
) -> int:
    """End the programs of a home that asked long ago; their runs wait for the answer as ever.

    A keeper that was asked before takes no notice, so this is repeated until the program is gone.
    """
    going = [kept for kept in known if kept.current and kept.until is None]
    if not going:
        return 0
    late = set(
        await store.read(list_overdue_waiting_attempts, going[0].home, store.now() - ASKED_MICROS)
    )
    ended = [kept for kept in going if (kept.run_id, kept.epoch) in late]
    for kept in ended:
        log.info("run.overstays", extra={"run_id": kept.run_id, "attempt": kept.epoch})
        minding.cancel(kept, GRACE_SECONDS, HAS_ASKED)
    return len(ended)


MISSED = 2
LEAST_SECONDS = 35.0
"""How far apart two looks count: keepers speak every 15 s, however often somebody looks."""
PAUSE_SECONDS = 0.02
LONGEST_RETRY_SECONDS = 10.0
"""Between two looks, and before the last of very many."""
PATIENCE_SECONDS = 10.0
"""With one look: longer than with a pane, and after the last of many less than a heartbeat."""
SILENT = "its keeper gave no sign of life for two heartbeats and was ended"


class FollowedAttempt(NamedTuple):
    """An attempt that is being heard."""

    kept: KeptAttempt
    hearing: OutputParser


class _Look(NamedTuple):
    beat: int | None
    missed: int
    at: float


class KeeperWatchdog:
    """Looks at the keepers of a home, once a heartbeat."""

    def __init__(
        self, yard: KeeperHome, least: float = LEAST_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._yard = yard
        self._least = least
        self._patience = patience
        self._looks: dict[str, _Look] = {}
        self._begun: dict[str, asyncio.Future[AttemptSample]] = {}
        self.ended: dict[int, str] = {}
        """Runs whose keeper was ended here, and why."""

    async def look(self, followed: Mapping[int, FollowedAttempt]) -> list[AttemptSample]:
        """Return what can be seen of attempts; a keeper that has missed two beats is ended."""
        now = asyncio.get_running_loop().time()
        signs = await self._signs([each.kept for each in followed.values()])
        known = {each.kept.nonce for each in followed.values()}
        self._looks = {nonce: look for nonce, look in self._looks.items() if nonce in known}
        found = []
        for each, sign in zip(followed.values(), signs, strict=True):
            if sign is None:
                continue
            self._looks[each.kept.nonce] = look = self._compared(each.kept, sign, now)
            if look.missed and look.at == now:
                self._rouse(each.kept, look)
            found.append(_told(sign, each.hearing, look))
        return found

    async def _signs(self, many: Sequence[KeptAttempt]) -> list[AttemptSample | None]:
        pause = min(PAUSE_SECONDS, LONGEST_RETRY_SECONDS / max(1, len(many)))
        self._begun = {nonce: look for nonce, look in self._begun.items() if not look.done()}
        begun: list[asyncio.Future[AttemptSample | None]] = []
        try:
            for kept in many:
                begun.append(asyncio.ensure_future(self._sign(kept)))
                await asyncio.sleep(pause)
            return await asyncio.gather(*begun)
        finally:
            for look in begun:
                look.cancel()

    async def _sign(self, kept: KeptAttempt) -> AttemptSample | None:
        """Return what can be seen of one in time; what is seen too late counts for nothing."""
        why = "an earlier look still hangs"
        if kept.nonce not in self._begun:
            self._begun[kept.nonce] = look = asyncio.ensure_future(self._yard.take_sample(kept))
            try:
                async with asyncio.timeout(self._patience):
                    return await asyncio.shield(look)
            except Exception as fault:  # noqa: BLE001 - whatever it is, the others are looked at
                why = f"{type(fault).__name__}: {fault}"
        log.warning("run.unseen", extra={"run_id": kept.run_id, "error": why})
        return None

    def _compared(self, kept: KeptAttempt, sign: AttemptSample, now: float) -> _Look:
        before = self._looks.get(kept.nonce)
        if before is None or before.beat != sign.beat or sign.pid is None:
            return _Look(sign.beat, 0, now)
        if now - before.at < self._least:
            return before
        return _Look(sign.beat, before.missed + 1, now)

    def _rouse(self, kept: KeptAttempt, look: _Look) -> None:
        for_good = look.missed >= MISSED
        struck = self._yard.wake(kept, for_good=for_good)
        facts = {"run_id": kept.run_id, "attempt": kept.epoch, "missed": look.missed}
        log.warning("keeper.silent", extra={**facts, "ended": struck and for_good})
        if struck and for_good:
            self.ended[kept.run_id] = SILENT


def _told(sign: AttemptSample, hearing: OutputParser, look: _Look) -> AttemptSample:
    """Return a sign with what was heard, made safe and short."""
    pane = None if sign.pane is None else clean(sign.pane)[-MAX_PANE:]
    state = "silent" if look.missed else sign.state
    return AttemptSample(
        run_id=sign.run_id,
        epoch=sign.epoch,
        alive=sign.alive,
        state=state,
        pid=sign.pid,
        processes=sign.processes,
        cpu_seconds=sign.cpu_seconds,
        memory_bytes=sign.memory_bytes,
        output_at=sign.output_at,
        last_line=hearing.last_line[:MAX_LINE] or None,
        pane=pane,
    )


PART = 256 * 1024
QUIET_SECONDS = 0.05
"""How long a line stays as it is before its beginning is shown."""
REST_SECONDS = 30.0
"""How long an attempt is left alone that nothing is heard of: what is new rings, and so its end."""
MOST_LOOKED_AT = 1_000
"""Among how many pieces of output the end of one is looked for, which others may have followed."""


class OutputFollower:
    """Hears the attempts of a home; `abandon` is awaited for a run that is another's."""

    def __init__(
        self,
        store: Store,
        yard: KeeperHome,
        minding: ProgramControl,
        abandon: Callable[[KeptAttempt], Awaitable[NoReturn]],
        heed: Callable[[KeptAttempt, OutputParser], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._yard = yard
        self._minding = minding
        self._abandon = abandon
        self._heed = heed
        self.followed: dict[int, FollowedAttempt] = {}
        """The attempts that are being heard, by their runs."""

    async def to_the_end(
        self, kept: KeptAttempt, holder: str, begin: Callable[[], OutputParser]
    ) -> tuple[ExitRecord, OutputParser]:
        """Record what is said until the attempt has ended and all of it was heard.

        `begin` makes a hearing that has heard nothing; it is fed with what is on record already.
        """
        try:
            ending, hearing = await self._hear(kept, holder, begin)
            await self._record_end(kept, holder, hearing.finish(ending, kept.tries))
            return ending, hearing
        finally:
            self.followed.pop(kept.run_id, None)

    async def _hear(
        self, kept: KeptAttempt, holder: str, begin: Callable[[], OutputParser]
    ) -> tuple[ExitRecord, OutputParser]:
        hearing = await self._caught_up(kept, holder, begin())
        await self._recorded(kept, hearing)
        before, seen = dict(hearing.unfinished), -math.inf
        while True:
            ending = self._minding.look(kept)
            ended = ending is not None
            while heard := await self._heard(kept, hearing, last=ended, before=before):
                stands = await self._record(kept, holder, heard, hearing.news())
                if stands is not None:
                    hearing = await self._caught_up(stands, holder, begin())
                await self._recorded(kept, hearing)
                before = dict(hearing.unfinished)
            if ending is None:
                seen = self._yard.boot_time()
                news = hearing.unfinished != before and any(hearing.unfinished.values())
                before = dict(hearing.unfinished)
                await self._yard.wait_for_change(kept, QUIET_SECONDS if news else REST_SECONDS)
                continue
            ending = replace(ending, ago=min(ending.ago, self._yard.boot_time() - seen))
            left = await self._minding.swept(kept)
            if left:
                ending = replace(ending, reason=ExitReason.LOST_UNSWEPT, detail=left, proven=False)
            return ending, hearing

    async def _caught_up(
        self, kept: KeptAttempt, holder: str, hearing: OutputParser
    ) -> OutputParser:
        """Return a hearing that knows what is on record already; others get their turns."""
        answers: list[ProgressNotice] = []
        for stream in OutputStream:
            end = kept.at(stream)
            while hearing.at(stream) < end:
                at = hearing.at(stream)
                data = await self._minding.read(kept, stream, at, min(PART, end - at))
                part = hearing.take(stream, data, known=at + len(data) == end)
                if part is None:
                    hearing.skip(stream, end)  # the spool is shorter: power was lost
                else:
                    answers += (one for one in part.for_people if one.most is None)
                await asyncio.sleep(0)
        if hearing.at(OutputStream.OUT) or hearing.at(OutputStream.ERR):
            query = partial(self._store.read, count_output_events, kept.run_id, kept.began)
            hearing.count_kept(await until_available(query))
        if answers:
            await self._tell(kept, holder, answers)
        self.followed[kept.run_id] = FollowedAttempt(kept, hearing)
        return hearing

    async def _tell(
        self, kept: KeptAttempt, holder: str, answers: Sequence[ProgressNotice]
    ) -> None:
        """Tell answers that are on record, of which each is told once: it may have been to nobody.

        If the record has moved on, or is another's, whoever records next finds out.
        """
        at = kept.at(OutputStream.OUT)
        part = OutputChunk(OutputStream.OUT, at, at, for_people=tuple(answers))
        await until_available(
            lambda: self._store.write(record_output, kept.run_id, kept.epoch, holder, [part])
        )

    async def _record_end(self, kept: KeptAttempt, holder: str, last: OutputChunk | None) -> None:
        """Record the end of an output once: whoever carries on may find that somebody has."""
        if last is None:
            return

        async def once() -> None:
            newest = await self._store.read(list_run_output, kept.run_id, MOST_LOOKED_AT)
            since = from_micros(kept.began)
            if not any(e.at >= since and e.data.get(END) == kept.tries for e in newest):
                await self._store.write(record_output, kept.run_id, kept.epoch, holder, [last])

        await until_available(once)

    async def _recorded(self, kept: KeptAttempt, hearing: OutputParser) -> None:
        """Note that everything heard is on record, and tell who heeds it."""
        hearing.recorded()
        if self._heed is not None:
            await self._heed(kept, hearing)

    async def _heard(
        self,
        kept: KeptAttempt,
        hearing: OutputParser,
        *,
        last: bool,
        before: Mapping[OutputStream, int],
    ) -> list[OutputChunk]:
        """Return what is new: whole lines, and the beginning of one that has not grown since."""
        heard = []
        for stream in OutputStream:
            data = await self._minding.read(kept, stream, hearing.at(stream), PART)
            part = hearing.take(stream, data, last=last and len(data) < PART)
            if part is None and data and len(data) == before[stream]:
                part = hearing.take_part(stream, data)
            if part is not None:
                heard.append(part)
        return heard

    async def _record(
        self,
        kept: KeptAttempt,
        holder: str,
        heard: Sequence[OutputChunk],
        session: AgentSessionRef | None,
    ) -> KeptAttempt | None:
        """Record what was heard, once: after a lost answer the record says whether it was.

        Where the record stands neither before nor behind it, return how it stands.
        """
        while True:
            try:
                if await self._store.write(
                    record_output, kept.run_id, kept.epoch, holder, heard, session
                ):
                    return None
            except Unavailable as fault:
                log.warning("run.unheard", extra={"run_id": kept.run_id, "error": str(fault)})
                await asyncio.sleep(RETRY_SECONDS)
            rows = await until_available(
                lambda: self._store.read(list_kept_attempts, self._yard.home)
            )
            stands = next((row for row in rows if row.run_id == kept.run_id), None)
            if stands is None or not stands.current or stands.nonce != kept.nonce:
                await self._abandon(kept)
            elif all(stands.at(part.stream) == part.end for part in heard):
                return None
            elif any(stands.at(part.stream) != part.start for part in heard):
                return stands


Answer = TypeVar("Answer")


async def detach_task(work: asyncio.Future[Any]) -> None:
    """Let go of work, however often it takes: an answer may come in the way of a cancellation."""
    while not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=RETRY_SECONDS)


async def await_uninterrupted(future: asyncio.Future[Any]) -> bool:
    """Wait for something that must not be left half done; tell whether this was cancelled."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            cancelled = True
    return cancelled

"""Running programs: follow their output, heartbeats, cancellation, helper programs.

Machine errors (a full disk, no free descriptors, an engine that does not answer) end no program:
they are logged, and the operation is repeated.

The watchdog checks keepers once a heartbeat. A keeper without a sign of life in three checks has
missed two heartbeats: it is sent SIGCONT first, then killed, and its attempt is lost. Checks are
counted instead of hours, because a stopped process or a sleeping machine has made none. Checks of
many attempts are spread over time. One that fails or hangs skips only its own attempt.

Helper programs (checks) have no row: the keeper folder is named by the attempt, and whoever
continues the attempt ends and repeats them. Superseded attempts are discarded in the background,
because a container engine may hang.
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
"""How long the output of an ended attempt may be unreadable before it is given up."""
SWEEP_SECONDS = 60.0
"""How long an engine may fail to remove what it runs before the attempt is lost."""


class ProgramControl:
    """Reads the state of a home's programs and ends them."""

    def __init__(self, yard: KeeperHome) -> None:
        self._yard = yard
        self._unasked: dict[str, asyncio.TimerHandle] = {}

    def look(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return the exit record; without an answer of the machine the attempt is running."""
        try:
            return self._yard.exit_record(kept)
        except OSError as fault:
            log.warning("attempt.sample_failed", extra={"run_id": kept.run_id, "error": str(fault)})
            return None

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree, repeated until the request is written."""
        self._withdraw(kept)
        try:
            self._yard.cancel(kept, grace_seconds, why)
        except OSError as fault:
            log.warning("attempt.cancel_failed", extra={"run_id": kept.run_id, "error": str(fault)})
            again = partial(self._ask_again, kept, grace_seconds, why)
            loop = asyncio.get_running_loop()
            self._unasked[kept.nonce] = loop.call_later(RETRY_SECONDS, again)

    def _ask_again(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        if self.look(kept) is None:
            self.cancel(kept, grace_seconds, why)
        else:
            self._withdraw(kept)

    def _withdraw(self, kept: KeptAttempt) -> None:
        """Cancel an earlier stop request that could not be written."""
        waiting = self._unasked.pop(kept.nonce, None)
        if waiting is not None:
            waiting.cancel()

    async def end(self, kept: KeptAttempt, why: str) -> None:
        """End a program and wait until nothing of it is left."""
        while self.look(kept) is None:
            self.cancel(kept, 0.0, why)
            await self._yard.wait_for_change(kept, RETRY_SECONDS)
        await self.swept(kept)

    async def read(self, kept: KeptAttempt, stream: OutputStream, offset: int, most: int) -> bytes:
        """Read a stream at an offset as soon as it is readable."""
        return await self._readable(
            kept, partial(self._yard.read_output, kept, stream, offset, most)
        )

    async def result(self, kept: KeptAttempt, assignment: Assignment) -> bytes | None:
        """Read the result file of an attempt as soon as it is readable."""
        return await self._readable(kept, partial(self._yard.read_result, assignment))

    async def _readable(self, kept: KeptAttempt, read: Callable[[], Content]) -> Content:
        """Repeat a read while the program runs.

        Raises Unavailable if the output of an ended program stays unreadable for too long.
        """
        until = math.inf
        while True:
            try:
                return read()
            except OSError as fault:
                log.warning(
                    "attempt.read_failed", extra={"run_id": kept.run_id, "error": str(fault)}
                )
                until = min(until, self._yard.boot_time() + READ_SECONDS)
                if self._yard.boot_time() >= until and self.look(kept) is not None:
                    raise Unavailable(f"what it wrote cannot be read: {fault}") from fault
            await asyncio.sleep(RETRY_SECONDS)

    async def sweep(self, kept: KeptAttempt) -> str:
        """Remove what outlives the process tree, and return what is left."""
        try:
            await self._yard.clean_up(kept)
        except Unavailable as fault:
            why = {"run_id": kept.run_id, "attempt": kept.epoch, "error": str(fault)}
            log.warning("attempt.cleanup_failed", extra=why)
            return str(fault)
        return ""

    async def swept(self, kept: KeptAttempt) -> str:
        """Repeat the removal until nothing is left or it takes too long; return what is left."""
        until = self._yard.boot_time() + SWEEP_SECONDS
        while left := await self.sweep(kept):
            if self._yard.boot_time() >= until:
                break
            await asyncio.sleep(RETRY_SECONDS)
        return left

    def close(self) -> None:
        """Stop all requests, because another process has the home now."""
        for waiting in self._unasked.values():
            waiting.cancel()
        self._unasked.clear()


LAST_WORDS = 2_000
NOBODY = "it is no longer needed"


class HelperResult(NamedTuple):
    """The last output of a program and its exit record; `ending` is None if it did not start."""

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
        """Request the end of programs that an earlier process left beside an attempt."""
        left = [
            each for each in self._yard.other_launches(kept) if self._minding.look(each) is None
        ]
        for each in left:
            self._minding.cancel(each, 0.0, NOBODY)
        return left

    async def end(self, kept: KeptAttempt) -> None:
        """End programs that an earlier process left beside an attempt, and wait for it."""
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
        """Run a program with the site of the attempt, to its end.

        `hold` gets what can be ended, and returns whether it must end at once. A caller that ends
        it early gets its exit record here as well; nothing of it is left afterwards.
        """
        if self._script is None:
            return HelperResult(None, "programs cannot run here")
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
    """Wait for a start to complete, because the home may belong to another process afterwards."""
    left = await await_uninterrupted(starting)
    starting.result()
    if left:
        raise asyncio.CancelledError


GONE_ON = "its run continued without it"
LEFT = "left"
LEFT_SECONDS = 60.0
"""Interval of searches for programs without a record."""


class SupersededAttempts:
    """Discards superseded attempts of a home, each once at a time."""

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
        """Start discarding attempts; failed ones are repeated later.

        Attempts without any record are removed from time to time as well.
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
        """Remove a finished entry; a failed one is repeated."""
        del self._going[name]
        if not going.cancelled() and going.exception() is not None:
            log.error("attempt.discard_failed", extra={"keeper": name}, exc_info=going.exception())

    async def _sweep_left(self, known: Sequence[KeptAttempt]) -> None:
        """Remove what remained when a later attempt of its run took its place."""
        for kept in await self._yard.find_uncleaned(known):
            async with self._sweeping:
                await self._minding.sweep(kept)

    async def _discard(self, kept: KeptAttempt) -> None:
        """End what is left of an attempt and delete its row."""
        if self._minding.look(kept) is None:
            self._minding.cancel(kept, 0.0, GONE_ON)
            return  # checked again after its keeper had time to end it
        async with self._sweeping:  # attempts that end now must not wait for all of them
            if await self._minding.sweep(kept) or self._beside.ending(kept):
                return
        await self._yard.delete(kept)
        await until_available(lambda: self._store.write(drop_kept_attempt, kept.run_id, kept.epoch))

    async def close(self) -> None:
        """Leave the rest to the next process of the home."""
        for going in tuple(self._going.values()):
            await detach_task(going)


ASKED_MICROS = 60 * 1_000_000
"""How long a program may run after it has asked a question: time to end its turn."""
GRACE_SECONDS = 10.0
HAS_ASKED = "it asked a question and did not end its turn"


async def is_waiting_for_answer(store: Store, kept: KeptAttempt) -> bool:
    """Return whether an attempt has asked a question; then it is not launched again."""
    return bool(
        await until_available(lambda: store.read(attempts_waiting_for_answer, [kept.run_id]))
    )


async def stop_waiting_attempts(
    store: Store, minding: ProgramControl, known: Sequence[KeptAttempt]
) -> int:
    """End programs that asked a question long ago; their runs keep waiting.

    Repeated requests to a keeper have no effect, so this is called until the program has ended.
    """
    going = [kept for kept in known if kept.current and kept.relaunch_at is None]
    if not going:
        return 0
    late = set(
        await store.read(list_overdue_waiting_attempts, going[0].home, store.now() - ASKED_MICROS)
    )
    ended = [kept for kept in going if (kept.run_id, kept.epoch) in late]
    for kept in ended:
        log.info(
            "attempt.overdue_after_question", extra={"run_id": kept.run_id, "attempt": kept.epoch}
        )
        minding.cancel(kept, GRACE_SECONDS, HAS_ASKED)
    return len(ended)


MISSED = 2
LEAST_SECONDS = 35.0
"""Minimum time between two counted checks; keepers write every 15 s."""
PAUSE_SECONDS = 0.02
LONGEST_RETRY_SECONDS = 10.0
"""Between two looks, and before the last of very many."""
PATIENCE_SECONDS = 10.0
"""Time limit of one check, longer than that of a pane and much shorter than a heartbeat."""
SILENT = "its keeper missed two heartbeats and was killed"


class FollowedAttempt(NamedTuple):
    """An attempt whose output is followed."""

    kept: KeptAttempt
    hearing: OutputParser


class _Look(NamedTuple):
    beat: int | None
    missed: int
    at: float


class KeeperWatchdog:
    """Checks the keepers of a home once a heartbeat."""

    def __init__(
        self, yard: KeeperHome, least: float = LEAST_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._yard = yard
        self._least = least
        self._patience = patience
        self._looks: dict[str, _Look] = {}
        self._begun: dict[str, asyncio.Future[AttemptSample]] = {}
        self.ended: dict[int, str] = {}
        """Runs whose keepers were killed here, with the reason."""

    async def look(self, followed: Mapping[int, FollowedAttempt]) -> list[AttemptSample]:
        """Return samples of attempts; a keeper that missed two heartbeats is killed."""
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
        """Return the sample of one attempt in time, or None."""
        why = "an earlier look still hangs"
        if kept.nonce not in self._begun:
            self._begun[kept.nonce] = look = asyncio.ensure_future(self._yard.take_sample(kept))
            try:
                async with asyncio.timeout(self._patience):
                    return await asyncio.shield(look)
            except Exception as fault:  # noqa: BLE001 - other attempts are checked anyway
                why = f"{type(fault).__name__}: {fault}"
        log.warning("attempt.sample_failed", extra={"run_id": kept.run_id, "error": why})
        return None

    def _compared(self, kept: KeptAttempt, sign: AttemptSample, now: float) -> _Look:
        before = self._looks.get(kept.nonce)
        if before is None or before.beat != sign.heartbeat or sign.pid is None:
            return _Look(sign.heartbeat, 0, now)
        if now - before.at < self._least:
            return before
        return _Look(sign.heartbeat, before.missed + 1, now)

    def _rouse(self, kept: KeptAttempt, look: _Look) -> None:
        for_good = look.missed >= MISSED
        struck = self._yard.wake(kept, for_good=for_good)
        facts = {"run_id": kept.run_id, "attempt": kept.epoch, "missed": look.missed}
        log.warning("keeper.unresponsive", extra={**facts, "ended": struck and for_good})
        if struck and for_good:
            self.ended[kept.run_id] = SILENT


def _told(sign: AttemptSample, hearing: OutputParser, look: _Look) -> AttemptSample:
    """Return a sample with the newest output, redacted and shortened."""
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
"""How long an incomplete line is unchanged before it is shown."""
REST_SECONDS = 30.0
"""Interval of checks of a quiet attempt; new output and its end wake the follower."""
MOST_LOOKED_AT = 1_000
"""Number of output events among which the last text is searched."""


class OutputFollower:
    """Follows the attempts of a home; `abandon` is awaited for runs of another worker."""

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
        """The followed attempts, by run."""

    async def to_the_end(
        self, kept: KeptAttempt, holder: str, begin: Callable[[], OutputParser]
    ) -> tuple[ExitRecord, OutputParser]:
        """Record output until the attempt has ended and all of it is read.

        `begin` creates a parser, which is fed with what is recorded already.
        """
        try:
            ending, hearing = await self._hear(kept, holder, begin)
            await self._record_end(kept, holder, hearing.finish(ending, kept.launches))
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
        """Return a parser that has read everything that is recorded, with pauses for others."""
        answers: list[ProgressNotice] = []
        for stream in OutputStream:
            end = kept.at(stream)
            while hearing.at(stream) < end:
                at = hearing.at(stream)
                data = await self._minding.read(kept, stream, at, min(PART, end - at))
                part = hearing.take(stream, data, known=at + len(data) == end)
                if part is None:
                    hearing.skip(stream, end)  # the spool is shorter after a power failure
                else:
                    answers += (one for one in part.for_people if one.most is None)
                await asyncio.sleep(0)
        if hearing.at(OutputStream.OUT) or hearing.at(OutputStream.ERR):
            query = partial(self._store.read, count_output_events, kept.run_id, kept.started_at)
            hearing.count_kept(await until_available(query))
        if answers:
            await self._tell(kept, holder, answers)
        self.followed[kept.run_id] = FollowedAttempt(kept, hearing)
        return hearing

    async def _tell(
        self, kept: KeptAttempt, holder: str, answers: Sequence[ProgressNotice]
    ) -> None:
        """Pass on recorded answers, each once.

        If the record has changed or belongs to another worker, the next write finds out.
        """
        at = kept.at(OutputStream.OUT)
        part = OutputChunk(OutputStream.OUT, at, at, for_people=tuple(answers))
        await until_available(lambda: write_output(self._store, kept, holder, [part]))

    async def _record_end(self, kept: KeptAttempt, holder: str, last: OutputChunk | None) -> None:
        """Record the end of an output once; an earlier process may have recorded it."""
        if last is None:
            return

        async def once() -> None:
            newest = await self._store.read(list_run_output, kept.run_id, MOST_LOOKED_AT)
            since = from_micros(kept.started_at)
            if not any(e.at >= since and e.data.get(END) == kept.launches for e in newest):
                await write_output(self._store, kept, holder, [last])

        await until_available(once)

    async def _recorded(self, kept: KeptAttempt, hearing: OutputParser) -> None:
        """Mark everything as recorded and notify listeners."""
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
        """Return new output: complete lines, and the beginning of one that has not grown since."""
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
        """Record output once: after a lost answer, the stored offset says whether it was written.

        Returns the stored attempt if its offset is neither before nor after this write.
        """
        while True:
            try:
                if await write_output(self._store, kept, holder, heard, session):
                    return None
            except Unavailable as fault:
                log.warning(
                    "attempt.output_failed", extra={"run_id": kept.run_id, "error": str(fault)}
                )
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
    """Cancel a task until it has ended; its answer may arrive together with the cancellation."""
    while not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=RETRY_SECONDS)


async def await_uninterrupted(future: asyncio.Future[Any]) -> bool:
    """Wait for something that must be completed; return whether this task was cancelled."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


async def write_output(
    store: Store,
    kept: KeptAttempt,
    worker: str,
    chunks: Sequence[OutputChunk],
    session: AgentSessionRef | None = None,
) -> bool:
    """Record output, once; false if it was recorded already or the run is another worker's.

    Plain output can be read again from its spool, so its commit does not wait for the disk.
    """
    durable = session is not None or any(chunk.used or chunk.for_people for chunk in chunks)
    write = store.write if durable else store.write_lightly
    return await write(record_output, kept.run_id, kept.epoch, worker, chunks, session)

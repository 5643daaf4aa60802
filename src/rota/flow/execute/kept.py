"""Kept work: programs under keepers, carried on by whichever process has the home.

The way of one attempt: written down, then started, then heard until it has ended, then reported.
Killed between any two of these, the next process of the home finds the row, looks at the keeper,
and goes on from where the record stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

from rota.errors import Invalid, NotPermitted, RotaError, Unavailable
from rota.flow.execute.again import Patience, again, what_is_left
from rota.flow.execute.errands import unfolded
from rota.flow.execute.following import Following
from rota.flow.execute.hearing import Hearing
from rota.flow.execute.patiently import LOOK_SECONDS, patiently
from rota.flow.execute.preparing import agent_of, bounds_of, ids_of, wish_of
from rota.flow.execute.reporting import out_of_time, refusal, report_of, verdict_of
from rota.flow.execute.scripts import result_line
from rota.flow.execute.trying import Trying, in_session
from rota.model.keeping import Ending, Heard, Kept, KeptSession, Pause, Reason, Stream
from rota.model.outcomes import Report
from rota.model.programs import Bounds
from rota.model.sites import Site
from rota.model.spaces import Role
from rota.model.tasks import TaskKind
from rota.model.wishes import Wish
from rota.ports.agent import Agent, Reader, Room
from rota.ports.clock import Random
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.ports.yard import Yard
from rota.rules.sites import site_of

log = logging.getLogger(__name__)

ROUTES = ("agent", "script")
KEEPER_SECONDS = 15 * 60.0
"""How long keepers go on without hearing from this home."""
DOUBT_SECONDS = 180.0
"""Slack, grace and clocks: how much later than its promise a keeper may really be gone."""
RENEW_SECONDS = 10.0
SWEEP_SECONDS = 60.0
"""How long an engine may refuse to end what it runs before the attempt is given up as lost."""
TIDY_FIRST_MICROS = 60 * 1_000_000
TIDY_MICROS = 3600 * 1_000_000
PART = 256 * 1024
LAST_WORDS = 4 * 1024
CANNOT_BE_HAD = (Invalid, NotPermitted, Unavailable)
GONE_ON = "its run has gone on without it"


class Ready(NamedTuple):
    """What an attempt needs before it can begin."""

    agent: Agent
    wish: Wish
    room: Room
    bounds: Bounds
    site: Site
    role: Role


class KeptWork:
    """Runs the attempts of agents and scripts, and keeps them."""

    keeps = True

    def __init__(
        self,
        store: Store,
        yard: Yard,
        agents: Mapping[str, Agent],
        holder: Callable[[], str],
        chance: Random,
        *,
        usual_agent: str,
        offered: Mapping[str, str],
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        tidy: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._store = store
        self._yard = yard
        self._agents = agents
        self._holder = holder
        self._chance = chance
        self._usual = usual_agent
        self._offered = offered
        self._trying = Trying(store, patience or Patience(), sleep)
        self._tidy = tidy
        self._tidy_at = 0
        self._taken = False
        self._roles: dict[str, Role] = {}
        self._left: set[int] = set()
        self._going: set[int] = set()

    @property
    def home(self) -> str:
        """What this home is called in the store."""
        return self._yard.home

    def routes(self) -> Sequence[str]:
        """Return the routes it serves, once it has the home."""
        return ROUTES if self._taken else ()

    def waited(self, run_id: int) -> float | None:  # noqa: ARG002 - nothing waits here
        """Nothing waits here."""
        return 0.0

    def let_go(self, run_id: int) -> None:
        """Let an attempt go on without this process."""
        self._left.add(run_id)

    async def open(self) -> bool:
        """Take the home for this process; false if another one has it."""
        self._taken = self._yard.take()
        self._tidy_at = self._store.now() + TIDY_FIRST_MICROS
        return self._taken

    async def close(self) -> None:
        """Let go of the home; its keepers go on until the promise ends."""
        self._taken = False
        self._yard.close()

    async def renew(self) -> float:
        """Promise the store and then the keepers some more time, and forget what has ended.

        The store's promise comes first and is longer: a keeper is gone before it is believed to be.
        """
        until = self._store.now() + int((KEEPER_SECONDS + DOUBT_SECONDS) * 1_000_000)
        await self._store.renew_home(self.home, self._yard.host, until)
        self._yard.promise(KEEPER_SECONDS)
        known = await self._store.kept_of(self.home)
        for kept in known:
            if not kept.current and kept.run_id not in self._going:
                await self.discard(kept)
        self._yard.tidy(known)
        await self._tidy_now_and_then()
        return RENEW_SECONDS

    async def _tidy_now_and_then(self) -> None:
        now = self._store.now()
        if self._tidy is not None and now >= self._tidy_at:
            self._tidy_at = now + TIDY_MICROS
            await self._tidy()

    async def discard(self, kept: Kept) -> None:
        """End what is left of an attempt whose run has gone on without it, and forget it."""
        if self._yard.look(kept) is None:
            self._yard.cancel(kept, 0.0, GONE_ON)
            return  # it is looked at again when its keeper has had the time to end it
        if await self._sweep(kept):
            return
        await asyncio.to_thread(self._yard.forget, kept)
        await self._store.drop_kept(kept.run_id, kept.epoch)

    async def run(self, assignment: Assignment) -> Report:
        """Run one attempt to its end, or carry on what was kept of it."""
        run_id = assignment.lease.run_id
        self._left.discard(run_id)
        self._going.add(run_id)
        try:
            return await self._run(assignment)
        finally:
            self._going.discard(run_id)

    async def _run(self, assignment: Assignment) -> Report:
        try:
            assignment = unfolded(assignment)
            ready = await self._ready(assignment)
        except CANNOT_BE_HAD as fault:
            return refusal(fault, assignment.task.kind)
        kept, agent, wish = assignment.kept, ready.agent, ready.wish
        while True:
            if kept is None or kept.until is not None:
                started = await self._start(assignment, ready, kept)
                if isinstance(started, Report):
                    return started
                kept = started
            following = Following(agent.name, kept.session) if wish.keep_session else None
            reader = agent.reader(wish, in_session(ready.room, kept.session))
            hearing = self._caught_up(kept, Hearing(reader, following))
            try:
                ending = await self._hear(kept, hearing)
            except asyncio.CancelledError:
                if assignment.lease.run_id not in self._left:
                    await self._stop(assignment, kept, hearing)
                raise
            if ending.reason is Reason.LOST_NEVER_STARTED and kept is assignment.kept:
                kept = replace(kept, until=self._store.now())  # its process was killed before it
                continue
            self._read_result(assignment, reader)
            verdict = verdict_of(self._with_last_words(kept, ending), reader)
            pause = None
            if assignment.task.kind is TaskKind.AGENT:
                hard = ready.bounds.hard_seconds
                pause = again(kept, verdict, self._trying.patience, hard, self._store.now())
            if pause is None:
                return report_of(ending, verdict, assignment.task.kind)
            await self._pause(pause)
            kept = pause.kept

    def _with_last_words(self, kept: Kept, ending: Ending) -> Ending:
        """Return an ending whose standard error ends with what is in the spool, too."""
        err = ending.err
        words = self._yard.read(kept, Stream.ERR, max(0, err.size - LAST_WORDS), LAST_WORDS)
        return replace(ending, err=replace(err, tail=words + err.tail))

    def _read_result(self, assignment: Assignment, reader: Reader) -> None:
        """Let what a script left in its result file count as its last line."""
        if assignment.task.kind is TaskKind.SCRIPT:
            line = result_line(self._yard.result(assignment) or b"")
            if line is not None:
                reader.feed(line)

    def _agent(self, assignment: Assignment) -> Agent:
        name = agent_of(assignment, self._usual)
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents))
            raise Unavailable(f"no agent {name!r} is known here: there are {known}")
        return agent

    async def _role(self, assignment: Assignment) -> Role:
        """Return whether a space may do everything; that never changes."""
        space = assignment.task.space
        if space not in self._roles:
            self._roles[space] = (await patiently(lambda: self._store.find_space(space))).role
        return self._roles[space]

    async def _ready(self, assignment: Assignment) -> Ready:
        """Return what an attempt needs; raises if it may not or cannot be had."""
        agent, wish = self._agent(assignment), wish_of(assignment)
        agent.check(wish)
        role = await self._role(assignment)
        site = site_of(assignment.task.spec, role)
        room = self._yard.room(assignment, site, self._offered, ids_of(assignment))
        return Ready(agent, wish, room, bounds_of(assignment, room.config), site, role)

    async def _start(
        self, assignment: Assignment, ready: Ready, before: Kept | None
    ) -> Kept | Report:
        """Write an attempt down and start its keeper; one that was tried before waits first."""
        lease, bounds, agent, wish = assignment.lease, ready.bounds, ready.agent, ready.wish
        if before is None:
            session = await self._trying.session(assignment, agent, wish)
            tries, began = 0, self._store.now()
        else:
            session, tries, began = before.session, before.tries, before.began
            await self._trying.wait(before.until or 0)
            bounds = what_is_left(bounds, self._store.now() - began)
            if bounds.hard_seconds is not None and bounds.hard_seconds <= 0:
                return out_of_time()
        told = await self._trying.told(assignment, wish, resumed=session is not None)
        room = in_session(ready.room, session)
        try:
            prepared = agent.prepare(told, room)
        except CANNOT_BE_HAD as fault:
            return refusal(fault, assignment.task.kind)
        kept = Kept(
            run_id=lease.run_id,
            epoch=lease.epoch,
            home=self.home,
            nonce=f"{int(self._chance.random() * 2**63):016x}",
            boot=self._yard.boot,
            executor=ready.site.executor,
            tries=tries,
            began=began,
            session=session,
        )
        if not await patiently(lambda: self._store.begin_kept(kept, self._holder())):
            await self._wait_to_be_fenced(kept)
        try:
            await self._yard.start(kept, room, ready.site, ready.role, prepared, bounds)
        except CANNOT_BE_HAD as fault:
            await patiently(lambda: self._store.drop_kept(kept.run_id, kept.epoch))
            return refusal(fault, assignment.task.kind)
        return kept

    async def _pause(self, pause: Pause) -> None:
        """Write down that a try was in vain, before anything is waited for."""
        if not await patiently(lambda: self._store.pause_kept(pause, self._holder())):
            await self._wait_to_be_fenced(pause.kept)

    def _caught_up(self, kept: Kept, hearing: Hearing) -> Hearing:
        """Return a hearing that knows what is on record already."""
        for stream, end in ((Stream.OUT, kept.out_at), (Stream.ERR, kept.err_at)):
            while hearing.at(stream) < end:
                at = hearing.at(stream)
                data = self._yard.read(kept, stream, at, min(PART, end - at))
                if hearing.take(stream, data, last=True) is None:
                    hearing.skip(
                        stream, end
                    )  # the spool is shorter than the record: power was lost
        if hearing.following is not None:
            hearing.following.recorded()
        return hearing

    async def _hear(self, kept: Kept, hearing: Hearing) -> Ending:
        """Record what is said until the attempt has ended and all of it was heard."""
        patience = SWEEP_SECONDS
        while True:
            ending = self._yard.look(kept)
            while await self._hear_some(kept, hearing, last=ending is not None):
                pass
            if ending is not None:
                left = await self._sweep(kept)
                if not left:
                    return ending
                patience -= LOOK_SECONDS
                if patience < 0:
                    return replace(ending, reason=Reason.LOST_UNSWEPT, detail=left, proven=False)
                await asyncio.sleep(LOOK_SECONDS)
                continue
            await self._yard.rung(kept, LOOK_SECONDS)

    async def _sweep(self, kept: Kept) -> str:
        """End what outlives the tree and return what is left; only without is an attempt over."""
        try:
            await asyncio.to_thread(self._yard.sweep, kept)
        except Unavailable as fault:
            log.warning("run.unswept", extra={"run_id": kept.run_id, "error": str(fault)})
            return str(fault)
        return ""

    async def _hear_some(self, kept: Kept, hearing: Hearing, *, last: bool) -> bool:
        heard = []
        for stream in Stream:
            data = self._yard.read(kept, stream, hearing.at(stream), PART)
            part = hearing.take(stream, data, last=last and len(data) < PART)
            if part is not None:
                heard.append(part)
        if not heard:
            return False
        following = hearing.following
        await self._record(kept, heard, following.news() if following is not None else None)
        if following is not None:
            following.recorded()
        return True

    async def _record(
        self, kept: Kept, heard: Sequence[Heard], session: KeptSession | None
    ) -> None:
        """Record what was heard, once: after a lost answer the record says whether it was."""
        while True:
            try:
                holder = self._holder()
                if await self._store.hear(kept.run_id, kept.epoch, holder, heard, session):
                    return
            except Unavailable as fault:
                log.warning("run.unheard", extra={"run_id": kept.run_id, "error": str(fault)})
                await asyncio.sleep(LOOK_SECONDS)
            rows = await patiently(lambda: self._store.kept_of(self.home))
            stands = next((row for row in rows if row.run_id == kept.run_id), None)
            if stands is None or not stands.current or stands.epoch != kept.epoch:
                await self._wait_to_be_fenced(kept)
            elif all(_at(stands, part.stream) >= part.end for part in heard):
                return

    async def _wait_to_be_fenced(self, kept: Kept) -> NoReturn:
        """Do nothing about a run that is another's: the pulse will say so, and end this."""
        log.warning("run.not_ours", extra={"run_id": kept.run_id, "attempt": kept.epoch})
        self._left.add(kept.run_id)
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def _stop(self, assignment: Assignment, kept: Kept, hearing: Hearing) -> None:
        """Stop an attempt and wait until nothing of it is left."""
        grace = bounds_of(assignment).grace_seconds
        self._yard.cancel(kept, grace, "cancelled")
        ended = asyncio.ensure_future(self._hear(kept, hearing))
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                if kept.run_id in self._left:
                    ended.cancel()
                    return
            except RotaError as fault:
                log.warning("run.unheard", extra={"run_id": kept.run_id, "error": str(fault)})


def _at(kept: Kept, stream: Stream) -> int:
    return kept.out_at if stream is Stream.OUT else kept.err_at

"""Kept work: programs under keepers, carried on by whichever process has the home.

The way of one attempt: written down, then started, then heard until it has ended, then reported.
Killed between any two of these, the next process of the home finds the row, looks at the keeper,
and goes on from where the record stands.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn, TypeVar

from rota.errors import Invalid, RotaError, Unavailable
from rota.flow.execute.hearing import Hearing
from rota.flow.execute.preparing import agent_of, bounds_of, ids_of, wish_of
from rota.flow.execute.reporting import refusal, report_of
from rota.model.keeping import Ending, Heard, Kept, Stream
from rota.model.outcomes import Report
from rota.model.spaces import Role
from rota.model.wishes import Wish
from rota.ports.agent import Agent, Reader, Room
from rota.ports.clock import Random
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.ports.yard import Yard

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

ROUTES = ("agent", "script")
KEEPER_SECONDS = 15 * 60.0
"""How long keepers go on without hearing from this home."""
DOUBT_SECONDS = 180.0
"""Slack, grace and clocks: how much later than its promise a keeper may really be gone."""
RENEW_SECONDS = 10.0
LOOK_SECONDS = 1.0
PART = 256 * 1024
GONE_ON = "its run has gone on without it"


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
    ) -> None:
        self._store = store
        self._yard = yard
        self._agents = agents
        self._holder = holder
        self._chance = chance
        self._usual = usual_agent
        self._offered = offered
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
        return RENEW_SECONDS

    async def discard(self, kept: Kept) -> None:
        """End what is left of an attempt whose run has gone on without it, and forget it."""
        if self._yard.look(kept) is None:
            self._yard.cancel(kept, 0.0, GONE_ON)
            return  # it is looked at again when its keeper has had the time to end it
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
            agent, wish = self._agent(assignment), wish_of(assignment)
            agent.check(wish)
            role = await self._role(assignment)
            executor = self._yard.executor_of(assignment, role)
            room = self._room(assignment, executor)
        except (Invalid, Unavailable) as fault:
            return refusal(fault, assignment.task.kind)
        kept = assignment.kept
        if kept is None:
            started = await self._start(assignment, agent, wish, room, executor, role)
            if isinstance(started, Report):
                return started
            kept = started
        hearing = self._caught_up(kept, agent.reader(wish, room))
        try:
            ending = await self._hear(kept, hearing)
        except asyncio.CancelledError:
            if assignment.lease.run_id not in self._left:
                await self._stop(assignment, kept, hearing)
            raise
        return report_of(ending, hearing.reader, assignment.task.kind)

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
            self._roles[space] = (await _patiently(lambda: self._store.find_space(space))).role
        return self._roles[space]

    def _room(self, assignment: Assignment, executor: str) -> Room:
        return self._yard.room(assignment, executor, self._offered, ids_of(assignment))

    async def _start(
        self,
        assignment: Assignment,
        agent: Agent,
        wish: Wish,
        room: Room,
        executor: str,
        role: Role,
    ) -> Kept | Report:
        """Write an attempt down and start its keeper."""
        lease = assignment.lease
        try:
            prepared = agent.prepare(wish, room)
        except (Invalid, Unavailable) as fault:
            return refusal(fault, assignment.task.kind)
        kept = Kept(
            run_id=lease.run_id,
            epoch=lease.epoch,
            home=self.home,
            nonce=f"{int(self._chance.random() * 2**63):016x}",
            boot=self._yard.boot,
            executor=executor,
        )
        if not await _patiently(lambda: self._store.begin_kept(kept, self._holder())):
            await self._wait_to_be_fenced(kept)
        try:
            await self._yard.start(kept, room, role, prepared, bounds_of(assignment))
        except (Invalid, Unavailable) as fault:
            await _patiently(lambda: self._store.drop_kept(kept.run_id, kept.epoch))
            return refusal(fault, assignment.task.kind)
        return kept

    def _caught_up(self, kept: Kept, reader: Reader) -> Hearing:
        """Return a hearing that knows what is on record already."""
        hearing = Hearing(reader)
        for stream, end in ((Stream.OUT, kept.out_at), (Stream.ERR, kept.err_at)):
            while hearing.at(stream) < end:
                at = hearing.at(stream)
                data = self._yard.read(kept, stream, at, min(PART, end - at))
                if hearing.take(stream, data, last=True) is None:
                    hearing.skip(
                        stream, end
                    )  # the spool is shorter than the record: power was lost
        return hearing

    async def _hear(self, kept: Kept, hearing: Hearing) -> Ending:
        """Record what is said until the attempt has ended and all of it was heard."""
        while True:
            ending = self._yard.look(kept)
            while await self._hear_some(kept, hearing, last=ending is not None):
                pass
            if ending is not None:
                return ending
            await self._yard.rung(kept, LOOK_SECONDS)

    async def _hear_some(self, kept: Kept, hearing: Hearing, *, last: bool) -> bool:
        heard = []
        for stream in Stream:
            data = self._yard.read(kept, stream, hearing.at(stream), PART)
            part = hearing.take(stream, data, last=last and len(data) < PART)
            if part is not None:
                heard.append(part)
        if not heard:
            return False
        await self._record(kept, heard)
        return True

    async def _record(self, kept: Kept, heard: Sequence[Heard]) -> None:
        """Record what was heard, once: after a lost answer the record says whether it was."""
        while True:
            try:
                if await self._store.hear(kept.run_id, kept.epoch, self._holder(), heard):
                    return
            except Unavailable as fault:
                log.warning("run.unheard", extra={"run_id": kept.run_id, "error": str(fault)})
                await asyncio.sleep(LOOK_SECONDS)
            rows = await _patiently(lambda: self._store.kept_of(self.home))
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


async def _patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask the store until it answers; what is asked may be asked again."""
    while True:
        try:
            return await ask()
        except Unavailable as fault:
            log.warning("run.store_unavailable", extra={"error": str(fault)})
            await asyncio.sleep(LOOK_SECONDS)


def _at(kept: Kept, stream: Stream) -> int:
    return kept.out_at if stream is Stream.OUT else kept.err_at

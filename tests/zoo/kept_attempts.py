"""Bugs of kept attempts: programs that outlive whoever started them, and are read by others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from rota.flow.attempt import runner
from rota.flow.attempt.programs import OutputFollower
from rota.flow.attempt.runner import AttemptRunner
from rota.flow.claim import make_assignments
from rota.model.attempts import KeptAttempt
from rota.runtime.supervisor import Supervisor
from rota.runtime.worker import Worker
from rota.store.attempts import adopt_attempt, fence_home, list_kept_attempts
from tests.tools.simulation import world
from tests.tools.simulation.keeper_home import SimYard
from tests.zoo.bugs import bug, queries, replaced

BOTH = """\
  and (:out_from is null or kept_attempts.out_offset = :out_from)
  and (:err_from is null or kept_attempts.err_offset = :err_from)"""


@bug(
    "output-before-its-offset",
    "GEN-W11, G2-W15",
    "Output of a program is recorded in one transaction and its offset in another",
)
def offset_apart() -> Iterator[None]:
    with queries(
        advance_output_offsets=(
            "set out_offset = coalesce(:out_to, out_offset)",
            "set out_offset = out_offset",
        )
    ):
        yield


@bug(
    "adopted-from-the-living",
    "IST-W02, dbos#716",
    "A restarted process takes over a run without fencing its worker first",
)
def adopt_without_fencing() -> Iterator[None]:
    with queries(
        adopt_run=("and (r.worker_id = :worker", "and (1 or r.worker_id = :worker"),
        fence_home="select id from workers where :home = :worker",
    ):
        yield


@bug(
    "adopted-by-two-looks",
    "Rota, found by 5,000 fresh seeds",
    "Two searches for attempts to continue overlap, and the second starts a finished run",
    rare=True,
)
def adopted_twice() -> Iterator[None]:
    async def adopt(self, rows):
        home, adopted = self._keepers.home, []
        wanted = [kept for kept in rows if kept.current and not self.worker.has(kept.run_id)]
        if not wanted:
            return
        async with self._adopting:
            if not self._has_home:
                return
            await self._store.write(fence_home, home, self.worker.id)
            for kept in wanted:
                found = await self._store.write(
                    adopt_attempt, kept.run_id, kept.epoch, self.worker.id
                )
                adopted += make_assignments(found, self._store.database.incarnation)
        stands = {
            (kept.run_id, kept.epoch): kept
            for kept in await self._store.read(list_kept_attempts, home)
        }
        for assignment in adopted:
            lease = assignment.lease
            now_kept = stands.get((lease.run_id, lease.epoch))
            if now_kept is not None and not self._stopping and not self.worker.has(lease.run_id):
                self.worker.adopt(assignment._replace(kept=now_kept))

    async def wait(self, found):
        self._going[found.run_id].left = True
        await asyncio.get_running_loop().create_future()

    with replaced(Supervisor, "_adopt", adopt), replaced(AttemptRunner, "_leave", wait):
        yield


@bug(
    "lost-while-its-keeper-lives",
    "G2-W01, IST-W02",
    "A run is lost with its worker although its program continues under its keeper",
)
def lost_too_soon() -> Iterator[None]:
    with queries(lost_runs=("h.lease_until > :now", "h.lease_until < 0 * :now")):
        yield


@bug(
    "promise-longer-than-believed",
    "Rota, before it was simulated",
    "The lease of keepers counts from after the write to the store, however long that took",
)
def promise_too_long() -> Iterator[None]:
    promise = SimYard.extend_lease

    def later(self, until):
        promise(self, self.moment() + world.TERMS.seconds)

    with (
        replaced(world, "TERMS", world.TERMS._replace(doubt=4.0)),
        replaced(SimYard, "extend_lease", later),
    ):
        yield


@bug(
    "settled-before-proven-dead",
    "ZUB-W07, GEN-W15",
    "A stopped run is settled when its program is asked to end and not when it has ended",
)
def settled_before_dead() -> Iterator[None]:
    stop = AttemptRunner._stop

    def leave(self, going):
        stop(self, going)
        raise asyncio.CancelledError

    with replaced(AttemptRunner, "_stop", leave):
        yield


@bug(
    "handed-back-while-it-lives",
    "Rota, before it was simulated",
    "A running program is returned to the queue when its daemon stops",
)
def handed_back() -> Iterator[None]:
    with replaced(Worker, "_continues_elsewhere", lambda *_: False):
        yield


@bug(
    "nonce-used-again",
    "Rota, by thought",
    "Keepers are identified by run alone, and a later one is taken for an earlier one",
)
def nonce_again() -> Iterator[None]:
    def named(**facts):
        return KeptAttempt(**{**facts, "nonce": "0"})

    with replaced(runner, "KeptAttempt", named):
        yield


@bug(
    "ending-read-twice",
    "river#1302, G2-W14",
    "A process that adopts an attempt reads it from the start and records everything again",
)
def heard_again() -> Iterator[None]:
    caught_up = OutputFollower._caught_up

    def deaf(self, found, holder, reader):
        return caught_up(self, replace(found, out_offset=0, err_offset=0), holder, reader)

    with (
        replaced(OutputFollower, "_caught_up", deaf),
        queries(
            advance_output_offsets=(
                f"{BOTH}\nreturning",
                "  and (:out_from is null or :err_from or 1)\nreturning",
            )
        ),
    ):
        yield


@bug(
    "stale-look-at-the-lost",
    "Rota, before it was simulated",
    "Maintenance settles a run as lost that was adopted since it was found lost",
    rare=True,
)
def stale_look() -> Iterator[None]:
    with queries(
        insert_kept_attempt=("and w.fenced = 0\non conflict", "\non conflict"),
        lock_runs=("cancelling, worker_id", "cancelling, (select null) as worker_id"),
        lost_runs=("cancelling, worker_id", "cancelling, null as worker_id"),
    ):
        yield

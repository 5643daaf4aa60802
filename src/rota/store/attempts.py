"""Kept attempts: begun, read, adopted and dropped.

A home promises until when its keepers live (`homes`). As long as that holds, a run that has a row
in `kept` is not lost when its worker is: the next worker of the same home adopts it. Offsets move
in the transaction that records what was read up to them, so nothing is recorded twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from rota.model.attempts import (
    AgentSessionRef,
    KeptAttempt,
    NewEvent,
    OutputChunk,
    OutputStream,
    Relaunch,
)
from rota.model.ids import Epoch, RunId
from rota.model.runs import Lease
from rota.model.settlement import NewDelivery
from rota.model.views import ClaimResult
from rota.store.attempt_requests import send, send_during_run
from rota.store.budgets import add_used
from rota.store.claims import load_answers
from rota.store.sessions import forget_session, keep_session
from rota.store.tasks import get_tasks
from rota.store.transactions import EVENTS, Dialect, QueryRows, Row, Transaction


class Keeping(Dialect):
    """The operations of kept attempts, over a dialect's transactions."""

    async def renew_home(self, home: str, host: str, until: int) -> None:
        """Promise that the keepers of a home end by themselves at an instant, and not before."""
        await self.write(renew_home, home, host, until)

    async def fence_home(self, home: str, worker: str) -> int:
        """Fence who else holds attempts of a home; only for whoever holds the home's lock."""
        return await self.write(fence_home, home, worker)

    async def begin_kept(
        self, kept: KeptAttempt, worker: str, aloud: NewDelivery | None = None
    ) -> bool:
        """Note that a keeper is about to start; false if the run is no longer the worker's.

        What people are told of that is sent once.
        """
        return await self.write(begin_kept, kept, worker, aloud, self.now())

    async def pause_kept(self, pause: Relaunch, worker: str) -> bool:
        """Note that a try was in vain, once; false if the run is another's."""
        return await self.write(pause_kept, pause, worker, self.now())

    async def hear(
        self,
        run_id: RunId,
        epoch: int,
        worker: str,
        heard: Sequence[OutputChunk],
        session: AgentSessionRef | None = None,
    ) -> bool:
        """Record what was read, once; false if it was read already or the run is another's.

        With a session, a later run may go on in it. What is for people is sent on the way. What a
        program has only said can be read again from its spool.
        """
        told = (run_id, epoch, worker, heard, session, self.now())
        if session is not None or any(part.used or part.for_people for part in heard):
            return await self.write(hear, *told)
        return await self.write_lightly(hear, *told)

    async def kept_of(self, home: str) -> list[KeptAttempt]:
        """Return the kept attempts of a home, oldest first."""
        return await self.read(kept_of, home)

    async def count_output(self, run_id: int, since: int) -> int:
        """Return how many events hold what the programs of a run wrote since an instant."""
        return await self.read(count_output, run_id, since)

    async def adopt(self, run_id: RunId, epoch: int, worker: str) -> ClaimResult:
        """Take over a run whose holder is gone, amid its attempt; empty if it is not."""
        return await self.write(adopt, run_id, epoch, worker)

    async def begin_checks(self, run_id: RunId, epoch: int) -> int:
        """Count a look at the checks of an attempt; return the number of looks, 0 if it is over."""
        return await self.write(begin_checks, run_id, epoch)

    async def drop_kept(self, run_id: RunId, epoch: int) -> None:
        """Forget a kept attempt; if its run still goes on, it is lost."""
        await self.write(drop_kept, run_id, epoch)


async def renew_home(session: Transaction, home: str, host: str, until: int) -> None:
    """Move a home's promise on; it never moves back."""
    await session.run("renew_home", home=home, host=host, until=until)


async def fence_home(session: Transaction, home: str, worker: str) -> int:
    """Fence the earlier workers of a home, which hold attempts that are kept in it."""
    return len(await session.rows("fence_home", home=home, worker=worker))


async def begin_kept(
    session: Transaction, kept: KeptAttempt, worker: str, aloud: NewDelivery | None, now: int
) -> bool:
    """Write a kept attempt down, in the place of an earlier one of its run."""
    rows = await session.rows(
        "begin_kept",
        run_id=kept.run_id,
        epoch=kept.epoch,
        worker=worker,
        home=kept.home,
        nonce=kept.nonce,
        boot=kept.boot,
        executor=kept.executor,
        tries=kept.tries,
        began=kept.began,
        session=_written(kept.session),
        gate=kept.gate,
        agent=kept.agent,
        said=kept.said,
        writes=int(kept.writes),
    )
    if rows and aloud is not None:
        await send(session, [(kept.run_id, aloud)], now, early=True)
    return bool(rows)


async def pause_kept(session: Transaction, pause: Relaunch, worker: str, now: int) -> bool:
    """Note that a try was in vain, and that another keeper begins the next one."""
    kept, why, lost = pause
    own = {"run_id": kept.run_id, "epoch": kept.epoch, "nonce": kept.nonce, "worker": worker}
    rows = await session.rows(
        "pause_kept", **own, tries=kept.tries, until=kept.until, session=_written(kept.session)
    )
    if not rows:
        return bool(await session.rows("is_paused", **own))
    if lost is not None:
        await forget_session(session, kept.run_id, lost, now)
    await _record(session, kept.run_id, rows[0], [why], now)
    return True


def _written(session: AgentSessionRef | None) -> str | None:
    return None if session is None else json.dumps(session._asdict())


def _read(text: str | None) -> AgentSessionRef | None:
    return None if text is None else AgentSessionRef(**json.loads(text))


async def hear(
    session: Transaction,
    run_id: int,
    epoch: int,
    worker: str,
    heard: Sequence[OutputChunk],
    kept: AgentSessionRef | None,
    now: int,
) -> bool:
    """Move offsets on and record what was read up to them, all or nothing."""
    ends: dict[str, tuple[int, int]] = {}
    for part in heard:
        start, _ = ends.get(part.stream.value, (part.start, 0))
        ends[part.stream.value] = (start, part.end)
    out, err = (ends.get(stream.value, (None, None)) for stream in OutputStream)
    rows = await session.rows(
        "move_kept",
        run_id=run_id,
        epoch=epoch,
        worker=worker,
        out_from=out[0],
        out_to=out[1],
        err_from=err[0],
        err_to=err[1],
    )
    if not rows:
        return False
    if kept is not None:
        await keep_session(session, run_id, epoch, rows[0][0], kept, now)
    await add_used(session, run_id, epoch, heard)
    for_people = [one for part in heard for one in part.for_people]
    if for_people:
        await send_during_run(session, run_id, for_people, now)
    await _record(session, run_id, rows[0], [one for part in heard for one in part.happened], now)
    return True


async def _record(
    session: Transaction, run_id: int, owner: Row, happened: Sequence[NewEvent], now: int
) -> None:
    space_id, task_id = owner
    events = QueryRows(
        {
            "name": event.name.value,
            "space_id": space_id,
            "task_id": task_id,
            "run_id": run_id,
            "data": json.dumps(event.data),
        }
        for event in happened
    )
    if events:
        await session.run("insert_events", rows=events, now=now)
        session.wake(EVENTS)


async def count_output(session: Transaction, run_id: int, since: int) -> int:
    """Return how many events hold what the programs of a run wrote since an instant."""
    return int((await session.rows("count_output", run_id=run_id, since=since))[0][0])


async def kept_of(session: Transaction, home: str) -> list[KeptAttempt]:
    """Return the kept attempts of a home."""
    return [
        KeptAttempt(
            run_id=RunId(run_id),
            epoch=Epoch(epoch),
            home=home,
            nonce=nonce,
            boot=boot,
            executor=executor,
            out_at=out_at,
            err_at=err_at,
            tries=tries,
            until=until,
            began=began,
            session=_read(told),
            agent=agent,
            said=said,
            current=bool(current),
            gate=gate,
            writes=bool(writes),
        )
        for (
            run_id, epoch, nonce, boot, executor, out_at, err_at, tries, until, began, told, agent,
            said, current, gate, writes
        ) in await session.rows("kept_of", home=home)
    ]  # fmt: skip


async def adopt(session: Transaction, run_id: int, epoch: int, worker: str) -> ClaimResult:
    """Give a run that is going on a new holder, if nobody trusted holds it; its epoch stays."""
    rows = await session.rows("adopt_run", run_id=run_id, epoch=epoch, worker=worker)
    if not rows:
        return ClaimResult(leases=[], tasks={}, answers={})
    lease = Lease(*rows[0])
    tasks = await get_tasks(session, [lease.task_id])
    return ClaimResult(
        leases=[lease],
        tasks={task.id: task for task in tasks},
        answers=await load_answers(session, [run_id] if lease.asked else []),
    )


async def begin_checks(session: Transaction, run_id: int, epoch: int) -> int:
    """Count a look at the checks of an attempt that goes on."""
    rows = await session.rows("begin_checks", run_id=run_id, epoch=epoch)
    return int(rows[0][0]) if rows else 0


async def drop_kept(session: Transaction, run_id: int, epoch: int) -> None:
    """Forget a kept attempt."""
    await session.run("drop_kept", run_id=run_id, epoch=epoch)

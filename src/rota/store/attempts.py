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
from rota.store.transactions import EVENTS, QueryRows, Row, Transaction


async def renew_home_lease(tx: Transaction, home: str, host: str, until: int) -> None:
    """Move a home's promise on; it never moves back."""
    await tx.run("renew_home", home=home, host=host, until=until)


async def fence_home(tx: Transaction, home: str, worker: str) -> int:
    """Fence the earlier workers of a home, which hold attempts that are kept in it."""
    return len(await tx.rows("fence_home", home=home, worker=worker))


async def record_launch(
    tx: Transaction, kept: KeptAttempt, worker: str, aloud: NewDelivery | None = None
) -> bool:
    """Write a kept attempt down, in the place of an earlier one of its run."""
    rows = await tx.rows(
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
        await send(tx, [(kept.run_id, aloud)], tx.now(), early=True)
    return bool(rows)


async def schedule_relaunch(tx: Transaction, pause: Relaunch, worker: str) -> bool:
    """Note that a try was in vain, and that another keeper begins the next one."""
    now = tx.now()
    kept, why, lost = pause
    own = {"run_id": kept.run_id, "epoch": kept.epoch, "nonce": kept.nonce, "worker": worker}
    rows = await tx.rows(
        "pause_kept", **own, tries=kept.tries, until=kept.until, session=_written(kept.session)
    )
    if not rows:
        return bool(await tx.rows("is_paused", **own))
    if lost is not None:
        await forget_session(tx, kept.run_id, lost, now)
    await _record(tx, kept.run_id, rows[0], [why], now)
    return True


def _written(session: AgentSessionRef | None) -> str | None:
    return None if session is None else json.dumps(session._asdict())


def _read(text: str | None) -> AgentSessionRef | None:
    return None if text is None else AgentSessionRef(**json.loads(text))


async def record_output(
    tx: Transaction,
    run_id: int,
    epoch: int,
    worker: str,
    heard: Sequence[OutputChunk],
    session: AgentSessionRef | None = None,
) -> bool:
    """Move offsets on and record what was read up to them, all or nothing."""
    now = tx.now()
    ends: dict[str, tuple[int, int]] = {}
    for part in heard:
        start, _ = ends.get(part.stream.value, (part.start, 0))
        ends[part.stream.value] = (start, part.end)
    out, err = (ends.get(stream.value, (None, None)) for stream in OutputStream)
    rows = await tx.rows(
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
    if session is not None:
        await keep_session(tx, run_id, epoch, rows[0][0], session, now)
    await add_used(tx, run_id, epoch, heard)
    for_people = [one for part in heard for one in part.for_people]
    if for_people:
        await send_during_run(tx, run_id, for_people, now)
    await _record(tx, run_id, rows[0], [one for part in heard for one in part.happened], now)
    return True


async def _record(
    tx: Transaction, run_id: int, owner: Row, happened: Sequence[NewEvent], now: int
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
        await tx.run("insert_events", rows=events, now=now)
        tx.wake(EVENTS)


async def count_output_events(tx: Transaction, run_id: int, since: int) -> int:
    """Return how many events hold what the programs of a run wrote since an instant."""
    return int((await tx.rows("count_output", run_id=run_id, since=since))[0][0])


async def list_kept_attempts(tx: Transaction, home: str) -> list[KeptAttempt]:
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
        ) in await tx.rows("kept_of", home=home)
    ]  # fmt: skip


async def adopt_attempt(tx: Transaction, run_id: int, epoch: int, worker: str) -> ClaimResult:
    """Give a run that is going on a new holder, if nobody trusted holds it; its epoch stays."""
    rows = await tx.rows("adopt_run", run_id=run_id, epoch=epoch, worker=worker)
    if not rows:
        return ClaimResult(leases=[], tasks={}, answers={})
    lease = Lease(*rows[0])
    tasks = await get_tasks(tx, [lease.task_id])
    return ClaimResult(
        leases=[lease],
        tasks={task.id: task for task in tasks},
        answers=await load_answers(tx, [run_id] if lease.asked else []),
    )


async def begin_checks(tx: Transaction, run_id: int, epoch: int) -> int:
    """Count a look at the checks of an attempt that goes on."""
    rows = await tx.rows("begin_checks", run_id=run_id, epoch=epoch)
    return int(rows[0][0]) if rows else 0


async def drop_kept_attempt(tx: Transaction, run_id: int, epoch: int) -> None:
    """Forget a kept attempt."""
    await tx.run("drop_kept", run_id=run_id, epoch=epoch)

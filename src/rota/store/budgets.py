"""Budgets: caps, reservations and usage.

Whoever sets something aside holds the budgets concerned until it has committed, so what it counts
is what there is. An open attempt counts with what is set aside for it or with what it has used,
whichever is more. Usage moves in the transaction that records what was heard; whatever ends an
attempt ends what was set aside for it, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.model.attempts import OutputChunk
from rota.model.budgets import (
    UNITS,
    Amounts,
    BudgetCaps,
    BudgetHolder,
    BudgetRefusal,
    BudgetScope,
    BudgetUsage,
    DailyUsage,
)
from rota.model.runs import RunState
from rota.model.settlement import Settlement
from rota.store.queue import LATER
from rota.store.transactions import QueryRows, Row, Transaction


async def set_budget(
    tx: Transaction, scope: BudgetScope, key: int, caps: BudgetCaps, who: str
) -> None:
    """Replace a budget, and let what it held back try again."""
    now = tx.now()
    if caps:
        told = {unit: getattr(caps, unit) for unit in UNITS}
        await tx.run("put_budget", scope=scope.value, key=key, who=who, now=now, **told)
    else:
        await tx.run("drop_budget", scope=scope.value, key=key)
    space = key if scope is BudgetScope.SPACE else None
    task = None if scope is BudgetScope.SPACE else key
    await tx.run("free_held_back", task_id=task, space_id=space, now=now)
    tx.wake(LATER)


async def budgets_for_task(
    tx: Transaction, task_id: int, space_id: int
) -> dict[BudgetScope, BudgetCaps]:
    """Return the caps that hold for the runs of a task."""
    rows = await tx.rows("read_budgets", task_id=task_id, space_id=space_id)
    return {BudgetScope(row[0]): _caps(row[1:]) for row in rows}


async def reserve_budget(
    tx: Transaction, spender: BudgetHolder, worker: str, least: Amounts, most: Amounts
) -> Amounts | BudgetRefusal | None:
    """Set something aside, if the run is still the worker's and the day has enough left."""
    own = {"run_id": spender.run_id, "epoch": spender.epoch}
    if not await tx.rows("hold_spender", worker=worker, **own):
        return None
    rows = await tx.rows("lock_budgets", task_id=spender.task_id, space_id=spender.space_id)
    granted = dict(most)
    for row in rows:
        scope = BudgetScope(row[0])
        if scope is BudgetScope.RUN:
            continue
        key = spender.space_id if scope is BudgetScope.SPACE else spender.task_id
        sums = await tx.rows("sum_spending", scope=scope.value, key=key, day=spender.day, **own)
        used, aside = _amounts(sums[0][:5]), _amounts(sums[0][5:])
        for unit, cap in _caps(row[1:]).only(spender.units):
            unused = max(cap - getattr(used, unit), 0)
            others = min(getattr(aside, unit), unused)
            left = unused - others
            if left < max(getattr(least, unit), 1):
                return BudgetRefusal(scope, unit, cap, left, others)
            granted[unit] = min(granted[unit], left)
    await tx.run(
        "put_spending",
        space_id=spender.space_id,
        task_id=spender.task_id,
        day=spender.day,
        began=spender.began,
        **own,
        **granted,
    )
    return Amounts(**granted)


async def usage_of_run(tx: Transaction, run_id: int) -> list[DailyUsage]:
    """Return what the attempts of a run have used, oldest first."""
    return [
        DailyUsage(run_id, row[0], _amounts(row[1:6]), bool(row[6]), row[7])
        for row in await tx.rows("spending_of_run", run_id=run_id)
    ]


async def usage_history(tx: Transaction, task_id: int, most: int) -> list[Amounts]:
    """Return what the newest finished runs of a task have used."""
    rows = await tx.rows("spending_history", task_id=task_id, most=most)
    return [_amounts(row) for row in rows]


async def duration_history(tx: Transaction, task_id: int, most: int) -> list[Amounts]:
    """Return how long the newest finished runs of a task have worked."""
    rows = await tx.rows("times_of", task_id=task_id, most=most)
    return [Amounts(seconds=int(row[0])) for row in rows]


async def usage_on_day(tx: Transaction, scope: BudgetScope, key: int, day: str) -> BudgetUsage:
    """Return what a task or a space has used on a day, and what is set aside beside that."""
    own = {"run_id": 0, "epoch": 0}
    rows = await tx.rows("sum_spending", scope=scope.value, key=key, day=day, **own)
    return BudgetUsage(_amounts(rows[0][:5]), _amounts(rows[0][5:]))


async def count_held_by_budget(tx: Transaction, space_id: int | None) -> tuple[int, str | None]:
    """Return how many runs budgets hold back, and why one of them."""
    rows = await tx.rows("count_held_back", space_id=space_id)
    return rows[0][0], rows[0][1]


async def add_used(tx: Transaction, run_id: int, epoch: int, heard: Iterable[OutputChunk]) -> None:
    """Count what an attempt has said that it used, with the words in which it said so."""
    told = [part.used for part in heard if part.used is not None]
    used = sum((one.used for one in told), Amounts())
    if used:
        priced = int(any(one.priced for one in told))
        await tx.run("add_spending", run_id=run_id, epoch=epoch, priced=priced, **dict(used))


async def close(tx: Transaction, settlements: Sequence[Settlement], now: int) -> None:
    """End what was set aside for attempts that have ended, and count their time."""
    rows = QueryRows(
        {
            "run_id": s.run_id,
            "epoch": s.epoch,
            "stopped": None if s.extras.aside is None else s.extras.aside.stopped,
            "away": s.extras.away,
        }
        for s in settlements
        if s.was is RunState.RUNNING
    )
    if rows:
        await tx.run("close_spending", rows=rows, now=now)


def _amounts(row: Row) -> Amounts:
    return Amounts(**{unit: int(amount or 0) for unit, amount in zip(UNITS, row, strict=True)})


def _caps(row: Row) -> BudgetCaps:
    return BudgetCaps(**dict(zip(UNITS, row, strict=True)))

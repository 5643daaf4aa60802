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
from rota.store.transactions import Dialect, QueryRows, Row, Transaction


class Spending(Dialect):
    """The operations of budgets, over a dialect's transactions."""

    async def set_budget(self, scope: BudgetScope, key: int, caps: BudgetCaps, who: str) -> None:
        """Replace the budget of a task or space; without caps it is taken away."""
        await self.write(set_budget, scope, key, caps, who, self.now())

    async def budgets_of(self, task_id: int, space_id: int) -> dict[BudgetScope, BudgetCaps]:
        """Return the caps that hold for the runs of a task."""
        return await self.read(budgets_of, task_id, space_id)

    async def reserve(
        self, spender: BudgetHolder, worker: str, least: Amounts, most: Amounts
    ) -> Amounts | BudgetRefusal | None:
        """Set aside up to `most` for an attempt, in the place of what was; one at a time."""
        return await self.write(reserve, spender, worker, least, most)

    async def spent_by(self, run_id: int) -> list[DailyUsage]:
        """Return what the attempts of a run have used, oldest first."""
        return await self.read(spent_by, run_id)

    async def history_of(self, task_id: int, most: int) -> list[Amounts]:
        """Return what the newest finished runs of a task have used, each with all its attempts."""
        return await self.read(history_of, task_id, most)

    async def times_of(self, task_id: int, most: int) -> list[Amounts]:
        """Return how long the newest finished runs of a task have worked, and nothing else."""
        return await self.read(times_of, task_id, most)

    async def used_on(self, scope: BudgetScope, key: int, day: str) -> BudgetUsage:
        """Return what a task or a space has used on a day, and what is set aside beside that."""
        return await self.read(used_on, scope, key, day)

    async def held_back(self, space_id: int | None) -> tuple[int, str | None]:
        """Return how many runs budgets hold back, and why one of them."""
        return await self.read(held_back, space_id)


async def set_budget(
    session: Transaction, scope: BudgetScope, key: int, caps: BudgetCaps, who: str, now: int
) -> None:
    """Replace a budget, and let what it held back try again."""
    if caps:
        told = {unit: getattr(caps, unit) for unit in UNITS}
        await session.run("put_budget", scope=scope.value, key=key, who=who, now=now, **told)
    else:
        await session.run("drop_budget", scope=scope.value, key=key)
    space = key if scope is BudgetScope.SPACE else None
    task = None if scope is BudgetScope.SPACE else key
    await session.run("free_held_back", task_id=task, space_id=space, now=now)
    session.wake(LATER)


async def budgets_of(
    session: Transaction, task_id: int, space_id: int
) -> dict[BudgetScope, BudgetCaps]:
    """Return the caps that hold for the runs of a task."""
    rows = await session.rows("read_budgets", task_id=task_id, space_id=space_id)
    return {BudgetScope(row[0]): _caps(row[1:]) for row in rows}


async def reserve(
    session: Transaction, spender: BudgetHolder, worker: str, least: Amounts, most: Amounts
) -> Amounts | BudgetRefusal | None:
    """Set something aside, if the run is still the worker's and the day has enough left."""
    own = {"run_id": spender.run_id, "epoch": spender.epoch}
    if not await session.rows("hold_spender", worker=worker, **own):
        return None
    rows = await session.rows("lock_budgets", task_id=spender.task_id, space_id=spender.space_id)
    granted = dict(most)
    for row in rows:
        scope = BudgetScope(row[0])
        if scope is BudgetScope.RUN:
            continue
        key = spender.space_id if scope is BudgetScope.SPACE else spender.task_id
        sums = await session.rows(
            "sum_spending", scope=scope.value, key=key, day=spender.day, **own
        )
        used, aside = _amounts(sums[0][:5]), _amounts(sums[0][5:])
        for unit, cap in _caps(row[1:]).only(spender.units):
            unused = max(cap - getattr(used, unit), 0)
            others = min(getattr(aside, unit), unused)
            left = unused - others
            if left < max(getattr(least, unit), 1):
                return BudgetRefusal(scope, unit, cap, left, others)
            granted[unit] = min(granted[unit], left)
    await session.run(
        "put_spending",
        space_id=spender.space_id,
        task_id=spender.task_id,
        day=spender.day,
        began=spender.began,
        **own,
        **granted,
    )
    return Amounts(**granted)


async def spent_by(session: Transaction, run_id: int) -> list[DailyUsage]:
    """Return what the attempts of a run have used, oldest first."""
    return [
        DailyUsage(run_id, row[0], _amounts(row[1:6]), bool(row[6]), row[7])
        for row in await session.rows("spending_of_run", run_id=run_id)
    ]


async def history_of(session: Transaction, task_id: int, most: int) -> list[Amounts]:
    """Return what the newest finished runs of a task have used."""
    rows = await session.rows("spending_history", task_id=task_id, most=most)
    return [_amounts(row) for row in rows]


async def times_of(session: Transaction, task_id: int, most: int) -> list[Amounts]:
    """Return how long the newest finished runs of a task have worked."""
    rows = await session.rows("times_of", task_id=task_id, most=most)
    return [Amounts(seconds=int(row[0])) for row in rows]


async def used_on(session: Transaction, scope: BudgetScope, key: int, day: str) -> BudgetUsage:
    """Return what a task or a space has used on a day, and what is set aside beside that."""
    own = {"run_id": 0, "epoch": 0}
    rows = await session.rows("sum_spending", scope=scope.value, key=key, day=day, **own)
    return BudgetUsage(_amounts(rows[0][:5]), _amounts(rows[0][5:]))


async def held_back(session: Transaction, space_id: int | None) -> tuple[int, str | None]:
    """Return how many runs budgets hold back, and why one of them."""
    rows = await session.rows("count_held_back", space_id=space_id)
    return rows[0][0], rows[0][1]


async def add_used(
    session: Transaction, run_id: int, epoch: int, heard: Iterable[OutputChunk]
) -> None:
    """Count what an attempt has said that it used, with the words in which it said so."""
    told = [part.used for part in heard if part.used is not None]
    used = sum((one.used for one in told), Amounts())
    if used:
        priced = int(any(one.priced for one in told))
        await session.run("add_spending", run_id=run_id, epoch=epoch, priced=priced, **dict(used))


async def close(session: Transaction, settlements: Sequence[Settlement], now: int) -> None:
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
        await session.run("close_spending", rows=rows, now=now)


def _amounts(row: Row) -> Amounts:
    return Amounts(**{unit: int(amount or 0) for unit, amount in zip(UNITS, row, strict=True)})


def _caps(row: Row) -> BudgetCaps:
    return BudgetCaps(**dict(zip(UNITS, row, strict=True)))

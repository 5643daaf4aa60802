"""Shows every row to a verifier, page by page, in one read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import islice

from rota.model.verification import (
    AttemptRecord,
    BlockedLaneRecord,
    ClaimHintRecord,
    DeliveryRecord,
    EventRecord,
    LimitRecord,
    NotificationRecord,
    QuestionRecord,
    ReadyRecord,
    RunHistory,
    RunningRecord,
    RunRecord,
    ScheduleRecord,
    SlotFate,
    TaskRecord,
    VerificationOverview,
)
from rota.ports.store import Looker
from rota.store.transactions import QueryRows, Row, Transaction, one

PAGE = 2_000
MOST_OFFENDERS = 1_000
"""How many rows that break one rule are shown; a healthy database has none."""


async def examine(session: Transaction, make: Callable[[], Looker], now: int) -> Looker:
    """Show everything to a new examiner and return it; a read may begin anew, and so does it."""
    examiner = make()

    async def tasks(rows: list[Row]) -> None:
        examiner.tasks([TaskRecord(*row) for row in rows])

    async def runs(rows: list[Row]) -> None:
        page = [RunRecord(*row) for row in rows]
        span = {"first": page[0].id, "last": page[-1].id}
        unfollowed = await session.rows("unfollowed_between", **span)
        examiner.runs(page, await _histories(session, span), [(r[0], r[1]) for r in unfollowed])
        missing = await session.rows("unnoticed_between", **span)
        below = await session.rows("noticed_below_between", **span)
        examiner.notices(*([NotificationRecord(*row) for row in rows] for rows in (missing, below)))

    async def deliveries(rows: list[Row]) -> None:
        examiner.deliveries([DeliveryRecord(*row) for row in rows])

    async def schedules(rows: list[Row]) -> None:
        slots = iter(examiner.schedules([ScheduleRecord(*row) for row in rows]))
        while chunk := QueryRows(slot._asdict() for slot in islice(slots, PAGE)):
            fates = await session.rows("slot_fates", rows=chunk)
            examiner.slots([SlotFate(*row) for row in fates])

    await _show(session, "examine_tasks", tasks)
    examiner.overview(await _overview(session, now))
    await _show(session, "examine_runs", runs)
    await _show(session, "examine_deliveries", deliveries)
    await _show(session, "examine_schedules", schedules)
    return examiner


async def _show(
    session: Transaction, query: str, show: Callable[[list[Row]], Awaitable[None]]
) -> None:
    after = 0
    while rows := await session.rows(query, after=after, most=PAGE):
        await show(rows)
        after = rows[-1][0]


async def _histories(session: Transaction, span: dict[str, int]) -> dict[int, RunHistory]:
    found: dict[int, tuple[list[AttemptRecord], list[EventRecord], list[QuestionRecord]]] = {}
    for row in await session.rows("attempts_between", **span):
        found.setdefault(row[0], ([], [], []))[0].append(AttemptRecord(*row))
    for row in await session.rows("moves_between", **span):
        found.setdefault(row[0], ([], [], []))[1].append(EventRecord(*row))
    for row in await session.rows("questions_between", **span):
        found.setdefault(row[0], ([], [], []))[2].append(QuestionRecord(*row))
    return {run_id: RunHistory(*parts) for run_id, parts in found.items()}


async def _overview(session: Transaction, now: int) -> VerificationOverview:
    most = MOST_OFFENDERS
    pruned = await one(session, "pruned_before")
    return VerificationOverview(
        now=now,
        pruned_before=0 if pruned is None else int(pruned[0]),
        limits=[LimitRecord(*row) for row in await session.rows("read_limits")],
        running=[RunningRecord(*row) for row in await session.rows("running_by_limit")],
        ready=[ReadyRecord(*row) for row in await session.rows("ready_behind")],
        held=[BlockedLaneRecord(*row) for row in await session.rows("held_behind")],
        pings=[ClaimHintRecord(*row) for row in await session.rows("waiting_pings")],
        slots_twice=[(r[0], r[1], r[2]) for r in await session.rows("slots_twice", most=most)],
        keys_twice=[(r[0], r[1], r[2]) for r in await session.rows("keys_twice", most=most)],
        messages_twice=[(r[0], r[1]) for r in await session.rows("messages_twice", most=most)],
        lanes_twice=[
            (r[0], r[1], r[2], r[3]) for r in await session.rows("lanes_twice", most=most)
        ],
        orphans=[(r[0], r[1]) for r in await session.rows("orphans", most=most)],
        spending=(await session.rows("count_spending"))[0][0],
        spending_wrong=[(r[0], r[1]) for r in await session.rows("spending_wrong", most=most)],
    )

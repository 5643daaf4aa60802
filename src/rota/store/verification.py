"""Shows every row to a verifier, page by page, in one read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeVar

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
    SlotRecord,
    TaskRecord,
    VerificationOverview,
)
from rota.store.transactions import QueryRows, Row, Transaction, one


class RowVisitor(Protocol):
    """Is shown one consistent view, page by page, in the order of these methods; never waits.

    It may be called on any thread, one call at a time.
    """

    def tasks(self, page: Sequence[TaskRecord]) -> None:
        """See tasks."""

    def overview(self, seen: VerificationOverview) -> None:
        """See what is looked at as a whole."""

    def runs(
        self,
        page: Sequence[RunRecord],
        histories: Mapping[int, RunHistory],
        unfollowed: Sequence[tuple[int, int]],
    ) -> None:
        """See runs with what is on record about them, and which follower has no run after which."""

    def notices(
        self, missing: Sequence[NotificationRecord], needless: Sequence[NotificationRecord]
    ) -> None:
        """See what of the runs of a page was not told, and what was told to whom it was too low."""

    def deliveries(self, page: Sequence[DeliveryRecord]) -> None:
        """See deliveries."""

    def schedules(self, page: Sequence[ScheduleRecord]) -> Iterable[SlotRecord]:
        """See schedules; return the slots whose fate is to be shown next."""

    def slots(self, fates: Sequence[SlotFate]) -> None:
        """See what became of slots; those that have a run and no ledger row are left out."""


Visitor = TypeVar("Visitor", bound=RowVisitor)

PAGE = 2_000
MOST_OFFENDERS = 1_000
"""How many rows that break one rule are shown; a healthy database has none."""


async def examine(tx: Transaction, make: Callable[[], Visitor]) -> Visitor:
    """Show everything to a new examiner and return it; a read may begin anew, and so does it."""
    now = tx.now()
    examiner = make()

    async def tasks(rows: list[Row]) -> None:
        examiner.tasks([TaskRecord(*row) for row in rows])

    async def runs(rows: list[Row]) -> None:
        page = [RunRecord(*row) for row in rows]
        span = {"first": page[0].id, "last": page[-1].id}
        unfollowed = await tx.rows("unfollowed_between", **span)
        examiner.runs(page, await _histories(tx, span), [(r[0], r[1]) for r in unfollowed])
        missing = await tx.rows("unnoticed_between", **span)
        below = await tx.rows("noticed_below_between", **span)
        examiner.notices(*([NotificationRecord(*row) for row in rows] for rows in (missing, below)))

    async def deliveries(rows: list[Row]) -> None:
        examiner.deliveries([DeliveryRecord(*row) for row in rows])

    async def schedules(rows: list[Row]) -> None:
        slots = iter(examiner.schedules([ScheduleRecord(*row) for row in rows]))
        while chunk := QueryRows(slot._asdict() for slot in islice(slots, PAGE)):
            fates = await tx.rows("slot_fates", rows=chunk)
            examiner.slots([SlotFate(*row) for row in fates])

    await _show(tx, "examine_tasks", tasks)
    examiner.overview(await _overview(tx, now))
    await _show(tx, "examine_runs", runs)
    await _show(tx, "examine_deliveries", deliveries)
    await _show(tx, "examine_schedules", schedules)
    return examiner


async def _show(tx: Transaction, query: str, show: Callable[[list[Row]], Awaitable[None]]) -> None:
    after = 0
    while rows := await tx.rows(query, after=after, most=PAGE):
        await show(rows)
        after = rows[-1][0]


async def _histories(tx: Transaction, span: dict[str, int]) -> dict[int, RunHistory]:
    found: dict[int, tuple[list[AttemptRecord], list[EventRecord], list[QuestionRecord]]] = {}
    for row in await tx.rows("attempts_between", **span):
        found.setdefault(row[0], ([], [], []))[0].append(AttemptRecord(*row))
    for row in await tx.rows("moves_between", **span):
        found.setdefault(row[0], ([], [], []))[1].append(EventRecord(*row))
    for row in await tx.rows("questions_between", **span):
        found.setdefault(row[0], ([], [], []))[2].append(QuestionRecord(*row))
    return {run_id: RunHistory(*parts) for run_id, parts in found.items()}


async def _overview(tx: Transaction, now: int) -> VerificationOverview:
    most = MOST_OFFENDERS
    pruned = await one(tx, "pruned_before")
    return VerificationOverview(
        now=now,
        pruned_before=0 if pruned is None else int(pruned[0]),
        limits=[LimitRecord(*row) for row in await tx.rows("read_limits")],
        running=[RunningRecord(*row) for row in await tx.rows("running_by_limit")],
        ready=[ReadyRecord(*row) for row in await tx.rows("ready_behind")],
        held=[BlockedLaneRecord(*row) for row in await tx.rows("held_behind")],
        pings=[ClaimHintRecord(*row) for row in await tx.rows("waiting_pings")],
        slots_twice=[(r[0], r[1], r[2]) for r in await tx.rows("slots_twice", most=most)],
        keys_twice=[(r[0], r[1], r[2]) for r in await tx.rows("keys_twice", most=most)],
        messages_twice=[(r[0], r[1]) for r in await tx.rows("messages_twice", most=most)],
        lanes_twice=[(r[0], r[1], r[2], r[3]) for r in await tx.rows("lanes_twice", most=most)],
        orphans=[(r[0], r[1]) for r in await tx.rows("orphans", most=most)],
        spending=(await tx.rows("count_spending"))[0][0],
        spending_wrong=[(r[0], r[1]) for r in await tx.rows("spending_wrong", most=most)],
    )

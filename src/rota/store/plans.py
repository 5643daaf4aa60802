"""Due schedules, plans, delayed runs, and the pause of everything."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rota.faultpoints import reach
from rota.model.events import EventName
from rota.model.ids import ScheduleId, SpaceId, TaskId
from rota.model.schedules import (
    ActiveRun,
    Decide,
    DueSchedule,
    LedgerEntry,
    Pause,
    Pauses,
    PlanStep,
    SchedulePlan,
    ScheduleState,
    read_pauses,
    write_pauses,
)
from rota.model.tasks import task_lane
from rota.store.queue import RUNS, claim_hint, queue_runs
from rota.store.settlement import request_cancel, settle
from rota.store.tasks import policy_of
from rota.store.transactions import EVENTS, QueryRows, Row, Transaction

LONGEST_DECIDING = 100_000
"""Microseconds after which a step decides no more: others want to write to the database, too."""
STOPPED = "cancelled because a newer slot of its task has come"


async def list_due_schedules(
    tx: Transaction, most: int, only: int | None = None
) -> list[DueSchedule]:
    """Return the schedules whose next slot has come, earliest first, or only one if it has."""
    now = tx.now()
    rows = await tx.rows("due_schedules", now=now, most=most, only=only)
    lanes = QueryRows(
        {"space_id": row[8], "lane": lane, "task_id": row[7]}
        for row in rows
        for lane in dict.fromkeys((task_lane(row[7]), policy_of(row[10]).lane, _thread(row)))
        if lane is not None
    )
    active: dict[int, list[ActiveRun]] = {}
    for run_id, epoch, state, task_id, planned in (
        await tx.rows("active_in_lanes", rows=lanes) if lanes else []
    ):
        run = ActiveRun(run_id=run_id, epoch=epoch, state=state, planned=bool(planned))
        active.setdefault(task_id, []).append(run)
    return [_due(row, active.get(row[7], ())) for row in rows]


def _thread(row: Row) -> str | None:
    """Return the thread whose conversation the runs of a due schedule take part in."""
    thread, in_conversation = row[-2:]
    return thread if in_conversation else None


def _due(row: Row, active: Sequence[ActiveRun]) -> DueSchedule:
    (
        schedule_id,
        version,
        generation,
        rule,
        stagger,
        cursor,
        next_at,
        task_id,
        space_id,
        route,
        policy,
        enabled,
        enabled_since,
        paused_until,
        ended_pauses,
        going_on,
        thread,
        in_conversation,
    ) = row
    return DueSchedule(
        id=ScheduleId(schedule_id),
        version=version,
        generation=generation,
        rule=rule,
        stagger=stagger,
        cursor=cursor,
        next_at=next_at,
        task_id=TaskId(task_id),
        space_id=SpaceId(space_id),
        route=route,
        policy=policy_of(policy),
        enabled=bool(enabled),
        enabled_since=enabled_since,
        paused_until=paused_until,
        pauses=read_pauses(ended_pauses, going_on),
        active=tuple(active),
        thread=thread,
        in_conversation=bool(in_conversation),
    )


async def plan_due(tx: Transaction, decide: Decide, most: int, *, waits: bool = False) -> PlanStep:
    """Apply what is decided about the schedules whose next slot has come; tell what is next.

    Nothing is decided while delayed runs are due, if it waits for them.
    """
    now = tx.now()
    slot_at, later_at = await upcoming(tx)
    later_due = later_at is not None and later_at <= now
    if slot_at is None or slot_at > now or (waits and later_due):
        return PlanStep(schedules=0, slot_at=slot_at, later_at=later_at)
    found = await list_due_schedules(tx, most)
    plans: list[SchedulePlan] = []
    until = now + LONGEST_DECIDING
    for schedule in found:
        plans.append(decide(schedule, now))
        if tx.now() > until:
            break
    await _apply(tx, plans, now)
    slot_at, later_at = await upcoming(tx)
    return PlanStep(
        schedules=len(plans), slot_at=slot_at, later_at=later_at, cut=len(plans) < len(found)
    )


async def apply_plans(tx: Transaction, plans: Sequence[SchedulePlan]) -> list[bool]:
    """Apply plans whose schedule still stands where it stood; return which were."""
    return await _apply(tx, plans, tx.now())


async def _apply(tx: Transaction, plans: Sequence[SchedulePlan], now: int) -> list[bool]:
    rows = await tx.rows("lock_schedules", ids=sorted({p.schedule_id for p in plans}))
    ended = read_pauses(*rows[0][3:5]) if rows else ()
    standing = {row[0]: (row[1], row[2], ended) for row in rows}
    verdicts = [standing.get(p.schedule_id) == (p.was, p.version, p.pauses) for p in plans]
    accepted = [plan for plan, fits in zip(plans, verdicts, strict=True) if fits]
    if not accepted:
        return verdicts
    await tx.run(
        "advance_schedules",
        rows=QueryRows(
            {
                "id": p.schedule_id,
                "cursor": p.cursor,
                "next_at": p.next_at,
                "state": p.state.value,
                "note": p.note,
            }
            for p in accepted
        ),
    )
    reach("plan.advanced")
    await _write_ledger(tx, accepted, now)
    cancels = [cancel for p in accepted for cancel in p.cancels]
    if cancels:
        await settle(tx, cancels)
    stops = [run_id for p in accepted for run_id in p.cancel_running]
    if stops:
        await request_cancel(tx, stops, STOPPED)
    batches = [batch for p in accepted for batch in p.runs]
    if batches:
        await queue_runs(tx, batches, now)
    await _announce_plans(tx, accepted, now)
    return verdicts


async def _write_ledger(tx: Transaction, accepted: list[SchedulePlan], now: int) -> None:
    with_entries = [p for p in accepted if p.ledger]
    if not with_entries:
        return
    ids = [p.schedule_id for p in with_entries]
    last = {r[0]: r for r in await tx.rows("last_ledger", ids=ids)}
    extended, added = QueryRows(), QueryRows()
    for plan in with_entries:
        for index, entry in enumerate(plan.ledger):
            row = last.get(plan.schedule_id) if index == 0 else None
            if row is not None and row[2] == entry.reason and _goes_on(row[3], plan, entry):
                extended.append(
                    {
                        "id": row[1],
                        "last_key": entry.last_key,
                        "last_at": entry.last_at,
                        "count": entry.count,
                    }
                )
                continue
            added.append(
                {
                    "schedule_id": plan.schedule_id,
                    "reason": entry.reason.value,
                    "first_key": entry.first_key,
                    "last_key": entry.last_key,
                    "first_at": entry.first_at,
                    "last_at": entry.last_at,
                    "count": entry.count,
                }
            )
    if extended:
        await tx.run("extend_ledger", rows=extended, now=now)
    if added:
        await tx.run("insert_ledger", rows=added, now=now)


def _goes_on(last_at: int, plan: SchedulePlan, entry: LedgerEntry) -> bool:
    """Whether no slot lies between the last ledger row and a plan's first entry."""
    slots = (batch.template.slot_at for batch in plan.runs)
    return last_at == plan.was and all(at is None or at > entry.first_at for at in slots)


async def _announce_plans(tx: Transaction, accepted: list[SchedulePlan], now: int) -> None:
    names = {
        ScheduleState.ENDED: EventName.SCHEDULE_ENDED,
        ScheduleState.QUARANTINED: EventName.SCHEDULE_QUARANTINED,
    }
    rows = QueryRows(
        {
            "name": names[p.state].value,
            "schedule_id": p.schedule_id,
            "data": json.dumps({"schedule_id": p.schedule_id, "note": p.note}),
        }
        for p in accepted
        if p.state in names
    )
    if rows:
        await tx.run("record_schedule_events", rows=rows, now=now)
        tx.wake(EVENTS)


async def promote_delayed(tx: Transaction, most: int) -> int:
    """Let delayed runs whose time has come stand in the queue; return how many."""
    now = tx.now()
    rows = await tx.rows("later_due", now=now, most=most)
    if not rows:
        return 0
    await tx.run("promote_runs", ids=[row[0] for row in rows])
    pings = {
        tuple(record.values()): record
        for record in (
            claim_hint(row[1], row[2], row[3], row[4], bool(row[5]), row[6]) for row in rows
        )
    }
    await tx.run("insert_pings", rows=QueryRows(pings.values()))
    tx.wake(RUNS)
    return len(rows)


async def next_due(tx: Transaction) -> int | None:
    """Return the instant the planner must wake at: the next slot or the next delayed run."""
    instants = [value for value in await upcoming(tx) if value is not None]
    return min(instants, default=None)


async def upcoming(tx: Transaction) -> tuple[int | None, int | None]:
    """Return the instants of the next slot and of the next delayed run."""
    ((slot_at, later_at),) = await tx.rows("next_due")
    return slot_at, later_at


GOING_ON = "paused"
"""The fact that says since when everything is paused; there is none while it is not."""
ENDED = "pauses"
"""The fact that holds the pauses of which slots may not have been planned yet."""
SCHEDULES = "schedules"


async def pause_all(tx: Transaction, who: str) -> Pauses:
    """Pause everything; a claim that is under way ends first, and none begins after."""
    now = tx.now()
    await tx.enter_claim()
    standing = await get_pauses(tx)
    if standing and standing[-1].until is None:
        return standing
    await tx.run("note_fact", name=GOING_ON, value=str(now))
    await _announce_pause(tx, EventName.PAUSED, who, now)
    return (*standing, Pause(now, None))


async def resume_all(tx: Transaction, who: str) -> Pauses:
    """End the pause; what nobody has planned yet of it stays known as paused."""
    now = tx.now()
    await tx.enter_claim()
    standing = await get_pauses(tx)
    if not standing or standing[-1].until is not None:
        return standing
    *ended, going_on = standing
    (oldest,) = (await tx.rows("oldest_cursor"))[0]
    kept = [p for p in ended if oldest is not None and (p.until or now) > oldest]
    kept.append(Pause(going_on.since, max(now, going_on.since)))
    await tx.run("note_fact", name=ENDED, value=write_pauses(kept))
    await tx.run("drop_fact", name=GOING_ON)
    await _announce_pause(tx, EventName.RESUMED, who, now)
    tx.wake(RUNS)
    tx.wake(SCHEDULES)
    return tuple(kept)


async def get_pauses(tx: Transaction) -> Pauses:
    """Return the pauses that may still matter."""
    ((ended, going_on),) = await tx.rows("read_pauses")
    return read_pauses(ended, going_on)


async def _announce_pause(tx: Transaction, name: EventName, who: str, now: int) -> None:
    event: dict[str, object] = {"name": name.value, "data": json.dumps({"by": who})}
    await tx.run("insert_events", rows=QueryRows([event]), now=now)
    tx.wake(EVENTS)

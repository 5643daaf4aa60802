"""Settling: the one place where a run leaves a state, whoever decided it.

Everything a settlement carries happens in one transaction: state, attempt, event, question,
outbox, successors, what the attempt deferred, the task's failure count, the lane's next, and the
pings that let claiming see what became possible. A settlement whose state or epoch no longer fits
changes nothing but leaves a `run.late_result` event for people to read. An attempt's settlement
that stands already is accepted again without effect, so that a worker who never got the answer may
repeat it. A run that somebody wanted stopped while its attempt's end was being decided ends here,
and never goes back.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rota.faultpoints import reach
from rota.model.events import EventName
from rota.model.runs import Cause
from rota.model.settlements import PLAIN, PLAIN_SUCCESS, Extras, Settlement
from rota.model.states import FINISHED, Place, RunState
from rota.stores.kit import asides, noticing, spending, unread
from rota.stores.kit.enqueue import RUNS, enqueue, ping_record
from rota.stores.kit.outbox import mail_text
from rota.stores.kit.session import DELIVERIES, EVENTS, Row, Rows, Session
from rota.stores.kit.stopping import reasons, stopped
from rota.stores.kit.talking import settle_deferred

LONGEST_LATE_RESULT = 4_096
NOWHERE: dict[str, object] = dict.fromkeys(("pool", "space_id", "route", "grp", "metered", "lane"))
"""A ping that names a pool and a space but no head: a limit may have room again."""

EVENT_OF_CAUSE = {
    Cause.RETRY: EventName.RETRIED,
    Cause.LOST: EventName.LOST,
    Cause.DRAINED: EventName.DRAINED,
}


async def settle(session: Session, settlements: Sequence[Settlement], now: int) -> list[bool]:
    """Apply settlements; return for each whether it was still the run's to make."""
    rows = {
        row[0]: row
        for row in await session.rows("lock_runs", ids=sorted({s.run_id for s in settlements}))
    }
    cancelled = await reasons(session, [run_id for run_id, row in rows.items() if row[5]])
    verdicts: list[bool] = []
    plain: dict[tuple[RunState, RunState, str], list[int]] = {}
    rich: list[Settlement] = []
    late: list[Settlement] = []
    moved: list[Settlement] = []
    for settlement in settlements:
        run_id, epoch, _, was, state, outcome, _, holder = settlement
        row = rows.get(run_id)
        adopted = row is not None and holder is not None and row[6] != holder
        if row is None or row[1] != epoch or row[2] != was or adopted:
            # The same settlement again, because its first answer was lost: it stands already. Only
            # a worker repeats itself; a second answer to a question is somebody else's.
            stands = (
                row is not None and was is RunState.RUNNING and (row[1], row[2]) == (epoch, state)
            )
            verdicts.append(stands)
            if not stands:
                late.append(settlement)
            continue
        verdicts.append(True)
        rows[run_id] = (run_id, -1, None, *row[3:])  # a second settlement of it comes too late
        if run_id in cancelled:
            settlement = stopped(settlement, cancelled[run_id])  # noqa: PLW2901
        moved.append(settlement)
        if settlement.extras is PLAIN_SUCCESS or settlement.extras is PLAIN:
            plain.setdefault((was, state, outcome), []).append(run_id)
        else:
            rich.append(settlement)
    for (was, state, outcome), ids in plain.items():
        await _finish_plain(session, was, state, outcome, ids, now)
    if rich:
        await _record(session, rich, now)
        await _move(session, rich, rows, now)
        reach("settle.outbox")
        await _follow_up(session, rich, now)
    await _clear(session, moved, rows, now)
    await noticing.withdraw_closed(session, moved, now)
    await _ping(session, moved, rows, now)
    await _count_failures(session, moved, now)
    await _finish_tasks(session, moved, now)
    if late:
        await _record_late(session, [s for s in late if s.run_id in rows], now)
    return verdicts


async def _clear(session: Session, moved: list[Settlement], rows: dict[int, Row], now: int) -> None:
    """Do or drop what waited for the end of runs: deferred operations, and what was set aside."""
    await unread.give_back(session, moved)
    deferring = [s for s in moved if rows[s.run_id][7]]
    if deferring:
        await settle_deferred(session, deferring, now)
    if any(rows[s.run_id][8] for s in moved):
        await spending.close(session, moved, now)


async def _finish_plain(
    session: Session, was: RunState, state: RunState, outcome: str, ids: list[int], now: int
) -> None:
    if was is RunState.RUNNING:
        await session.run("record_attempts", ids=ids, outcome=outcome, now=now)
    data = json.dumps({"state": state.value})
    await session.run("record_events", ids=ids, name=EventName.SETTLED.value, data=data, now=now)
    session.wake(EVENTS)
    await session.run("finish_runs", ids=ids, state=state.value, now=now)


async def _record(session: Session, rich: list[Settlement], now: int) -> None:
    ended: dict[str, list[int]] = defaultdict(list)
    told = Rows()
    events: dict[tuple[str, str], list[int]] = defaultdict(list)
    for s in rich:
        if s.was is RunState.RUNNING:
            if s.extras.error is None and s.extras.ending is None and s.extras.aside is None:
                ended[s.outcome].append(s.run_id)
            else:
                told.append(
                    {
                        "run_id": s.run_id,
                        "outcome": s.outcome,
                        "error": s.extras.error,
                        "ending": s.extras.ending,
                        "checks": None if s.extras.aside is None else s.extras.aside.checks,
                        "away": s.extras.away,
                    }
                )
        events[_event(s)].append(s.run_id)
    for outcome, run_ids in ended.items():
        await session.run("record_attempts", ids=run_ids, outcome=outcome, now=now)
    if told:
        await session.run("record_told_attempts", rows=told, now=now)
    for (name, data), run_ids in events.items():
        await session.run("record_events", ids=run_ids, name=name, data=data, now=now)
    session.wake(EVENTS)


def _event(s: Settlement) -> tuple[str, str]:
    if s.state in FINISHED:
        data: dict[str, object] = {"state": s.state.value}
        if s.extras.error_code:
            data["error"] = s.extras.error_code
        data |= asides.told_of(s)
        return EventName.SETTLED.value, json.dumps(data)
    if s.state is RunState.WAITING:
        return EventName.ASKED.value, "{}"
    if s.was is RunState.WAITING:
        return EventName.ANSWERED.value, "{}"
    cause = s.extras.cause or Cause.RETRY
    data = {"error": s.extras.error_code} if s.extras.error_code else {}
    if cause is not Cause.RETRY and s.extras.error:
        data["reason"] = s.extras.error
    if cause is Cause.DRAINED and s.extras.error_code:
        return EventName.HELD_BACK.value, json.dumps(data)
    return EVENT_OF_CAUSE[cause].value, json.dumps(data)


async def _move(session: Session, rich: list[Settlement], rows: dict[int, Row], now: int) -> None:
    finished, requeued, waiting = Rows(), Rows(), Rows()
    for s in rich:
        if s.state in FINISHED:
            finished.append(
                {
                    "id": s.run_id,
                    "state": s.state.value,
                    "result": s.extras.result,
                    "error_code": s.extras.error_code,
                    "error": s.extras.error,
                    **asides.marks_of(s),
                }
            )
        elif s.state is RunState.WAITING:
            waiting.append(_waiting(s))
        else:
            requeued.append(_requeued(s, rows[s.run_id][3], now))
    if finished:
        await session.run("finish_runs_with", rows=finished, now=now)
    if requeued:
        await session.run("requeue_runs", rows=requeued)
    if waiting:
        await session.run("await_runs", rows=waiting)
        await session.run("insert_questions", rows=waiting, now=now)


def _waiting(s: Settlement) -> dict[str, object]:
    question = s.extras.question
    if question is None:
        message = f"run {s.run_id} cannot wait without a question"
        raise ValueError(message)
    return {
        "id": s.run_id,
        "epoch": s.epoch,
        "kind": question.kind,
        "question": question.question,
        "context": question.context,
        "options": json.dumps(list(question.options)),
        "expires_at": question.expires_at,
        "fallback": question.default,
        "action": question.action,
        "digest": question.digest,
    }


def _requeued(s: Settlement, lane: str | None, now: int) -> dict[str, object]:
    available_at = now if s.extras.available_at is None else s.extras.available_at
    cause = s.extras.cause or Cause.RETRY
    place = Place.READY if lane is None else Place.HELD
    return {
        "id": s.run_id,
        "place": (Place.LATER if available_at > now else place).value,
        "available_at": available_at,
        "cause": cause.value,
        "retries": int(cause is Cause.RETRY),
        "losses": int(cause is Cause.LOST),
        "error_code": s.extras.error_code,
        "error": s.extras.error,
    }


async def _follow_up(session: Session, rich: list[Settlement], now: int) -> None:
    answers = Rows(
        {
            "id": s.extras.answered,
            "answer": s.extras.answer,
            "answered_by": s.extras.answered_by,
        }
        for s in rich
        if s.extras.answered is not None
    )
    if answers:
        await session.run("answer_questions", rows=answers, now=now)
    deliveries = Rows(
        {
            "run_id": s.run_id,
            "space_id": d.space_id,
            "channel": d.channel,
            "target": d.target,
            "body": d.body,
            "dedupe_key": d.dedupe_key,
            "kind": d.kind.value,
            "mail": mail_text(d.mail),
        }
        for s in rich
        for d in s.extras.deliveries
    )
    if deliveries:
        await session.run("insert_deliveries", rows=deliveries, now=now)
        session.wake(DELIVERIES)
    successors = [batch for s in rich for batch in s.extras.successors]
    if successors:
        reach("settle.successors")
        await enqueue(session, successors, now)
    await asides.keep(session, rich, now)
    await noticing.tell(session, rich, now)


async def _ping(session: Session, moved: list[Settlement], rows: dict[int, Row], now: int) -> None:
    """Let claiming look again where a lane, a limit or a queued run may have become free."""
    ready: set[int] = set()
    freed: set[int] = set()
    for s in moved:
        row = rows[s.run_id]
        if row[3] is not None or (row[4] and s.was is RunState.RUNNING):
            freed.add(s.run_id)
        if s.state is RunState.QUEUED:
            if (s.extras.available_at or now) > now:
                session.wake("later")
            else:
                ready.add(s.run_id)
    if not (ready or freed):
        return
    pings: dict[tuple[object, ...], dict[str, object]] = {}
    for run_id, pool, space_id, route, grp, metered, lane in await session.rows(
        "heads_of", ids=sorted(ready | freed)
    ):
        records = []
        if lane is not None or run_id in ready:
            records.append(ping_record(pool, space_id, route, grp, bool(metered), lane))
        if run_id in freed:
            records.append({**NOWHERE, "pool": pool, "space_id": space_id})
        pings.update({tuple(record.values()): record for record in records})
    await session.run("insert_pings", rows=Rows(pings.values()))
    session.wake(RUNS)


async def _count_failures(session: Session, moved: list[Settlement], now: int) -> None:
    resets: set[int] = set()
    adds: Counter[int] = Counter()
    thresholds: dict[int, int] = {}
    failing: dict[int, int] = {}
    for s in moved:
        counts = s.extras.counts
        if counts < 0:
            resets.add(s.task_id)
            adds.pop(s.task_id, None)
        elif counts > 0:
            adds[s.task_id] += 1
            thresholds[s.task_id] = s.extras.disable_after
            failing[s.task_id] = s.run_id
    tallies: dict[int, dict[str, object]] = {
        task_id: {
            "task_id": task_id,
            "reset": int(task_id in resets),
            "add": adds[task_id],
            "disable_after": thresholds.get(task_id, 0),
        }
        for task_id in sorted(resets | adds.keys())
    }
    if not tallies:
        return
    await session.run("count_failures", rows=Rows(tallies.values()))
    watched = [t for t in tallies.values() if t["disable_after"]]
    if watched:
        for row in await session.rows("disable_failing", rows=Rows(watched), now=now):
            why = "its task was disabled after failing too often"
            told = await noticing.tell_of_disabled(session, row, failing[row[0]], now)
            await _after_disabling(session, row[0], "too many failures in a row", why, now, told)


async def _finish_tasks(session: Session, moved: list[Settlement], now: int) -> None:
    """Disable the tasks that were to run until they have succeeded."""
    done = sorted({s.task_id for s in moved if s.extras.finishes})
    for row in await session.rows("disable_done", ids=done, now=now) if done else []:
        why = "its task has succeeded, and was to run until then"
        await _after_disabling(session, row[0], "it has succeeded", why, now)


async def _after_disabling(
    session: Session,
    task_id: int,
    reason: str,
    why: str,
    now: int,
    told: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Say that a task was disabled, and end the slots that wait in its queue."""
    await session.run("touch_schedules", task_ids=[task_id])
    await _cancel_planned(session, task_id, why, now)
    event: dict[str, object] = {
        "name": EventName.TASK_DISABLED.value,
        "task_id": task_id,
        "data": json.dumps({"reason": reason, **told}),
    }
    await session.run("insert_events", rows=Rows([event]), now=now)


async def _cancel_planned(session: Session, task_id: int, why: str, now: int) -> None:
    """End the slots that wait in the queue of a task that has just been disabled."""
    rows = await session.rows("queued_runs_of", task_id=task_id, planned_only=1, most=10_000)
    ends = [
        Settlement(
            row[0],
            row[4],
            row[1],
            RunState.QUEUED,
            RunState.CANCELLED,
            RunState.CANCELLED.value,
            Extras(error_code="cancelled", error=why),
        )
        for row in rows
        if row[3] == RunState.QUEUED and row[4] == 0
    ]
    if ends:
        await settle(session, ends, now)


async def _record_late(session: Session, late: list[Settlement], now: int) -> None:
    session.wake(EVENTS)
    for s in late:
        if s.was is not RunState.RUNNING:
            continue
        data = {
            "epoch": s.epoch,
            "outcome": s.outcome,
            "result": (s.extras.result or "")[:LONGEST_LATE_RESULT],
            "error": (s.extras.error or "")[:LONGEST_LATE_RESULT],
        }
        await session.run(
            "record_events",
            ids=[s.run_id],
            name=EventName.LATE_RESULT.value,
            data=json.dumps(data),
            now=now,
        )

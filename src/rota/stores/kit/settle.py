"""Settling: the one place where a run leaves a state, whoever decided it.

Everything a settlement carries happens in one transaction: state, attempt, event, question,
outbox, successors, the task's failure count, the lane's next, and the pings that let claiming see
what became possible. A settlement whose state or epoch no longer fits changes nothing but leaves a
`run.late_result` event for people to read.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from rota.model.events import EventName
from rota.model.runs import Cause
from rota.model.settlements import Settlement
from rota.model.states import FINISHED, Place, RunState
from rota.stores.kit.enqueue import RUNS, enqueue, ping_record
from rota.stores.kit.session import Row, Rows, Session

DELIVERIES = "deliveries"
LONGEST_LATE_RESULT = 4_096

EVENT_OF_CAUSE = {
    Cause.RETRY: EventName.RETRIED,
    Cause.LOST: EventName.LOST,
    Cause.RESUME: EventName.ANSWERED,
    Cause.DRAINED: EventName.DRAINED,
}


async def settle(session: Session, settlements: Sequence[Settlement], now: int) -> list[bool]:
    """Apply settlements; return for each whether it was still the run's to make."""
    ids = sorted({s.run_id for s in settlements})
    rows = {row[0]: row for row in await session.rows("lock_runs", ids=ids)}
    accepted: list[Settlement] = []
    verdicts: list[bool] = []
    open_ids = set(ids)
    for settlement in settlements:
        row = rows.get(settlement.run_id)
        fits = (
            row is not None
            and settlement.run_id in open_ids
            and row[1] == settlement.epoch
            and row[2] == settlement.was
        )
        verdicts.append(fits)
        if fits:
            open_ids.discard(settlement.run_id)
            accepted.append(settlement)
    if accepted:
        await _record(session, accepted, now)
        await _move(session, accepted, rows, now)
        await _follow_up(session, accepted, rows, now)
    late = [s for s, fits in zip(settlements, verdicts, strict=True) if not fits]
    if late:
        await _record_late(session, [s for s in late if s.run_id in rows], now)
    return verdicts


async def _record(session: Session, accepted: list[Settlement], now: int) -> None:
    ended: dict[str, list[int]] = defaultdict(list)
    with_error = Rows()
    events: dict[tuple[str, str], list[int]] = defaultdict(list)
    for s in accepted:
        if s.was is RunState.RUNNING:
            if s.extras.error is None:
                ended[s.outcome].append(s.run_id)
            else:
                with_error.append(
                    {"run_id": s.run_id, "outcome": s.outcome, "error": s.extras.error}
                )
        events[_event(s)].append(s.run_id)
    for outcome, run_ids in ended.items():
        await session.run("record_attempts", ids=run_ids, outcome=outcome, now=now)
    if with_error:
        await session.run("record_failed_attempts", rows=with_error, now=now)
    for (name, data), run_ids in events.items():
        await session.run("record_events", ids=run_ids, name=name, data=data, now=now)


def _event(s: Settlement) -> tuple[str, str]:
    if s.state in FINISHED:
        data: dict[str, object] = {"state": s.state.value}
        if s.extras.error_code:
            data["error"] = s.extras.error_code
        return EventName.SETTLED.value, json.dumps(data)
    if s.state is RunState.WAITING:
        return EventName.ASKED.value, "{}"
    cause = s.extras.cause or Cause.RETRY
    data = {"error": s.extras.error_code} if s.extras.error_code else {}
    return EVENT_OF_CAUSE[cause].value, json.dumps(data)


async def _move(
    session: Session, accepted: list[Settlement], rows: dict[int, Row], now: int
) -> None:
    plain: dict[str, list[int]] = defaultdict(list)
    finished, requeued, waiting = Rows(), Rows(), Rows()
    for s in accepted:
        extras = s.extras
        if s.state in FINISHED:
            if extras.result is None and extras.error is None:
                plain[s.state.value].append(s.run_id)
            else:
                finished.append(
                    {
                        "id": s.run_id,
                        "state": s.state.value,
                        "result": extras.result,
                        "error_code": extras.error_code,
                        "error": extras.error,
                    }
                )
        elif s.state is RunState.WAITING:
            waiting.append(_waiting(s))
        else:
            requeued.append(_requeued(s, rows[s.run_id], now))
    for state, run_ids in plain.items():
        await session.run("finish_runs", ids=run_ids, state=state, now=now)
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
    }


def _requeued(s: Settlement, row: Row, now: int) -> dict[str, object]:
    available_at = now if s.extras.available_at is None else s.extras.available_at
    cause = s.extras.cause or Cause.RETRY
    place = Place.READY if row[8] is None else Place.HELD
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


async def _follow_up(
    session: Session, accepted: list[Settlement], rows: dict[int, Row], now: int
) -> None:
    await _ping(session, accepted, rows, now)
    await _count_failures(session, accepted, now)
    answers = Rows(
        {
            "id": s.extras.answered,
            "answer": s.extras.answer,
            "answered_by": s.extras.answered_by,
        }
        for s in accepted
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
        }
        for s in accepted
        for d in s.extras.deliveries
    )
    if deliveries:
        await session.run("insert_deliveries", rows=deliveries, now=now)
        session.wake(DELIVERIES)
    successors = [batch for s in accepted for batch in s.extras.successors]
    if successors:
        await enqueue(session, successors, now)


async def _ping(
    session: Session, accepted: list[Settlement], rows: dict[int, Row], now: int
) -> None:
    pings: dict[tuple[object, ...], dict[str, object]] = {}

    def add(record: dict[str, object]) -> None:
        pings[tuple(record.values())] = record

    for s in accepted:
        _, _, _, pool, space_id, route, grp, metered, lane, limited = rows[s.run_id]
        if lane is not None:
            add(ping_record(pool, space_id, "", "", False, lane))
        elif s.state is RunState.QUEUED and (s.extras.available_at or now) <= now:
            add(ping_record(pool, space_id, route, grp, bool(metered), None))
        if limited and s.was is RunState.RUNNING:
            add({**dict.fromkeys(("route", "grp", "metered", "lane")), "pool": pool,
                 "space_id": space_id})
        if s.state is RunState.QUEUED and (s.extras.available_at or now) > now:
            session.wake("later")
    if pings:
        await session.run("insert_pings", rows=Rows(pings.values()))
        session.wake(RUNS)


async def _count_failures(session: Session, accepted: list[Settlement], now: int) -> None:
    tallies: dict[int, dict[str, object]] = {}
    for s in accepted:
        if s.extras.counts == 0:
            continue
        tally = tallies.setdefault(
            s.task_id, {"task_id": s.task_id, "reset": 0, "add": 0, "disable_after": 0}
        )
        if s.extras.counts < 0:
            tally.update(reset=1, add=0)
        else:
            tally.update(add=int(str(tally["add"])) + 1, disable_after=s.extras.disable_after)
    if not tallies:
        return
    await session.run("count_failures", rows=Rows(tallies.values()))
    watched = [t for t in tallies.values() if t["disable_after"]]
    if watched:
        for (task_id, *_) in await session.rows("disable_failing", rows=Rows(watched), now=now):
            await session.run(
                "insert_events",
                rows=Rows([{"name": EventName.TASK_DISABLED.value, "task_id": task_id,
                            "data": json.dumps({"reason": "too many failures in a row"})}]),
                now=now,
            )


async def _record_late(session: Session, late: list[Settlement], now: int) -> None:
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

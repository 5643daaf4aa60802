"""Settle runs; cancel, approve, disable, and give messages back.

Whoever dies between any two statements leaves both undone, and the question open. What came of it
is written down with the answer, so it is told for ever after and never done again.

Everything a settlement carries happens in one transaction: state, attempt, event, question,
outbox, successors, what the attempt deferred, the task's failure count, the lane's next, and the
pings that let claiming see what became possible. A settlement whose state or epoch no longer fits
changes nothing but leaves a `run.late_result` event for people to read. An attempt's settlement
that stands already is accepted again without effect, so that a worker who never got the answer may
repeat it. A run that somebody wanted stopped while its attempt's end was being decided ends here,
and never goes back.

It goes with the attempt's settlement. What an earlier attempt has read, which did begin, stays
with its run.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rota.errors import Conflict, IllegalMove, NotFound, OverLimit, RotaError, Stale
from rota.faultpoints import reach
from rota.model.checks import SuppressionReason
from rota.model.events import EventName
from rota.model.ids import RunId
from rota.model.instants import from_micros
from rota.model.runs import FINISHED, AttemptCause, Enqueued, QueueState, RunBatch, RunState
from rota.model.settlement import (
    NOTHING,
    PLAIN,
    PLAIN_SUCCESS,
    ApprovedAction,
    Settlement,
    SettlementExtras,
)
from rota.model.tasks import Task
from rota.model.threads import MAX_PENDING, MAX_PENDING_BYTES
from rota.store import budgets, notifications, quotas, tasks, workers
from rota.store.attempt_requests import settle_deferred
from rota.store.outbox import mail_text
from rota.store.queue import DELAYED, RUNS, claim_hint, queue_runs
from rota.store.quotas import enqueue_within
from rota.store.transactions import (
    DELIVERIES,
    EVENTS,
    MESSAGES,
    QueryRows,
    Row,
    Transaction,
    one,
)

LONGEST_LATE_RESULT = 4_096
NOWHERE: dict[str, object] = dict.fromkeys(
    ("pool", "space_id", "route", "limit_group", "metered", "lane")
)
"""A ping that names a pool and a space but no head: a limit may have room again."""

EVENT_OF_CAUSE = {
    AttemptCause.RETRY: EventName.RETRIED,
    AttemptCause.LOST: EventName.LOST,
    AttemptCause.RELEASED: EventName.RELEASED,
}


async def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[bool]:
    """Apply settlements; return for each whether it was still the run's to make."""
    now = tx.now()
    rows = {
        row[0]: row
        for row in await tx.rows("lock_runs", ids=sorted({s.run_id for s in settlements}))
    }
    cancelled = await reasons(tx, [run_id for run_id, row in rows.items() if row[5]])
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
        await _finish_plain(tx, was, state, outcome, ids, now)
    if rich:
        await _record(tx, rich, now)
        await _move(tx, rich, rows, now)
        reach("settle.outbox")
        await _follow_up(tx, rich, now)
    await _clear(tx, moved, rows, now)
    await notifications.withdraw_closed(tx, moved, now)
    await _ping(tx, moved, rows, now)
    await _count_failures(tx, moved, now)
    await _finish_tasks(tx, moved, now)
    if late:
        await _record_late(tx, [s for s in late if s.run_id in rows], now)
    return verdicts


async def _clear(tx: Transaction, moved: list[Settlement], rows: dict[int, Row], now: int) -> None:
    """Do or drop what waited for the end of runs: deferred operations, and what was set aside."""
    await return_messages(tx, moved)
    deferring = [s for s in moved if rows[s.run_id][7]]
    if deferring:
        await settle_deferred(tx, deferring, now)
    if any(rows[s.run_id][8] for s in moved):
        await budgets.close(tx, moved, now)


async def _finish_plain(
    tx: Transaction, was: RunState, state: RunState, outcome: str, ids: list[int], now: int
) -> None:
    if was is RunState.RUNNING:
        await tx.run("record_attempts", ids=ids, outcome=outcome, now=now)
    data = json.dumps({"state": state.value})
    await tx.run("record_events", ids=ids, name=EventName.SETTLED.value, data=data, now=now)
    tx.wake(EVENTS)
    await tx.run("finish_runs", ids=ids, state=state.value, now=now)


async def _record(tx: Transaction, rich: list[Settlement], now: int) -> None:
    ended: dict[str, list[int]] = defaultdict(list)
    told = QueryRows()
    events: dict[tuple[str, str], list[int]] = defaultdict(list)
    for s in rich:
        if s.was is RunState.RUNNING:
            if s.extras.error is None and s.extras.exit is None and s.extras.notes is None:
                ended[s.outcome].append(s.run_id)
            else:
                told.append(
                    {
                        "run_id": s.run_id,
                        "outcome": s.outcome,
                        "error": s.extras.error,
                        "exit": s.extras.exit,
                        "check_results": None
                        if s.extras.notes is None
                        else s.extras.notes.check_results,
                        "away": s.extras.away,
                    }
                )
        events[_event(s)].append(s.run_id)
    for outcome, run_ids in ended.items():
        await tx.run("record_attempts", ids=run_ids, outcome=outcome, now=now)
    if told:
        await tx.run("record_reported_attempts", rows=told, now=now)
    for (name, data), run_ids in events.items():
        await tx.run("record_events", ids=run_ids, name=name, data=data, now=now)
    tx.wake(EVENTS)


def _event(s: Settlement) -> tuple[str, str]:
    if s.state in FINISHED:
        data: dict[str, object] = {"state": s.state.value}
        if s.extras.error_code:
            data["error"] = s.extras.error_code
        data |= told_of(s)
        return EventName.SETTLED.value, json.dumps(data)
    if s.state is RunState.WAITING:
        return EventName.QUESTION_ASKED.value, "{}"
    if s.was is RunState.WAITING:
        return EventName.QUESTION_ANSWERED.value, "{}"
    cause = s.extras.cause or AttemptCause.RETRY
    data = {"error": s.extras.error_code} if s.extras.error_code else {}
    if cause is not AttemptCause.RETRY and s.extras.error:
        data["reason"] = s.extras.error
    if cause is AttemptCause.RELEASED and s.extras.error_code:
        return EventName.BUDGET_EXHAUSTED.value, json.dumps(data)
    return EVENT_OF_CAUSE[cause].value, json.dumps(data)


async def _move(tx: Transaction, rich: list[Settlement], rows: dict[int, Row], now: int) -> None:
    finished, requeued, waiting = QueryRows(), QueryRows(), QueryRows()
    for s in rich:
        if s.state in FINISHED:
            finished.append(
                {
                    "id": s.run_id,
                    "state": s.state.value,
                    "result": s.extras.result,
                    "error_code": s.extras.error_code,
                    "error": s.extras.error,
                    **marks_of(s),
                }
            )
        elif s.state is RunState.WAITING:
            waiting.append(_waiting(s))
        else:
            requeued.append(_requeued(s, rows[s.run_id][3], now))
    if finished:
        await tx.run("finish_runs_with", rows=finished, now=now)
    if requeued:
        await tx.run("requeue_runs", rows=requeued)
    if waiting:
        await tx.run("await_runs", rows=waiting)
        await tx.run("insert_questions", rows=waiting, now=now)


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
    cause = s.extras.cause or AttemptCause.RETRY
    place = QueueState.READY if lane is None else QueueState.HELD
    return {
        "id": s.run_id,
        "queue_state": (QueueState.DELAYED if available_at > now else place).value,
        "available_at": available_at,
        "cause": cause.value,
        "retries": int(cause is AttemptCause.RETRY),
        "losses": int(cause is AttemptCause.LOST),
        "error_code": s.extras.error_code,
        "error": s.extras.error,
    }


async def _follow_up(tx: Transaction, rich: list[Settlement], now: int) -> None:
    answers = QueryRows(
        {
            "id": s.extras.answered,
            "answer": s.extras.answer,
            "answered_by": s.extras.answered_by,
        }
        for s in rich
        if s.extras.answered is not None
    )
    if answers:
        await tx.run("answer_questions", rows=answers, now=now)
    deliveries = QueryRows(
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
        await tx.run("insert_deliveries", rows=deliveries, now=now)
        tx.wake(DELIVERIES)
    successors = [batch for s in rich for batch in s.extras.successors]
    if successors:
        reach("settle.successors")
        await queue_runs(tx, successors, now)
    await keep(tx, rich, now)
    await notifications.notify(tx, rich, now)


async def _ping(tx: Transaction, moved: list[Settlement], rows: dict[int, Row], now: int) -> None:
    """Let claiming look again where a lane, a limit or a queued run may have become free."""
    ready: set[int] = set()
    freed: set[int] = set()
    for s in moved:
        row = rows[s.run_id]
        if row[3] is not None or (row[4] and s.was is RunState.RUNNING):
            freed.add(s.run_id)
        if s.state is RunState.QUEUED:
            if (s.extras.available_at or now) > now:
                tx.wake(DELAYED)
            else:
                ready.add(s.run_id)
    if not (ready or freed):
        return
    pings: dict[tuple[object, ...], dict[str, object]] = {}
    for run_id, pool, space_id, route, grp, metered, lane in await tx.rows(
        "queue_heads_of", ids=sorted(ready | freed)
    ):
        records = []
        if lane is not None or run_id in ready:
            records.append(claim_hint(pool, space_id, route, grp, bool(metered), lane))
        if run_id in freed:
            records.append({**NOWHERE, "pool": pool, "space_id": space_id})
        pings.update({tuple(record.values()): record for record in records})
    await tx.run("insert_claim_hints", rows=QueryRows(pings.values()))
    tx.wake(RUNS)


async def _count_failures(tx: Transaction, moved: list[Settlement], now: int) -> None:
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
            "added": adds[task_id],
            "disable_after": thresholds.get(task_id, 0),
        }
        for task_id in sorted(resets | adds.keys())
    }
    if not tallies:
        return
    await tx.run("count_failures", rows=QueryRows(tallies.values()))
    watched = [t for t in tallies.values() if t["disable_after"]]
    if watched:
        for row in await tx.rows("disable_failing", rows=QueryRows(watched), now=now):
            why = "its task was disabled after failing too often"
            told = await notifications.notify_disabled(tx, row, failing[row[0]], now)
            await _after_disabling(tx, row[0], "too many failures in a row", why, now, told)


async def _finish_tasks(tx: Transaction, moved: list[Settlement], now: int) -> None:
    """Disable the tasks that were to run until they have succeeded."""
    done = sorted({s.task_id for s in moved if s.extras.finishes})
    for row in await tx.rows("disable_done", ids=done, now=now) if done else []:
        why = "its task has succeeded, and was to run until then"
        await _after_disabling(tx, row[0], "it has succeeded", why, now)


async def _after_disabling(
    tx: Transaction,
    task_id: int,
    reason: str,
    why: str,
    now: int,
    told: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Say that a task was disabled, and end the slots that wait in its queue."""
    await tx.run("touch_schedules", task_ids=[task_id])
    await _cancel_planned(tx, task_id, why)
    event: dict[str, object] = {
        "name": EventName.TASK_DISABLED.value,
        "task_id": task_id,
        "data": json.dumps({"reason": reason, **told}),
    }
    await tx.run("insert_events", rows=QueryRows([event]), now=now)


async def _cancel_planned(tx: Transaction, task_id: int, why: str) -> None:
    """End the slots that wait in the queue of a task that has just been disabled."""
    rows = await tx.rows("queued_runs_of", task_id=task_id, planned_only=1, most=10_000)
    ends = [
        Settlement(
            row[0],
            row[4],
            row[1],
            RunState.QUEUED,
            RunState.CANCELLED,
            RunState.CANCELLED.value,
            SettlementExtras(error_code="cancelled", error=why),
        )
        for row in rows
        if row[3] == RunState.QUEUED and row[4] == 0
    ]
    if ends:
        await settle(tx, ends)


async def _record_late(tx: Transaction, late: list[Settlement], now: int) -> None:
    tx.wake(EVENTS)
    for s in late:
        if s.was is not RunState.RUNNING:
            continue
        data = {
            "epoch": s.epoch,
            "outcome": s.outcome,
            "result": (s.extras.result or "")[:LONGEST_LATE_RESULT],
            "error": (s.extras.error or "")[:LONGEST_LATE_RESULT],
        }
        await tx.run(
            "record_events",
            ids=[s.run_id],
            name=EventName.LATE_RESULT.value,
            data=json.dumps(data),
            now=now,
        )


GATE = "gate"
"""The key under which a task remembers what its gate wants to find again."""


def marks_of(settlement: Settlement) -> dict[str, object]:
    """Return what is written on a run that has ended."""
    aside = settlement.extras.notes or NOTHING
    return {
        "check_state": None if aside.check_state is None else aside.check_state.value,
        "suppressed": None if aside.suppressed is None else aside.suppressed.value,
    }


def told_of(settlement: Settlement) -> dict[str, object]:
    """Return what is told of the end of a run beside its state."""
    found = {name: mark for name, mark in marks_of(settlement).items() if mark is not None}
    aside = settlement.extras.notes or NOTHING
    if aside.next_check is not None and settlement.state is RunState.SUCCEEDED:
        at = aside.next_check.template.available_at
        found["next_check"] = None if at is None else from_micros(at).isoformat()
    return found


async def keep(tx: Transaction, settlements: Sequence[Settlement], now: int) -> None:
    """Count quiet runs, remember what gates said, and queue what is to be looked at again."""
    quiet: Counter[int] = Counter()
    for s in settlements:
        aside = s.extras.notes
        if aside is None or s.state is not RunState.SUCCEEDED:
            continue
        if aside.suppressed is SuppressionReason.BY_GATE:
            quiet[s.task_id] += 1
        if aside.remembered is not None:
            await tx.run(
                "put_state",
                task_id=s.task_id,
                key=GATE,
                value=aside.remembered,
                who=f"run {s.run_id}",
                now=now,
            )
        if aside.next_check is not None:
            at = aside.next_check.template.available_at
            if await tx.rows("move_next_check", task_id=s.task_id, at=at):
                tx.wake(DELAYED)
            else:
                await queue_runs(tx, [aside.next_check], now)
    if quiet:
        rows = QueryRows(
            {"task_id": task_id, "added": add} for task_id, add in sorted(quiet.items())
        )
        await tx.run("count_suppressed", rows=rows)


CANCELS = "cancels"
"""The topic of running runs that somebody wants stopped."""

UNTOLD = "it was cancelled while it ran"


async def request_cancel(tx: Transaction, run_ids: Sequence[int], why: str) -> None:
    """Ask whoever works on these running runs to stop."""
    now = tx.now()
    asked = await tx.rows("request_cancel", ids=list(run_ids), now=now)
    if not asked:
        return
    await tx.run(
        "record_events",
        ids=[row[0] for row in asked],
        name=EventName.CANCEL_REQUESTED.value,
        data=json.dumps({"why": why}),
        now=now,
    )
    tx.wake(CANCELS)
    tx.wake(EVENTS)


async def reasons(tx: Transaction, run_ids: Collection[int]) -> dict[int, str]:
    """Return why running runs are to stop."""
    rows = await tx.rows("cancel_reasons", ids=sorted(run_ids)) if run_ids else []
    return {run_id: why or UNTOLD for run_id, why in rows}


def stopped(settlement: Settlement, why: str) -> Settlement:
    """Return how a run ends that somebody wants stopped; one that came to its own end did that.

    It neither goes back to the queue nor waits.
    """
    extras = settlement.extras
    if settlement.state is RunState.CANCELLED:
        return settlement._replace(extras=replace(extras, error=why))
    if settlement.state in FINISHED:
        return settlement
    return settlement._replace(
        state=RunState.CANCELLED,
        outcome=RunState.CANCELLED.value,
        extras=SettlementExtras(
            error_code="cancelled", error=why, away=extras.away, unbegun=extras.unbegun
        ),
    )


async def approve(tx: Transaction, answer: Settlement, deed: ApprovedAction) -> str | None:
    """Settle the answer if the question is open still, do the deed, and write down what came."""
    now = tx.now()
    ids = {answer.run_id} if deed.ends is None else {answer.run_id, deed.ends.run_id}
    await tx.rows("lock_runs", ids=sorted(ids))  # in one order, whoever ends whom
    if not all(await settle(tx, [answer])):
        return None
    came = await _do(tx, deed, now)
    reach("approve.done")
    noted = await tx.rows("set_question_outcome", id=answer.extras.answered, outcome=came)
    if not noted:
        message = f"the question of run {answer.run_id} was closed meanwhile: look at it again"
        raise Stale(message)
    return came


async def _do(tx: Transaction, deed: ApprovedAction, now: int) -> str:
    if deed.queues is not None:
        try:
            ((queued,),) = await enqueue_within(tx, [deed.queues], now)
        except OverLimit as fault:
            return json.dumps(_refused(fault))
        if queued.conflict:
            message = f"its key belongs to run {queued.run_id}, which has another payload"
            return json.dumps(_refused(Conflict(message)))
        return json.dumps({"ok": True, "run": queued.run_id, "created": queued.created})
    if deed.ends is not None:
        return json.dumps(await _cancel(tx, deed.ends))
    return deed.known or json.dumps({"ok": True})


async def _cancel(tx: Transaction, end: Settlement) -> dict[str, object]:
    """End a run as it stands now, or ask whoever works on it to stop."""
    row = await one(tx, "lock_runs", ids=[end.run_id])
    if row is None:
        return _refused(NotFound("run", end.run_id, "it ended long ago"))
    state = RunState(row[2])
    if state in FINISHED:
        return _refused(IllegalMove(state, "be cancelled: it has ended already"))
    if state is RunState.RUNNING:
        await request_cancel(tx, [end.run_id], end.extras.error or UNTOLD)
    else:
        await settle(tx, [end._replace(epoch=row[1], was=state)])
        state = end.state
    return {"ok": True, "run": end.run_id, "state": state.value}


def _refused(fault: RotaError) -> dict[str, object]:
    return {"ok": False, "error": {"code": fault.code, "message": str(fault)}}


NEWEST = 3 * MAX_PENDING
"""Among how many of a thread's newest messages a reader is looked for."""


async def return_messages(tx: Transaction, moved: Iterable[Settlement]) -> None:
    """Let what attempts were given that never began wait for its reader, or for the next one.

    A run that is tried again reads it itself; else whoever waits in the thread to read does.
    """
    for s in moved:
        if not s.extras.unbegun:
            continue
        attempt = {"run_id": s.run_id, "epoch": s.epoch}
        row = await one(tx, "thread_assigned_to", **attempt)
        if row is None:
            continue
        thread = row[0]
        await tx.rows("lock_thread", key=thread)
        await tx.run("return_messages", **attempt)
        readers = await tx.rows("queued_reader_runs", thread=thread, most=NEWEST)
        if readers and s.state in FINISHED:
            room = {"most": MAX_PENDING, "bytes": MAX_PENDING_BYTES}
            await tx.run("assign_reader_run", thread=thread, reader_run_id=readers[-1][0], **room)
        tx.wake(MESSAGES)


DELETED = "its task was deleted"


async def enqueue(tx: Transaction, batches: Sequence[RunBatch]) -> list[list[Enqueued]]:
    """Queue batches of runs, and do nothing else."""
    return await quotas.enqueue_within(
        tx, batches, tx.now(), unlimited=tx.cache.unlimited_spaces, last_of_all=True
    )


async def disable_task(
    tx: Transaction, task: Task, reason: str, until: int | None, ends: Sequence[Settlement]
) -> bool:
    """Stop a task's slots from running, and end the queued ones; false if more have come."""
    now = tx.now()
    await tx.run("touch_schedules", task_ids=[task.id])
    if await _more_than(tx, task, ends, planned_only=True):
        return False
    await tasks.disable_task(tx, task, reason, until, now)
    if ends:
        await settle(tx, ends)
    return True


async def delete_task(
    tx: Transaction, task: Task, ends: Sequence[Settlement], stops: Sequence[RunId]
) -> bool:
    """Take a task out of use, end what is queued and ask what runs to stop.

    False, with nothing done, if more has been queued meanwhile.
    """
    now = tx.now()
    await tx.run("touch_schedules", task_ids=[task.id])
    if await _more_than(tx, task, ends, planned_only=False):
        return False
    await tasks.delete_task(tx, task, now)
    if ends:
        await settle(tx, ends)
    if stops:
        await request_cancel(tx, stops, DELETED)
    return True


async def _more_than(
    tx: Transaction, task: Task, ends: Sequence[Settlement], *, planned_only: bool
) -> bool:
    """Tell whether a task has queued runs beside those that are to be ended.

    A planner that was faster has finished: the schedules it held were touched before.
    """
    queued = await workers.list_queued_runs(tx, task.id, planned_only=planned_only)
    known = {end.run_id for end in ends}
    return any(run.run_id not in known for run in queued if run.epoch == 0 or not planned_only)

"""Queue, run now, backfill, cancel and answer."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from rota.errors import Conflict, IllegalMove, Invalid, NotFound, Unavailable
from rota.flow.lookup import find_run, get_task
from rota.flow.settle import decide_runs, settle_runs
from rota.model.attempts import AttemptReport, Cancelled
from rota.model.ids import RunId
from rota.model.instants import from_micros, maybe_micros, to_micros
from rota.model.json import encode
from rota.model.runs import (
    FINISHED,
    MAX_PAYLOAD_BYTES,
    Enqueued,
    NewRun,
    Question,
    Run,
    RunBatch,
    RunSource,
    RunState,
    RunTransition,
)
from rota.model.settlement import ApprovedAction, Settlement
from rota.model.tasks import Task
from rota.model.threads import is_to_read
from rota.ports.clock import Random
from rota.rules.approvals import (
    APPROVAL,
    APPROVE,
    ControlRequest,
    check_decision,
    check_in_time,
    control_of,
)
from rota.rules.permissions import Caller, check_person
from rota.rules.plans import timetable_for
from rota.rules.queue import new_run, reading_pool
from rota.rules.settlement import SettlementContext
from rota.rules.settlement import settle_answer as decide_answer
from rota.rules.task_spec import is_in_conversation
from rota.store import settlement as store_settlement
from rota.store.settlement import approve, request_cancel, settle
from rota.store.store import Store
from rota.store.tasks import get_tasks, list_schedules
from rota.store.threads import requeue_reader
from rota.store.views import get_question, list_successors
from rota.store.workers import get_open_runs

LONGEST_KEY = 256
MAX_ANSWER = 16 * 1024
MOST_BACKFILLED = 1_000

Deciding: TypeAlias = Callable[[Run, ControlRequest], Awaitable[ApprovedAction]]
"""Returns the approved action of a control request."""


def encode_payload(payload: object) -> str:
    """Return a payload as JSON text, or refuse it."""
    try:
        text = encode(payload)
    except (TypeError, ValueError) as fault:
        raise Invalid("payload", payload, f"must be plain JSON values ({fault})") from None
    if len(text) > MAX_PAYLOAD_BYTES // 4 and len(text.encode()) > MAX_PAYLOAD_BYTES:
        advice = (
            f"has {len(text.encode())} bytes, at most {MAX_PAYLOAD_BYTES} (256 KiB) are allowed: "
            "store the data elsewhere and pass its name"
        )
        raise Invalid("payload", text, advice)
    return text


def check_key(key: str | None) -> str | None:
    """Refuse an empty or overlong key."""
    if key is not None and not 0 < len(key) <= LONGEST_KEY:
        raise Invalid("key", key, f"use 1 to {LONGEST_KEY} characters, or leave it out")
    return key


async def run_now(
    store: Store,
    caller: Caller,
    name: str,
    space: str = "main",
    *,
    payload: object = None,
    key: str | None = None,
) -> Enqueued:
    """Queue a run of a task at once, even of a disabled one; its schedules do not change."""
    task = await get_task(store, caller, name, space)
    return await enqueue(store, task, payload, key=key, source=RunSource.MANUAL)


async def enqueue(
    store: Store,
    task: Task,
    payload: object,
    *,
    key: str | None = None,
    at: datetime | None = None,
    priority: int | None = None,
    source: RunSource = RunSource.ENQUEUE,
) -> Enqueued:
    """Queue one run of a task that the caller may use."""
    template = make_template(task, source, store.now(), at, priority)
    return (await queue(store, [batch_of(template, payload, key)]))[0][0]


def batch_of(template: NewRun, payload: object, key: str | None = None) -> RunBatch:
    """Return a batch with one run, or refuse its payload or key."""
    keys = [] if key is None else [check_key(key)]
    return RunBatch(template=template, payloads=[encode_payload(payload)], keys=keys)


async def run_again(store: Store, caller: Caller, run_id: int) -> Enqueued:
    """Queue a new run with the input of a finished one."""
    run = await find_run(store, caller, run_id)
    if run.state not in FINISHED:
        raise IllegalMove(run.state, "be retried: it has not ended")
    tasks = await store.read(get_tasks, [run.task_id])
    if not tasks or tasks[0].deleted_at is not None:
        raise NotFound("task", run.task, "it was deleted; create it again first")
    payload = json.loads(run.payload)
    if is_to_read(payload):
        template = make_template(tasks[0], RunSource.MANUAL, store.now())
        template = template._replace(pool=reading_pool(tasks[0].policy))
        again = await store.write(
            requeue_reader, run.id, RunBatch(template=template, payloads=[run.payload])
        )
        if again is None:
            raise IllegalMove(run.state, "be retried: its messages have been read")
        return Enqueued(run_id=again)
    return await enqueue(store, tasks[0], payload, source=RunSource.MANUAL)


def make_template(
    task: Task, source: RunSource, now: int, at: datetime | None = None, priority: int | None = None
) -> NewRun:
    """Return the common part of runs of a task according to its policy."""
    return new_run(
        task.id,
        task.space_id,
        task.route,
        task.policy,
        source,
        now,
        available_at=maybe_micros(at),
        priority=priority,
        thread=task.thread,
        in_conversation=is_in_conversation(task),
    )


async def queue(
    store: Store, batches: Sequence[RunBatch], connection: object = None
) -> list[list[Enqueued]]:
    """Queue runs, or raise Conflict for a known key with another payload.

    With a connection of the caller, the runs belong to its transaction.
    """
    for batch in batches:
        if batch.keys and len(batch.keys) != len(batch.payloads):
            advice = f"give one for each of the {len(batch.payloads)} payloads"
            raise Invalid("keys", len(batch.keys), advice)
    if connection is None:
        outcomes = await store.write(store_settlement.enqueue, batches)
    else:
        outcomes = await store.database.enqueue_within(connection, batches)
    for batch, results in zip(batches, outcomes, strict=True):
        if batch.keys:
            _refuse_conflict(batch, results)
    return outcomes


def _refuse_conflict(batch: RunBatch, results: Sequence[Enqueued]) -> None:
    for index, outcome in enumerate(results):
        check_conflict(batch.key(index), outcome)


def check_conflict(key: str | None, outcome: Enqueued) -> None:
    """Raise Conflict if the key belongs to a run with another payload."""
    if outcome.conflict:
        message = (
            f"the key {key!r} belongs to run {outcome.run_id}, "
            "which has another payload: use another key"
        )
        raise Conflict(message)


async def backfill(
    store: Store, caller: Caller, name: str, start: datetime, end: datetime, space: str = "main"
) -> list[RunId]:
    """Queue a run for every slot of a span that has none.

    Future slots are included if a clock that was ahead has planned them already; their runs start
    when they are due.
    """
    task = await get_task(store, caller, name, space)
    if end <= start:
        raise Invalid("to", end.isoformat(), "must be later than `from`")
    now = store.now()
    schedules = await store.read(list_schedules, [task.id])
    if to_micros(end) > max(now, *(to_micros(schedule.cursor) for schedule in schedules), 0):
        raise Invalid("to", end.isoformat(), "is in the future; backfill looks back")
    batches = []
    for schedule in schedules:
        stagger = f"{schedule.space}/{schedule.task}/{schedule.name}"
        table = timetable_for(schedule.rule, schedule.generation, stagger)
        last = min(end, max(from_micros(now), schedule.cursor))
        slots = table.between(start, last, limit=MOST_BACKFILLED + 1) if start < last else ()
        for slot in slots:
            due = slot.due if to_micros(slot.due) > now else None
            template = make_template(task, RunSource.BACKFILL, now, due)._replace(
                schedule_id=schedule.id,
                slot_key=slot.key,
                slot_at=to_micros(slot.at),
            )
            batches.append(RunBatch(template=template, payloads=["null"]))
    if len(batches) > MOST_BACKFILLED:
        raise Invalid(
            "from", start.isoformat(), f"more than {MOST_BACKFILLED} slots: shorten the span"
        )
    outcomes = await store.write(store_settlement.enqueue, batches) if batches else []
    return created(outcomes)


def created(outcomes: Sequence[Sequence[Enqueued]]) -> list[RunId]:
    """Return the ids of new runs."""
    return [o.run_id for results in outcomes for o in results if o.created]


async def cancel_run(store: Store, caller: Caller, run_id: int, chance: Random) -> Run:
    """Cancel a queued run, or ask the worker of a running one to stop it."""
    run = await find_run(store, caller, run_id)
    if run.state in FINISHED:
        raise IllegalMove(run.state, "be cancelled: it has ended already")
    if run.state is RunState.RUNNING:
        await store.write(request_cancel, [run.id], f"cancelled by {caller.name}")
        asked = await find_run(store, caller, run_id)
        if asked.state in FINISHED or asked.cancel_requested_at is not None:
            return asked
        return await cancel_run(
            store, caller, run_id, chance
        )  # it was returned to the queue meanwhile
    report = AttemptReport(outcome=Cancelled(reason=f"cancelled by {caller.name}"))
    standing = [
        facts for facts in await store.read(get_open_runs, [run.id]) if facts.state is run.state
    ]
    accepted = await settle_runs(store, [(facts, report) for facts in standing], chance)
    if not (standing and all(accepted)):  # it was claimed, or ended, meanwhile
        return await cancel_run(store, caller, run_id, chance)
    return await find_run(store, caller, run_id)


async def end_of(store: Store, run: Run, why: str, chance: Random) -> Settlement:
    """Return the settlement of a queued run that is cancelled."""
    if run.state in FINISHED:
        raise IllegalMove(run.state, "be cancelled: it has ended already")
    facts = [
        replace(one, state=RunState.QUEUED) for one in await store.read(get_open_runs, [run.id])
    ]
    report = AttemptReport(outcome=Cancelled(reason=why))
    return (await decide_runs(store, [(one, report) for one in facts], chance))[0]


async def answer_question(
    store: Store,
    caller: Caller,
    question_id: int,
    text: str,
    seen: str | None = None,
    decide: Deciding | None = None,
) -> Run:
    """Answer a question once; its run continues in the queue.

    Only people answer. The decision about an action contains the hash of the shown text, `seen`.
    `decide` returns the action that Rota executes in the transaction of the answer.
    """
    check_person(caller)
    question = await store.read(get_question, question_id)
    if question is None:
        raise NotFound("question", question_id, "see `rota runs --state waiting`")
    run = await find_run(store, caller, question.run_id)
    if question.answered_at is not None or run.state is not RunState.WAITING:
        raise IllegalMove(run.state, f"take this {RunTransition.ANSWER}: the question is closed")
    if not 0 < len(text) <= MAX_ANSWER:
        raise Invalid("answer", text, f"needs 1 to {MAX_ANSWER} characters")
    check_decision(question, text, seen, store.now())
    if question.options and text not in question.options:
        raise Invalid("answer", text, f"choose one of: {', '.join(question.options)}")
    approved = question.kind == APPROVAL and text == APPROVE
    deed = await _deed(run, question, store.now(), decide) if approved else None
    facts = await store.read(get_open_runs, [run.id])
    tasks = await store.read(get_tasks, [run.task_id])
    followers = await store.read(list_successors, [run.task_id])
    context = SettlementContext(
        policy=tasks[0].policy,
        task=tasks[0].name,
        followers=tuple(followers.get(run.task_id, ())),
        now=store.now(),
    )
    settlement = decide_answer(facts[0], question.id, question.kind, text, caller.name, context)
    waits = facts[0].state is RunState.WAITING and facts[0].epoch == question.epoch
    if not waits or not await _settled(store, settlement, deed):
        raise IllegalMove(run.state, f"take this {RunTransition.ANSWER}: the question is closed")
    return await find_run(store, caller, run.id)


async def _deed(
    run: Run, question: Question, now: int, decide: Deciding | None
) -> ApprovedAction | None:
    """Return the action that Rota executes when the question is approved."""
    control = control_of(question)
    if control is None:
        return None
    check_in_time(control, question, now)
    if decide is None:
        message = f"question {question.id} requests an action by Rota: use `rota answer {run.id}`"
        raise Unavailable(message)
    return await decide(run, control)


async def _settled(store: Store, settlement: Settlement, deed: ApprovedAction | None) -> bool:
    if deed is None:
        return all(await store.write(settle, [settlement]))
    return await store.write(approve, settlement, deed) is not None

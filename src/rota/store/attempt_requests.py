"""Deferred operations, effects, and what is sent during a run.

A row of `deferred` holds an operation that is decided already. The settlement that makes a success
of its run applies it in the same transaction; an attempt that comes to nothing drops its own. Only
a question of the run's own carries it on, to whichever attempt succeeds with the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rota.errors import Conflict, Fenced
from rota.faultpoints import reach
from rota.model.attempt_requests import (
    MAX_DEFERRED,
    MAX_DEFERRED_BYTES,
    MAX_EFFECTS,
    MAX_SUBTASKS,
    AttemptRef,
    DeferredKind,
    DeferredOperation,
    DeferredResult,
    Effect,
)
from rota.model.attempts import ProgressNotice, WaitingForAnswer
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros
from rota.model.json import from_json
from rota.model.runs import FINISHED, NewRun, RunBatch, RunSource, RunState
from rota.model.settlement import NewDelivery, Settlement
from rota.model.tasks import Pool
from rota.store import tasks
from rota.store.outbox import files_text, mail_text
from rota.store.queue import queue_runs
from rota.store.quotas import check_queued
from rota.store.transactions import DELIVERIES, QueryRows, Row, Transaction, one


async def defer_operations(
    tx: Transaction, speaker: AttemptRef, operations: Sequence[DeferredOperation]
) -> list[DeferredResult]:
    """Keep what is neither deferred nor done already."""
    now = tx.now()
    await _hold(tx, speaker, "mark_has_deferred")
    names = [operation.name for operation in operations if operation.name is not None]
    deferred = {
        row[0] for row in await tx.rows("deferred_names", run_id=speaker.run_id, names=names)
    }
    done = {effect.name for effect in await _effects(tx, speaker, names)}
    puts: list[DeferredResult] = []
    new: list[DeferredOperation] = []
    for operation in operations:
        if operation.name in done:
            puts.append(DeferredResult.ALREADY_DONE)
        elif operation.name is not None and operation.name in deferred:
            puts.append(DeferredResult.ALREADY_DEFERRED)
        else:
            puts.append(DeferredResult.DEFERRED)
            new.append(operation)
            deferred.add(operation.name or "")
    if new:
        await _insert(tx, speaker, new, now)
    return puts


async def _insert(
    tx: Transaction, speaker: AttemptRef, new: list[DeferredOperation], now: int
) -> None:
    count, size, last, asked, subtasks = (
        await tx.rows("measure_deferred", run_id=speaker.run_id, epoch=speaker.epoch)
    )[0]
    wanted = sum(operation.kind is DeferredKind.SUBTASK for operation in new)
    if asked and any(operation.kind is DeferredKind.QUESTION for operation in new):
        message = f"this attempt of run {speaker.run_id} has asked already: end your turn"
        raise Conflict(message)
    for noun, number, most in (
        ("operations", count + len(new), MAX_DEFERRED),
        ("bytes", size + sum(len(o.data.encode()) for o in new), MAX_DEFERRED_BYTES),
        ("subtasks", subtasks + wanted, MAX_SUBTASKS),
    ):
        if number > most:
            message = f"run {speaker.run_id} would defer {number} {noun}, at most {most} are kept"
            raise Conflict(message)
    if wanted:
        await check_queued(tx, speaker.space_id, wanted)
    rows = QueryRows(
        {"seq": last + index, "kind": o.kind.value, "name": o.name, "data": o.data}
        for index, o in enumerate(new, 1)
    )
    await tx.run("insert_deferred", run_id=speaker.run_id, epoch=speaker.epoch, rows=rows, now=now)


async def record_effect(
    tx: Transaction,
    speaker: AttemptRef,
    name: str,
    result: str,
    delivery: NewDelivery | None = None,
) -> Effect:
    """Record an effect and put its message into the outbox, unless it was done before."""
    now = tx.now()
    await _hold(tx, speaker, "lock_attempt")
    before = await _effects(tx, speaker, [name])
    if before:
        return before[0]
    if (await tx.rows("count_effects", run_id=speaker.run_id))[0][0] >= MAX_EFFECTS:
        message = f"run {speaker.run_id} has had {MAX_EFFECTS} effects, and may have no more"
        raise Conflict(message)
    if delivery is not None:
        await send(tx, [(speaker.run_id, delivery)], now, early=True)
        row = await one(tx, "delivery_by_key", key=delivery.dedupe_key)
        result = json.dumps({"delivery": None if row is None else row[0]})
    await tx.run("insert_effects", rows=QueryRows([_effect(speaker, name, result, 1)]), now=now)
    return Effect(name=name, result=result, run_id=speaker.run_id, at=from_micros(now))


def _effect(speaker: AttemptRef, name: str, result: str, early: int) -> dict[str, object]:
    return {
        "task_id": speaker.task_id,
        "slot": speaker.slot,
        "name": name,
        "run_id": speaker.run_id,
        "epoch": speaker.epoch,
        "during_run": early,
        "result": result,
    }


async def _hold(tx: Transaction, speaker: AttemptRef, query: str) -> None:
    """Make sure that the run is the speaker's, and stays it until this is over."""
    row = await one(tx, query, run_id=speaker.run_id, epoch=speaker.epoch)
    if row is None:
        raise Fenced(speaker.run_id, speaker.epoch)


async def find_effect(tx: Transaction, speaker: AttemptRef, name: str) -> Effect | None:
    """Return an effect of a slot by its name."""
    found = await _effects(tx, speaker, [name])
    return found[0] if found else None


async def _effects(tx: Transaction, speaker: AttemptRef, names: list[str]) -> list[Effect]:
    if not names:
        return []
    return [
        Effect(name=name, result=result, run_id=RunId(run_id), at=from_micros(at), again=True)
        for name, result, run_id, at in await tx.rows(
            "find_effects", task_id=speaker.task_id, slot=speaker.slot, names=names
        )
    ]


async def attempts_waiting_for_answer(
    tx: Transaction, run_ids: Sequence[int]
) -> dict[RunId, WaitingForAnswer]:
    """Return what running attempts have asked."""
    found = await tx.rows("deferred_questions_of", ids=run_ids)
    return {RunId(run_id): _asked(json.loads(data)) for run_id, data in found}


async def runs_with_outside_actions(tx: Transaction, run_ids: Sequence[int]) -> set[RunId]:
    """Return the runs of which something has left."""
    return {RunId(row[0]) for row in await tx.rows("runs_acted_outside", ids=run_ids)}


async def list_started_attempts(tx: Transaction, run_ids: Sequence[int]) -> dict[RunId, bool]:
    """Return the runs whose kept attempt was begun, and whether it could write outside."""
    return {
        RunId(row[0]): bool(row[1]) for row in await tx.rows("runs_started_outside", ids=run_ids)
    }


def _asked(record: dict[str, Any]) -> WaitingForAnswer:
    return from_json(WaitingForAnswer, record)


async def list_deferred_operations(
    tx: Transaction, run_ids: Sequence[int]
) -> list[tuple[RunId, Epoch, DeferredOperation]]:
    """Return what is deferred, in order."""
    return [
        (
            RunId(run_id),
            Epoch(epoch),
            DeferredOperation(kind=DeferredKind(kind), data=data, name=name),
        )
        for run_id, epoch, kind, name, data in await tx.rows("deferred_of", ids=run_ids)
    ]


async def list_overdue_waiting_attempts(
    tx: Transaction, home: str, before: int
) -> list[tuple[RunId, Epoch]]:
    """Return kept attempts that have asked and go on."""
    found = await tx.rows("attempts_waiting_for_answer", home=home, before=before)
    return [(RunId(run_id), Epoch(epoch)) for run_id, epoch in found]


# what a settlement does


async def settle_deferred(tx: Transaction, moved: Iterable[Settlement], now: int) -> None:
    """Apply what successes deferred, and drop what other ends leave.

    An attempt that failed takes its own with it, and a run that ended all there is. What was
    deferred before a question waits for the attempt that succeeds with the answer.
    """
    succeeded: dict[int, Settlement] = {}
    asked: list[int] = []
    ended: list[int] = []
    failed = QueryRows()
    for s in moved:
        if s.state is RunState.SUCCEEDED:
            succeeded[s.run_id] = s
        elif s.state in FINISHED:
            ended.append(s.run_id)
        elif s.state is RunState.WAITING and s.outcome == "asked":
            asked.append(s.run_id)
        elif s.was is RunState.RUNNING:
            failed.append({"run_id": s.run_id, "epoch": s.epoch})
    ended += await _apply_of(tx, succeeded, now) if succeeded else ()
    if asked:
        await tx.run("drop_deferred_questions", ids=asked)
    if failed:
        await tx.run("drop_attempts_deferred", rows=failed)
    if ended:
        await tx.run("drop_deferred", ids=sorted(ended))


async def _apply_of(tx: Transaction, succeeded: dict[int, Settlement], now: int) -> set[int]:
    """Apply what runs deferred, in order, and return which of them deferred anything."""
    rows = await tx.rows("deferred_of", ids=sorted(succeeded))
    if rows:
        await _apply(tx, [_Due(succeeded[row[0]], row) for row in rows], now)
        reach("settle.deferred")
    return {row[0] for row in rows}


class _Due(NamedTuple):
    """An operation that is to be applied now."""

    settlement: Settlement
    row: Row

    @property
    def kind(self) -> DeferredKind:
        return DeferredKind(self.row[2])

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.row[4])
        return data

    def effect(self, result: str) -> dict[str, object]:
        """Return the effect it is, with what came of it."""
        return {
            "task_id": self.settlement.task_id,
            "slot": self.data["slot"],
            "name": self.row[3],
            "run_id": self.settlement.run_id,
            "epoch": self.row[1],
            "during_run": 0,
            "result": result,
        }


async def _apply(tx: Transaction, due: list[_Due], now: int) -> None:
    for one_due in due:
        await _remember(tx, one_due)
    messages = [d for d in due if d.kind is DeferredKind.MESSAGE]
    if messages:
        effects = QueryRows(d.effect(json.dumps({"to": d.data["to"]})) for d in messages)
        new = {tuple(row) for row in await tx.rows("insert_effects", rows=effects, now=now)}
        wanted = [d for d in messages if (d.settlement.task_id, d.data["slot"], d.row[3]) in new]
        sends = [(d.settlement.run_id, from_json(NewDelivery, d.data["delivery"])) for d in wanted]
        await send(tx, sends, now, early=False)
    subtasks = [d for d in due if d.kind is DeferredKind.SUBTASK]
    if subtasks:
        queued = await queue_runs(tx, [_batch(d.data) for d in subtasks], now)
        effects = QueryRows(
            d.effect(json.dumps({"run": made[0].run_id}))
            for d, made in zip(subtasks, queued, strict=True)
        )
        await tx.run("insert_effects", rows=effects, now=now)


async def _remember(tx: Transaction, due: _Due) -> None:
    task_id, data = due.settlement.task_id, due.data
    match due.kind:
        case DeferredKind.STATE:
            await tasks.put_state(tx, task_id, data["key"], data["value"], data["who"])
        case DeferredKind.FORGET:
            await tasks.drop_state(tx, task_id, data["key"])
        case DeferredKind.SEEN:
            items = [(item[0], item[1], item[2]) for item in data["items"]]
            await tasks.mark_seen(tx, task_id, items)
        case _:
            return


def _batch(data: dict[str, Any]) -> RunBatch:
    told = data["run"]
    template = NewRun(**{**told, "pool": Pool(told["pool"]), "source": RunSource(told["source"])})
    return RunBatch(template=template, payloads=[data["payload"]], keys=[data["key"]])


async def send_during_run(
    tx: Transaction, run_id: int, messages: Sequence[ProgressNotice], now: int
) -> None:
    """Put what people are told of a run that goes on into the outbox, within its bounds."""
    sends: list[tuple[int, NewDelivery]] = []
    for delivery, most, gap in messages:
        if most is not None:
            await send(tx, sends, now, early=True)
            sends.clear()
            told, last = (await tx.rows("count_progress_notices", run_id=run_id))[0]
            if told >= most or (last is not None and now - last < gap):
                continue
        sends.append((run_id, delivery))
    await send(tx, sends, now, early=True)


async def send(
    tx: Transaction, sends: Sequence[tuple[int, NewDelivery]], now: int, *, early: bool
) -> None:
    """Put messages of runs into the outbox; one that is there already is not put there again."""
    rows = QueryRows(
        {
            "run_id": run_id,
            "space_id": delivery.space_id,
            "channel": delivery.channel,
            "target": delivery.target,
            "body": delivery.body,
            "dedupe_key": delivery.dedupe_key,
            "during_run": int(early),
            "kind": delivery.kind.value,
            "mail": mail_text(delivery.mail),
            "attachments": files_text(delivery.attachments),
        }
        for run_id, delivery in sends
    )
    if rows:
        await tx.run("insert_deliveries", rows=rows, now=now)
        tx.wake(DELIVERIES)

"""Approvals and requests of attempts while processes die, and what must have come of them.

The answer to an approval and what it approves are one step: a run is queued for each question that
was approved, and for no other. What is deferred for an attempt is done once if that attempt
succeeds, and never otherwise. What is done at once is done once, whatever becomes of the attempt.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from rota.errors import Fenced, IllegalMove
from rota.flow.define.runs import batch_of, make_template
from rota.flow.lookup import get_task
from rota.model.attempt_requests import AttemptRef, DeferredKind, DeferredOperation, DeferredResult
from rota.model.ids import RunId
from rota.model.json import to_json
from rota.model.runs import Question, RunSource, RunState
from rota.model.settlement import ApprovedAction, NewDelivery
from rota.rules.approvals import APPROVE
from rota.rules.effects import effect_key, effect_slot
from rota.rules.permissions import LOCAL
from rota.rules.settlement import SettlementContext, settle_answer
from rota.store import settlement as store_settlement
from rota.store.attempt_requests import defer_operations, record_effect
from rota.store.store import Store
from rota.store.tasks import find_space
from rota.store.views import get_run
from rota.store.workers import get_open_runs
from tests.tools.crash.evidence import Evidence
from tests.tools.crash.witness import note

Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
APPROVED_TASK = "single"
FIELD = "approved"


async def approve(store: Store, question: Question, patiently: Patiently) -> None:
    """Approve a question, whose answer queues a run; IllegalMove if it is closed."""
    task = await patiently(partial(get_task, store, LOCAL, APPROVED_TASK))
    (facts,) = await patiently(partial(store.read, get_open_runs, [question.run_id]))
    context = SettlementContext(policy=task.policy, now=store.now())
    template = make_template(task, RunSource.ENQUEUE, store.now())
    deed = ApprovedAction(queues=batch_of(template, {FIELD: question.id}))
    settlement = settle_answer(facts, question.id, question.kind, APPROVE, "caller", context)
    if await patiently(partial(store.write, store_settlement.approve, settlement, deed)) is None:
        raise IllegalMove(facts.state, "be answered: the question is closed")


def judge_approving(found: Evidence) -> Iterator[str]:
    """Yield the questions of which nothing came, or too much."""
    payloads = [json.loads(run["payload"]) for run in found["runs"]]
    queued = Counter(told[FIELD] for told in payloads if isinstance(told, dict) and FIELD in told)
    approved = {q["id"]: q["outcome"] for q in found["questions"] if q["answer"] == APPROVE}
    for question in sorted(queued.keys() | approved.keys()):
        if queued[question] != (question in approved):
            yield f"what question {question} approved was done {queued[question]} times"
        elif approved[question] is None:
            yield f"what came of question {question} was not written down"


TASK = "spoken"
SEEN, ENDED, SAID = "seen", "ended", "said"


async def speak(store: Store, run_id: RunId, patiently: Patiently) -> None:
    """Defer an item and a message for the attempt that goes on, and send another at once."""
    run = await patiently(partial(store.read, get_run, run_id))
    if run is None or run.state is not RunState.RUNNING:
        return
    space = await patiently(partial(store.read, find_space, "main"))
    slot = effect_slot(run)
    speaker = AttemptRef(
        run_id=run.id, epoch=run.epoch, task_id=run.task_id, space_id=space.id, slot=slot
    )

    def message(name: str, body: str) -> NewDelivery:
        key = effect_key(space.id, run.task_id, slot, name)
        return NewDelivery(space_id=space.id, channel="log", target="", body=body, dedupe_key=key)

    item = {"items": [["", f"{run.id}.{run.epoch}", "null"]]}
    later = message(ENDED, f"run {run.id} has ended at attempt {run.epoch}")
    sent = {"slot": slot, "to": "log:", "delivery": to_json(later)}
    operations = [
        DeferredOperation(kind=DeferredKind.SEEN, data=json.dumps(item), name=SEEN),
        DeferredOperation(kind=DeferredKind.MESSAGE, data=json.dumps(sent), name=ENDED),
    ]
    now = message(SAID, f"run {run.id} goes on")
    with suppress(Fenced):  # it has ended, or another attempt goes on
        puts = await patiently(partial(store.write, defer_operations, speaker, operations))
        await patiently(partial(store.write, record_effect, speaker, SAID, "{}", now))
        if DeferredResult.ALREADY_DONE not in puts:
            note("spoke", sure=True, run=run.id, epoch=run.epoch)


def judge_speaking(lines: list[dict[str, Any]], found: Evidence) -> Iterator[str]:
    """Yield what was not done though it should have been, or done though it should not."""
    tasks = {task["id"]: task["name"] for task in found["tasks"]}
    runs = {run["id"]: run for run in found["runs"] if tasks[run["task_id"]] == TASK}
    seen = {s["item"]: s["count"] for s in found["seen_items"] if tasks[s["task_id"]] == TASK}
    for row in found["deferred_operations"]:
        yield f"run {row['run_id']} has deferred operations left"
    succeeded = {f"{r['id']}.{r['epoch']}" for r in runs.values() if r["state"] == "succeeded"}
    for item, count in seen.items():
        if item not in succeeded or count != 1:
            yield f"what attempt {item} deferred was done {count} times"
    spoke = {f"{line['run']}.{line['epoch']}" for line in lines if line["what"] == "spoke"}
    for item in sorted((spoke & succeeded) - seen.keys()):
        yield f"what attempt {item} deferred was not done, though it succeeded"
    later = Counter(
        d["run_id"] for d in found["deliveries"] if d["run_id"] in runs and not d["during_run"]
    )
    for run_id, run in runs.items():
        wanted = f"{run_id}.{run['epoch']}" in seen
        if later[run_id] != wanted:
            yield f"run {run_id} is {run['state']} with {later[run_id]} deferred messages"
    said = {effect["run_id"] for effect in found["effects"] if effect["name"] == SAID}
    early = Counter(d["run_id"] for d in found["deliveries"] if d["during_run"])
    for run_id in sorted({int(item.partition(".")[0]) for item in spoke} | said):
        if run_id not in said or early[run_id] != 1:
            yield f"run {run_id} has said {early[run_id]} things at once"

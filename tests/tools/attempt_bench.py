"""What an attempt says, in short words for tests of stores."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from rota.flow.settle import running
from rota.model.attempt_requests import AttemptRef, DeferredKind, DeferredOperation
from rota.model.attempts import AttemptReport, Outcome, Succeeded, WaitingForAnswer
from rota.model.json import to_json
from rota.model.runs import Lease, NewRun, RunSource
from rota.model.settlement import NewDelivery
from rota.model.tasks import Pool, Task
from rota.rules.effects import effect_key, effect_slot
from rota.rules.settlement import SettlementContext, settle, settle_answer
from rota.store import settlement as store_settlement
from rota.store.attempt_requests import attempts_waiting_for_answer, list_deferred_operations
from rota.store.tasks import list_state
from rota.store.views import list_questions
from rota.store.workers import get_open_runs
from tests.tools.store_bench import Bench


class Talk:
    """Short words for what an attempt says."""

    def __init__(self, bench: Bench, task: Task) -> None:
        self.bench = bench
        self.task = task

    async def begin(self) -> tuple[Lease, AttemptRef]:
        """Return the one run that is ready, and who speaks for it."""
        lease = await self.bench.claim_one()
        return lease, await self.speaker(lease)

    async def speaker(self, lease: Lease) -> AttemptRef:
        """Return who speaks for a lease."""
        return AttemptRef(
            run_id=lease.run_id,
            epoch=lease.epoch,
            task_id=lease.task_id,
            space_id=lease.space_id,
            slot=effect_slot(await self.bench.run(lease.run_id)),
        )

    def state(self, key: str, value: object) -> DeferredOperation:
        """Return a value to be kept."""
        record = {"key": key, "value": json.dumps(value), "who": "attempt"}
        return DeferredOperation(kind=DeferredKind.STATE, data=json.dumps(record))

    def seen(self, *items: str) -> DeferredOperation:
        """Return items to be marked."""
        rows = [["default", item, "null"] for item in items]
        return DeferredOperation(kind=DeferredKind.SEEN, data=json.dumps({"items": rows}))

    def delivery(self, speaker: AttemptRef, name: str, body: str = "hello") -> NewDelivery:
        """Return a message under an effect's name."""
        key = effect_key(speaker.space_id, speaker.task_id, speaker.slot, name)
        return NewDelivery(
            space_id=speaker.space_id, channel="log", target="", body=body, dedupe_key=key
        )

    def message(self, speaker: AttemptRef, name: str, body: str = "hello") -> DeferredOperation:
        """Return a message to be sent."""
        sent = to_json(self.delivery(speaker, name, body))
        record = {"slot": speaker.slot, "to": "log:", "delivery": sent}
        return DeferredOperation(kind=DeferredKind.MESSAGE, data=json.dumps(record), name=name)

    def subtask(self, speaker: AttemptRef, name: str) -> DeferredOperation:
        """Return a run to be queued."""
        template = NewRun(
            space_id=speaker.space_id,
            task_id=speaker.task_id,
            route=self.task.route,
            pool=Pool.FOREGROUND,
            source=RunSource.AFTER,
            upstream_id=speaker.run_id,
            depth=1,
            thread="cli:default",
            lane="cli:default",
        )
        record = {
            "slot": speaker.slot,
            "run": template._asdict(),
            "payload": '{"instructions": "go on"}',
            "key": f"subtask:{speaker.run_id}:{name}",
        }
        return DeferredOperation(kind=DeferredKind.SUBTASK, data=json.dumps(record), name=name)

    def question(self, **more: Any) -> DeferredOperation:
        """Return a question to be asked."""
        asked = replace(WaitingForAnswer(question="Shall I?", options=("yes", "no")), **more)
        return DeferredOperation(kind=DeferredKind.QUESTION, data=json.dumps(to_json(asked)))

    async def values(self) -> dict[str, object]:
        """Return what the task keeps."""
        kept = await self.bench.store.read(list_state, self.task.id, "", 100)
        return {one.key: json.loads(one.value) for one in kept}

    async def end(self, lease: Lease, outcome: Outcome | None = None) -> bool:
        """Settle an attempt as a worker does, with what it asked."""
        store = self.bench.store
        asked = (await store.read(attempts_waiting_for_answer, [lease.run_id])).get(lease.run_id)
        context = SettlementContext(policy=self.task.policy, now=store.now(), asked=asked)
        report = AttemptReport(outcome=outcome or Succeeded())
        return (
            await store.write(store_settlement.settle, [settle(running(lease), report, context)])
        )[0]

    async def answer(self, lease: Lease, text: str = "yes") -> bool:
        """Answer the newest question of a run."""
        store = self.bench.store
        question = (await store.read(list_questions, [lease.run_id]))[-1]
        (facts,) = await store.read(get_open_runs, [lease.run_id])
        context = SettlementContext(policy=self.task.policy, now=store.now())
        decided = settle_answer(facts, question.id, question.kind, text, "ann", context)
        return (await store.write(store_settlement.settle, [decided]))[0]

    async def left(self, lease: Lease) -> int:
        """Return how much is deferred."""
        return len(await self.bench.store.read(list_deferred_operations, [lease.run_id]))


async def talking(bench: Bench, **policy: Any) -> Talk:
    """Return an agent's task with one run queued."""
    task = await bench.task(route="agent", **policy)
    await bench.queue(task)
    return Talk(bench, task)

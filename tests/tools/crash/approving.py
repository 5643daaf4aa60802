"""Approving what Rota does itself, while processes die; and what must have come of it.

The answer and what it approves are one step: a run is queued for each question that was approved,
and for no other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from rota.errors import IllegalMove
from rota.flow.define.runs import batch_of, make_template
from rota.flow.lookup import get_task
from rota.model.runs import Question, RunSource
from rota.model.settlement import ApprovedAction
from rota.rules.approvals import APPROVE
from rota.rules.permissions import LOCAL
from rota.rules.settlement import SettlementContext, settle_answer
from rota.store import settlement as store_settlement
from rota.store.store import Store
from rota.store.workers import get_open_runs
from tests.tools.crash.evidence import Evidence

Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
TASK = "single"
FIELD = "approved"


async def approve(store: Store, question: Question, patiently: Patiently) -> None:
    """Approve a question, whose answer queues a run; IllegalMove if it is closed."""
    task = await patiently(partial(get_task, store, LOCAL, TASK))
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

"""Whatever happens to a run, in whatever order, its life follows the table of moves."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import IllegalMove
from rota.flow.settle import running
from rota.model.attempts import (
    Cancelled,
    Expired,
    Failed,
    Lost,
    Released,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.runs import FINISHED, MOVES, RunState
from rota.model.tasks import OnLost, Retry
from rota.rules.settlement import SettlementContext, settle_answer
from rota.store.plans import promote_delayed
from rota.store.settlement import settle
from rota.store.sqlite.database import MemoryDatabase
from rota.store.tasks import get_tasks
from rota.store.views import list_attempts, list_questions
from rota.store.workers import get_open_runs
from rota.testing.fakes import VirtualClock
from tests.tools.store_bench import Bench

REACHABLE = {(source, target) for (source, _), target in MOVES.items()}

OUTCOMES = {
    "succeed": Succeeded(),
    "succeed with a result": Succeeded(result="1"),
    "fail": Failed(code="x", message="boom"),
    "fail for good": Failed(code="x", message="boom", retryable=False),
    "ask": WaitingForAnswer(question="?", expires_in=timedelta(minutes=5)),
    "cancel": Cancelled(reason="no"),
    "expire": Expired(reason="late"),
    "lose": Lost(reason="gone"),
    "drain": Released(),
}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.just("")),
        st.tuples(st.just("end"), st.sampled_from(sorted(OUTCOMES))),
        st.tuples(st.just("end as a former holder"), st.sampled_from(sorted(OUTCOMES))),
        st.tuples(st.just("end from outside"), st.sampled_from(sorted(OUTCOMES))),
        st.tuples(st.just("answer"), st.sampled_from(["retry", "fail", "yes"])),
        st.tuples(st.just("wait"), st.sampled_from(["1", "10", "100"])),
    ),
    max_size=30,
)
policies = st.fixed_dictionaries(
    {
        "retry": st.builds(Retry, attempts=st.integers(1, 4), jitter=st.just(0.0)),
        "on_lost": st.sampled_from(OnLost),
        "lane": st.sampled_from([None, "L"]),
    }
)


class Life:
    """One run, and everybody who ever had a lease on it."""

    def __init__(self, bench, run_id):
        self.bench = bench
        self.run_id = run_id
        self.leases = []

    async def step(self, kind, what):
        """Do one thing; return whether the store took it, or None if that is not its business."""
        bench = self.bench
        match kind:
            case "claim":
                self.leases += await bench.claim()
                return None
            case "end" if self.leases:
                return await self._settle(running(self.leases[-1]), what)
            case "end as a former holder" if len(self.leases) > 1:
                return await self._settle(running(self.leases[0]), what)
            case "end from outside":
                (facts,) = await bench.store.read(get_open_runs, [self.run_id])
                return await self._settle(facts, what)
            case "answer":
                return await self._answer(what)
            case "wait":
                bench.clock.advance(minutes=int(what))
                await bench.store.write(promote_delayed, 10)
        return None

    async def _settle(self, facts, what):
        try:
            settlement = await self.bench.decide(facts, OUTCOMES[what])
        except IllegalMove:
            return None
        return (await self.bench.store.write(settle, [settlement]))[0]

    async def _answer(self, text):
        questions = await self.bench.store.read(list_questions, [self.run_id])
        if not questions:
            return None
        question = questions[-1]
        (facts,) = await self.bench.store.read(get_open_runs, [self.run_id])
        (task,) = await self.bench.store.read(get_tasks, [facts.task_id])
        context = SettlementContext(policy=task.policy, now=self.bench.store.now())
        facts = replace(facts, state=RunState.WAITING, epoch=question.epoch)
        settlement = settle_answer(facts, question.id, question.kind, text, "ann", context)
        return (await self.bench.store.write(settle, [settlement]))[0]


def check_row(run):
    assert (run.state is RunState.RUNNING) == (run.worker_id is not None)
    assert (run.state is RunState.QUEUED) == (run.queue_state is not None)
    assert (run.state in FINISHED) == (run.finished_at is not None)


async def live(policy, todo):
    clock = VirtualClock()
    store = MemoryDatabase(clock)
    await store.open()
    try:
        bench = Bench(store, clock)
        (run_id,) = await bench.queue(await bench.task(**policy))
        life = Life(bench, run_id)
        before = await bench.run(run_id)
        for kind, what in todo:
            taken = await life.step(kind, what)
            now = await bench.run(run_id)
            check_row(now)
            assert before.epoch <= now.epoch <= before.epoch + 1
            assert (now.epoch > before.epoch) == (
                before.state is RunState.QUEUED and now.state is RunState.RUNNING
            )
            if now.state is not before.state:
                assert (before.state, now.state) in REACHABLE
                assert kind in {"claim"} or taken
            if before.state in FINISHED:
                assert now == before
            before = now
        await check_history(bench, before)
    finally:
        await store.close()


async def check_history(bench, run):
    attempts = await bench.store.read(list_attempts, run.id)
    ended = run.epoch - (run.state is RunState.RUNNING)
    assert [attempt.epoch for attempt in attempts] == list(range(1, ended + 1))
    events = await bench.events(run.id)
    assert events.count("run.settled") == (run.state in FINISHED)
    assert sum(a.outcome == "succeeded" for a in attempts) <= 1
    assert run.losses <= 3
    assert run.retries <= 3


@settings(max_examples=150, deadline=None)
@given(policy=policies, todo=steps)
def test_a_run_follows_the_table_of_moves_whatever_happens(policy, todo):
    asyncio.run(live(policy, todo))

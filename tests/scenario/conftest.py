"""A database in which everything that can happen has happened."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.flow.define.runs import answer_question, backfill, cancel_run
from rota.flow.define.tasks import disable_task, enable_task
from rota.flow.deliver import deliver
from rota.flow.maintain import expire, rescue
from rota.flow.settle import settle_attempts
from rota.model.attempts import (
    Assignment,
    AttemptReport,
    Drained,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.budgets import Amounts, BudgetHolder
from rota.model.runs import RunState
from rota.model.spaces import LimitScope
from rota.model.tasks import After, OnLost, Overlap, Retry
from rota.model.views import RunFilter
from rota.ports.channel import ChannelRefused
from rota.rules.permissions import LOCAL
from rota.store.budgets import reserve_budget
from rota.store.outbox import claim_deliveries
from rota.store.plans import promote_delayed
from rota.store.views import list_questions, list_runs
from rota.store.workers import prune_runs
from rota.testing.fakes import FixedChance, RecordingChannel
from tests.scenario.builders import FlakyStore
from tests.tools.store_bench import Bench, failed, micros

CHANCE = FixedChance()
DAY = timedelta(days=1)
MESSAGE = OutgoingMessage(client_id="m", channel="test", target="bob", body="hello")
RETRY = Retry(attempts=3, base=timedelta(seconds=5), jitter=0)


class Busy:
    """A database in which everything that can happen has happened."""

    def __init__(self, bench):
        self.bench = bench
        self.store = bench.store
        self.clock = bench.clock

    async def fill(self):
        await self.bench.worker("w1", DAY)
        await self.bench.limit(LimitScope.TOTAL, cap=50)
        await self.bench.limit(LimitScope.GROUP, "g", cap=2, rate=10, period=timedelta(minutes=1))
        self.job = await self.bench.task("job", deliver_to="test:ann", retry=RETRY)
        await self.bench.task("then", after=After(task="job"))
        self.shy = await self.bench.task("shy", on_lost=OnLost.ASK, space="two")
        self.ticking = await self.bench.task("ticking", overlap=Overlap.SKIP)
        await self.bench.planned(self.ticking, every="10s")
        await self.bench.planned(self.ticking, name="cron", cron="*/5 * * * *")
        self.clock.advance(minutes=3)
        await self.work()  # what this leaves is pruned
        await self.prune()
        await self.work()
        await self.leave_open()

    async def work(self):
        await self.retried_and_chained()
        await self.asked_and_answered()
        await self.lost()
        await self.delivered()
        await self.planned()

    async def end(self, task, report, want=1, *, spends=False):
        """Claim runs of a task and report on them, followers and messages included."""
        claimed = await self.bench.claimed(want, routes=[task.route])
        assert len(claimed.leases) == want
        for x in claimed.leases if spends else ():
            own = {"run_id": x.run_id, "epoch": x.epoch, "task_id": x.task_id}
            spender = BudgetHolder(
                **own, space_id=x.space_id, day="2026-03-01", began=self.store.now()
            )
            assert await self.store.write(
                reserve_budget, spender, "w1", Amounts(), Amounts(tokens=5)
            )
        ended = [(Assignment(x, claimed.tasks[x.task_id], ()), report) for x in claimed.leases]
        assert all(await settle_attempts(self.store, ended, CHANCE))

    async def retried_and_chained(self):
        await self.bench.queue(self.job, 3)
        await self.end(self.job, AttemptReport(outcome=failed()), 2)
        await self.end(self.job, AttemptReport(outcome=Drained()))
        self.clock.advance(minutes=1)
        await self.store.write(promote_delayed, 100)
        await self.end(
            self.job, AttemptReport(outcome=Succeeded(result="1"), messages=(MESSAGE,)), 2
        )
        await self.end(self.job, AttemptReport(outcome=failed(retryable=False)))

    async def asked_and_answered(self):
        await self.bench.queue(self.shy, 2)
        await self.end(self.shy, AttemptReport(outcome=WaitingForAnswer(question="?")), 2)
        await self.answer("yes")
        await self.end(self.shy, AttemptReport(outcome=Succeeded()), 2, spends=True)

    async def lost(self):
        await self.bench.worker(f"dying {self.clock.now()}")
        await self.bench.queue(self.shy, 3)
        await self.bench.claim(3, f"dying {self.clock.now()}", [self.shy.route])
        (kept,) = await self.bench.queue(self.shy, at=self.clock.now() + DAY)
        await cancel_run(self.store, LOCAL, kept, CHANCE)
        self.clock.advance(minutes=1)
        assert await rescue(self.store, CHANCE, fence=True) == 3
        await self.answer("retry", "fail")
        await self.end(self.shy, AttemptReport(outcome=Succeeded()))

    async def answer(self, *texts):
        for run in await self.runs(RunState.WAITING):
            (*_, question) = await self.store.read(list_questions, [run.id])
            await answer_question(self.store, LOCAL, question.id, texts[run.id % len(texts)])

    async def delivered(self):
        faults = [ChannelRefused("later"), TimeoutError(), ChannelRefused("no", final=True)]
        channel = RecordingChannel(errors=faults)
        await deliver(self.store, {"test": channel}, "w1", CHANCE)
        self.clock.advance(minutes=1)
        await deliver(self.store, {"test": channel}, "w1", CHANCE)

    async def planned(self):
        await self.bench.plan()
        await self.end(self.ticking, AttemptReport(outcome=Succeeded()))
        await disable_task(self.store, LOCAL, "ticking")
        self.clock.advance(minutes=20)
        await self.bench.plan()
        await enable_task(self.store, LOCAL, "ticking")
        self.clock.advance(minutes=2)
        await self.bench.plan()
        start = self.clock.now() - timedelta(minutes=15)
        await backfill(self.store, LOCAL, "ticking", start, start + timedelta(seconds=20))

    async def prune(self):
        self.clock.advance(minutes=5)
        before = self.store.now() - micros(timedelta(minutes=1))
        while await self.store.write(prune_runs, before, 7):
            pass

    async def leave_open(self):
        slow = await self.bench.task("slow", lane="L", space="two")
        hasty = await self.bench.task("hasty", deadline=timedelta(seconds=5))
        grouped = await self.bench.task("grouped", group="g")
        await self.bench.enqueue(self.bench.batch(hasty, [1, 2], ["a", "b"]))
        self.clock.advance(seconds=10)
        assert await expire(self.store, CHANCE) == 2
        await self.bench.queue(self.shy, 2)
        await self.end(self.shy, AttemptReport(outcome=WaitingForAnswer(question="?")))
        await self.bench.queue(slow, 3)
        await self.bench.queue(grouped, 4)
        self.clock.advance(minutes=2)
        await self.bench.claim(3, routes=[slow.route, grouped.route])
        await self.bench.queue(self.job, 2)
        await self.end(self.job, AttemptReport(outcome=failed()))
        await self.end(self.job, AttemptReport(outcome=Succeeded(), messages=(MESSAGE,)))
        await self.store.write(claim_deliveries, "w1", 1)

    async def runs(self, state):
        return await self.store.read(list_runs, RunFilter(state=state, limit=1_000))


@pytest.fixture
def make_busy():
    return Busy


@pytest.fixture
def busy(bench, runner):
    made = Busy(bench)
    runner.run(made.fill())
    return made


@pytest.fixture
def flaky(clock, opened):
    return Bench(opened(FlakyStore(clock)), clock)

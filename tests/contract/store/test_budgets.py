"""Budgets: what is reserved is never more than a cap, and every part of it ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.flow.settle import running
from rota.model.attempts import (
    AttemptReport,
    Drained,
    KeptAttempt,
    Lost,
    OutputChunk,
    OutputStream,
    PricedUsage,
    Succeeded,
)
from rota.model.budgets import (
    UNITS,
    USABLE,
    Amounts,
    BudgetCaps,
    BudgetHolder,
    BudgetRefusal,
    BudgetScope,
)
from rota.model.runs import Lease, QueueState
from rota.model.tasks import Policy, TaskKind
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.attempts import record_launch, record_output, renew_home_lease
from rota.store.budgets import (
    budgets_for_task,
    count_held_by_budget,
    duration_history,
    reserve_budget,
    set_budget,
    usage_history,
    usage_of_run,
    usage_on_day,
)
from rota.store.plans import promote_delayed
from rota.store.settlement import request_cancel
from tests.tools.store_bench import Bench, failed, micros

DAY = "2026-03-02"
NOTHING = Amounts()


def spender_of(lease: Lease, units: tuple[str, ...] = UNITS, began: int = 0) -> BudgetHolder:
    """Return the attempt of a lease as one that spends."""
    return BudgetHolder(
        run_id=lease.run_id,
        epoch=lease.epoch,
        space_id=lease.space_id,
        task_id=lease.task_id,
        day=DAY,
        began=began,
        units=units,
    )


class TestBudgets:
    """What holds for budgets."""

    async def _leases(self, bench: Bench, count: int, name: str = "job") -> list[Lease]:
        await bench.worker("w1", timedelta(hours=1))
        await bench.queue(await bench.task(name), count)
        return await bench.claim(count)

    async def _reserve(self, bench: Bench, lease: Lease, tokens: int, least: int = 0) -> object:
        most = Amounts(tokens=tokens)
        wanted = Amounts(tokens=least)
        return await bench.store.write(reserve_budget, spender_of(lease), "w1", wanted, most)

    async def _use(self, bench: Bench, lease: Lease, at: int, tokens: int) -> bool:
        heard = OutputChunk(
            OutputStream.OUT,
            at,
            at + 1,
            (),
            PricedUsage(Amounts(tokens=tokens, turns=1), priced=False),
        )
        return await bench.store.write(record_output, lease.run_id, lease.epoch, "w1", [heard])

    async def _kept(self, bench: Bench, lease: Lease) -> None:
        await bench.store.write(
            renew_home_lease, "/home", "here", bench.store.now() + micros(timedelta(1))
        )
        kept = KeptAttempt(
            run_id=lease.run_id, epoch=lease.epoch, home="/home", nonce="n", boot="b", executor="p"
        )
        assert await bench.store.write(record_launch, kept, "w1")

    async def test_no_more_is_set_aside_than_a_day_has_left(self, bench: Bench) -> None:
        first, second, third = await self._leases(bench, 3)
        await bench.store.write(
            set_budget, BudgetScope.TASK, first.task_id, BudgetCaps(tokens=100), "me"
        )
        assert await self._reserve(bench, first, 60) == Amounts(tokens=60)
        assert await self._reserve(bench, second, 60) == Amounts(tokens=40)
        refused = await self._reserve(bench, third, 60)
        assert refused == BudgetRefusal(BudgetScope.TASK, "tokens", 100, 0, 100)

    async def test_who_is_refused_knows_what_others_may_give_back(self, bench: Bench) -> None:
        first, second, third = await self._leases(bench, 3)
        await bench.store.write(
            set_budget, BudgetScope.TASK, first.task_id, BudgetCaps(tokens=100), "me"
        )
        await self._reserve(bench, first, 60)
        await self._kept(bench, first)
        assert await self._use(bench, first, 0, 70)
        await self._reserve(bench, second, 60)
        refused = await self._reserve(bench, third, 1)
        assert refused == BudgetRefusal(BudgetScope.TASK, "tokens", 100, 0, 30)
        await bench.end(second)
        assert await self._use(bench, first, 1, 40)
        refused = await self._reserve(bench, third, 1)
        assert refused == BudgetRefusal(BudgetScope.TASK, "tokens", 100, 0)

    async def test_only_what_a_run_can_use_is_looked_at(self, bench: Bench) -> None:
        first, second, third = await self._leases(bench, 3)
        caps = BudgetCaps(tokens=10, turns=1, seconds=90)
        await bench.store.write(set_budget, BudgetScope.SPACE, first.space_id, caps, "me")
        assert await self._reserve(bench, first, 10)  # of tokens, nothing is left
        units, most = USABLE[TaskKind.SCRIPT], Amounts(seconds=60)
        told = [spender_of(lease, units) for lease in (second, third)]
        assert await bench.store.write(reserve_budget, told[0], "w1", NOTHING, most) == most
        assert await bench.store.write(reserve_budget, told[1], "w1", NOTHING, most) == Amounts(
            seconds=30
        )
        refused = await bench.store.write(reserve_budget, told[1], "w1", Amounts(seconds=31), most)
        assert refused == BudgetRefusal(BudgetScope.SPACE, "seconds", 90, 30, 60)

    async def test_time_is_charged_to_the_nearest_second(self, bench: Bench) -> None:
        short, long = await self._leases(bench, 2)
        units, began = USABLE[TaskKind.SCRIPT], bench.store.now()
        for lease in (short, long):
            spender = spender_of(lease, units, began)
            assert (
                await bench.store.write(reserve_budget, spender, "w1", NOTHING, Amounts(seconds=9))
                is not None
            )
        bench.clock.advance(timedelta(milliseconds=400))
        await bench.end(short)
        bench.clock.advance(timedelta(milliseconds=1_200))
        await bench.end(long)
        used = await bench.store.read(usage_on_day, BudgetScope.TASK, long.task_id, DAY)
        assert (used.used, used.aside) == (Amounts(seconds=2), NOTHING)
        assert (
            await bench.store.read(usage_history, long.task_id, 20) == []
        )  # they have told nothing

    async def test_time_in_which_nobody_was_there_is_no_work(self, bench: Bench) -> None:
        leases = await self._leases(bench, 2)
        units, began = USABLE[TaskKind.SCRIPT], bench.store.now()
        for lease in leases:
            spender = spender_of(lease, units, began)
            assert (
                await bench.store.write(reserve_budget, spender, "w1", NOTHING, Amounts(seconds=9))
                is not None
            )
        bench.clock.advance(seconds=69)
        for lease, away in zip(leases, (63, 1_000), strict=True):  # a clock may have leapt
            report = AttemptReport(outcome=Succeeded(), ending="{}", away=away * 1_000_000)
            context = SettlementContext(policy=Policy(), now=bench.store.now())
            assert await bench.store.write(
                store_settlement.settle, [settle(running(lease), report, context)]
            ) == [True]
        took = [(await bench.run(lease.run_id)).took for lease in leases]
        assert took == [timedelta(seconds=6), timedelta(0)]
        used = await bench.store.read(usage_on_day, BudgetScope.TASK, leases[0].task_id, DAY)
        assert (used.used, used.aside) == (Amounts(seconds=6), NOTHING)
        times = await bench.store.read(duration_history, leases[0].task_id, 20)
        assert [one.seconds for one in times] == [0, 6]
        assert (await bench.run(leases[0].run_id)).finished_at == bench.clock.now()

    async def test_what_is_cancelled_while_nobody_was_there_is_charged_as_little(
        self, bench: Bench
    ) -> None:
        (lease,) = await self._leases(bench, 1)
        spender = spender_of(lease, began=bench.store.now())
        assert await bench.store.write(reserve_budget, spender, "w1", NOTHING, NOTHING) is not None
        bench.clock.advance(seconds=69)
        report = AttemptReport(outcome=Lost(reason="gone"), ending="{}", away=63_000_000)
        context = SettlementContext(policy=Policy(), now=bench.store.now())
        decided = settle(running(lease), report, context)
        await bench.store.write(request_cancel, [lease.run_id], "cancelled by ann")
        assert await bench.store.write(store_settlement.settle, [decided]) == [True]
        used = await bench.store.read(usage_on_day, BudgetScope.TASK, lease.task_id, DAY)
        assert used.used == Amounts(seconds=6)

    async def test_how_long_the_newest_runs_have_worked_is_known(self, bench: Bench) -> None:
        await bench.worker("w1", timedelta(hours=1))
        task = await bench.task()
        await bench.queue(task)
        lease = await bench.claim_one()
        bench.clock.advance(timedelta(milliseconds=1_400))
        await bench.end(lease, Drained())
        assert await bench.store.read(duration_history, task.id, 20) == []  # it is not over
        for seconds in (0.2, 3.0, 5.0):
            lease = await bench.claim_one()
            bench.clock.advance(timedelta(seconds=seconds))
            await bench.end(lease)
            await bench.queue(task)
        assert [one.seconds for one in await bench.store.read(duration_history, task.id, 20)] == [
            5,
            3,
            2,
        ]
        assert await bench.store.read(duration_history, task.id, 1) == [Amounts(seconds=5)]

    async def test_two_at_once_get_no_more_than_there_is(self, bench: Bench) -> None:
        leases = await self._leases(bench, 8)
        await bench.store.write(
            set_budget, BudgetScope.SPACE, leases[0].space_id, BudgetCaps(tokens=100), "me"
        )
        got = await asyncio.gather(*(self._reserve(bench, lease, 30) for lease in leases))
        granted = [one.tokens for one in got if isinstance(one, Amounts)]
        assert sorted(granted) == [10, 30, 30, 30]
        used = await bench.store.read(usage_on_day, BudgetScope.SPACE, leases[0].space_id, DAY)
        assert (used.used, used.aside) == (NOTHING, Amounts(tokens=100))

    async def test_whatever_ends_an_attempt_ends_what_was_set_aside(self, bench: Bench) -> None:
        leases = await self._leases(bench, 4)
        task = leases[0].task_id
        await bench.store.write(set_budget, BudgetScope.TASK, task, BudgetCaps(tokens=100), "me")
        for lease in leases:
            await self._reserve(bench, lease, 25)
        outcomes = (None, failed(), Lost(reason="gone"), Drained())
        for lease, outcome in zip(leases, outcomes, strict=True):
            assert await bench.end(lease, outcome)
        used = await bench.store.read(usage_on_day, BudgetScope.TASK, task, DAY)
        assert used.aside == NOTHING
        for lease in leases:
            assert await self._reserve(bench, lease, 1) is None  # nobody's any more

    async def test_what_was_used_stays_and_the_rest_is_given_back(self, bench: Bench) -> None:
        (lease, other) = await self._leases(bench, 2)
        await bench.store.write(
            set_budget, BudgetScope.TASK, lease.task_id, BudgetCaps(tokens=100), "me"
        )
        await self._reserve(bench, lease, 80)
        await self._kept(bench, lease)
        assert await self._use(bench, lease, 0, 20)
        assert not await self._use(bench, lease, 0, 20)  # the same words again
        used = await bench.store.read(usage_on_day, BudgetScope.TASK, lease.task_id, DAY)
        assert (used.used.tokens, used.aside.tokens) == (20, 60)
        assert await self._reserve(bench, other, 50) == Amounts(tokens=20)
        await bench.end(lease)
        assert await self._reserve(bench, other, 80) == Amounts(tokens=80)
        (spent,) = await bench.store.read(usage_of_run, lease.run_id)
        assert (spent.used.tokens, spent.used.turns, spent.stopped) == (20, 1, None)
        (usual,) = await bench.store.read(usage_history, lease.task_id, 20)
        assert usual.tokens == 20

    async def test_more_is_set_aside_in_the_place_of_less(self, bench: Bench) -> None:
        (lease,) = await self._leases(bench, 1)
        await bench.store.write(
            set_budget, BudgetScope.TASK, lease.task_id, BudgetCaps(tokens=100), "me"
        )
        assert await self._reserve(bench, lease, 25) == Amounts(tokens=25)
        assert await self._reserve(bench, lease, 50, least=26) == Amounts(tokens=50)
        assert await self._reserve(bench, lease, 200, least=51) == Amounts(tokens=100)
        refused = await self._reserve(bench, lease, 200, least=101)
        assert refused == BudgetRefusal(BudgetScope.TASK, "tokens", 100, 100)

    async def test_an_old_attempt_sets_nothing_aside(self, bench: Bench) -> None:
        (lease,) = await self._leases(bench, 1)
        older = lease._replace(epoch=type(lease.epoch)(lease.epoch - 1))
        assert await self._reserve(bench, older, 1) is None
        most = Amounts(tokens=1)
        assert (
            await bench.store.write(reserve_budget, spender_of(lease), "w2", NOTHING, most) is None
        )

    async def test_what_is_held_back_begins_when_the_budget_is_raised(self, bench: Bench) -> None:
        (lease,) = await self._leases(bench, 1)
        later = bench.store.now() + micros(timedelta(hours=5))
        assert await bench.end(lease, Drained(until=later, reason="the day is spent"))
        held = await bench.run(lease.run_id)
        assert (held.place, held.error_code) == (QueueState.LATER, "over_budget")
        assert await bench.store.read(count_held_by_budget, None) == (1, "the day is spent")
        assert "run.held_back" in await bench.events(lease.run_id)
        await bench.store.write(
            set_budget, BudgetScope.TASK, lease.task_id, BudgetCaps(tokens=9), "me"
        )
        await bench.store.write(promote_delayed, 10)
        assert [again.run_id for again in await bench.claim()] == [lease.run_id]

    async def test_without_caps_a_budget_is_taken_away(self, bench: Bench) -> None:
        (lease,) = await self._leases(bench, 1)
        own = (lease.task_id, lease.space_id)
        await bench.store.write(
            set_budget, BudgetScope.RUN, lease.task_id, BudgetCaps(cost=5, turns=2), "me"
        )
        assert await bench.store.read(budgets_for_task, *own) == {
            BudgetScope.RUN: BudgetCaps(cost=5, turns=2)
        }
        await bench.store.write(set_budget, BudgetScope.RUN, lease.task_id, BudgetCaps(), "me")
        assert await bench.store.read(budgets_for_task, *own) == {}

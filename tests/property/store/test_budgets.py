"""Budgets under any order of events: never more set aside than a cap, and every part ends."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.model.attempts import Lost, OutputChunk, OutputStream, PricedUsage, Succeeded
from rota.model.budgets import Amounts, BudgetCaps, BudgetScope
from rota.store.attempts import record_launch, record_output
from rota.store.budgets import reserve_budget, set_budget, usage_on_day
from rota.store.sqlite.database import MemoryDatabase
from rota.testing.fakes import VirtualClock
from tests.contract.store.test_attempts import kept_for
from tests.contract.store.test_budgets import DAY, spender_of
from tests.tools.store_bench import Bench

CAP = 100
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "use", "end", "lose", "again"]),
        st.integers(0, 5),
        st.integers(0, 60),
    ),
    max_size=40,
)


async def _lived(steps):
    store = MemoryDatabase(VirtualClock())
    await store.open()
    try:
        bench = Bench(store, VirtualClock())
        await bench.worker("w1", timedelta(days=1))
        task = await bench.task()
        await bench.queue(task, 6)
        leases = dict(enumerate(await bench.claim(6)))
        await store.write(set_budget, BudgetScope.TASK, task.id, BudgetCaps(tokens=CAP), "me")
        aside, used, at = {}, dict.fromkeys(leases, 0), dict.fromkeys(leases, 0)
        for lease in leases.values():
            assert await store.write(record_launch, kept_for(lease), "w1")
        for what, n, tokens in steps:
            lease = leases[n]
            if lease is None:
                continue
            if what in {"reserve", "again"}:
                least = used[n] + 1 if what == "again" else 0
                most = Amounts(tokens=max(tokens, least))
                got = await store.write(
                    reserve_budget, spender_of(lease), "w1", Amounts(tokens=least), most
                )
                if isinstance(got, Amounts):
                    aside[n] = got.tokens
                    others = sum(max(aside[m], used[m]) for m in aside if m != n)
                    assert others + got.tokens <= CAP or got.tokens == 0
            elif what == "use" and n in aside:
                fresh = min(tokens, max(0, aside[n] - used[n]))
                told = PricedUsage(Amounts(tokens=fresh), priced=False)
                heard = OutputChunk(OutputStream.OUT, at[n], at[n] + 1, (), told)
                assert await store.write(record_output, lease.run_id, lease.epoch, "w1", [heard])
                at[n] += 1
                used[n] += fresh
            elif what in {"end", "lose"}:
                outcome = Succeeded() if what == "end" else Lost(reason="gone")
                assert await bench.end(lease, outcome)
                leases[n] = None
                if n in aside:
                    aside[n] = used[n]
            seen = await store.read(usage_on_day, BudgetScope.TASK, task.id, DAY)
            assert seen.used.tokens == sum(used[m] for m in aside)
            assert seen.used.tokens + seen.aside.tokens <= CAP
        for n, lease in leases.items():
            if lease is not None:
                await bench.end(lease)
                leases[n] = None
        seen = await store.read(usage_on_day, BudgetScope.TASK, task.id, DAY)
        assert seen.aside == Amounts()
    finally:
        await store.close()


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_never_more_is_set_aside_than_there_is(steps):
    asyncio.run(_lived(steps))

"""What stores built on `rota.store` promise about the caches of claiming."""

from __future__ import annotations

from rota.store.queue import rebuild_queue_heads
from rota.store.transactions import QueryRows, Transaction
from tests.tools.store_bench import Bench


class CacheContract:
    """Heads and pings are caches: runs alone are the truth."""

    async def test_healing_restores_what_claiming_caches(self, bench: Bench) -> None:
        task, laned = await bench.task(), await bench.task("laned", lane="L")
        ids = [*await bench.queue(task, 3), *await bench.queue(laned, 2)]
        await bench.claim(1, routes=["something else"])
        await bench.store.write(_forget)
        assert await bench.claim() == []
        assert await bench.store.write(rebuild_queue_heads) > 0
        assert sorted(await bench.claim_ids()) == ids[:4]


async def _forget(tx: Transaction) -> None:
    """Drop every head and every ping, as a restore from a damaged copy might."""
    found = await tx.rows("find_heads")
    for pool in {row[0] for row in found}:
        heads = QueryRows(
            {"space_id": r[1], "route": r[2], "grp": r[3], "metered": r[4]}
            for r in found
            if r[0] == pool
        )
        await tx.run("drop_heads", pool=pool, rows=heads)
    await tx.rows("take_pings", most=10_000, worker="")

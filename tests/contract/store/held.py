"""Attempts as callers: what they ask for is done while they go on."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import Fenced
from rota.model.audit import AttemptIdentity, NewAuditEntry
from rota.model.runs import Lease
from rota.model.tasks import Retry
from rota.store.audit import find_attempt_identity, list_audit_entries
from rota.store.plans import promote_delayed
from rota.store.settlement import enqueue
from rota.store.store import HookedStore, RequestAudit
from rota.store.tasks import get_state, list_state, put_state
from rota.store.views import count_runs
from tests.tools.store_bench import Bench, failed

FAR = 2**62


class HeldContract:
    """What is asked on behalf of an attempt is done while it goes on, and never after."""

    async def _running(self, bench: Bench, **policy: Any) -> Lease:
        task = await bench.task(**policy)
        await bench.store.write(enqueue, [bench.batch(task, [1])])
        await bench.worker("w1", timedelta(days=1))
        return await bench.claim_one()

    def _behalf(self, bench: Bench, lease: Lease, epoch: int, **more: Any) -> HookedStore:
        request = NewAuditEntry(
            caller=f"attempt:{lease.run_id}.{epoch}",
            space="main",
            command="put_state",
            held=(lease.run_id, epoch),
            **more,
        )
        return HookedStore(bench.store, RequestAudit(bench.store, request))

    async def test_an_attempt_that_goes_on_is_known(self, bench: Bench) -> None:
        lease = await self._running(bench)
        held = await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch)
        assert held == AttemptIdentity(
            run_id=lease.run_id,
            epoch=lease.epoch,
            task_id=lease.task_id,
            task="job",
            thread=None,
            space="main",
        )
        assert await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch + 1) is None
        assert await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch - 1) is None
        await bench.end(lease)
        assert await bench.store.read(find_attempt_identity, lease.run_id, lease.epoch) is None

    @pytest.mark.parametrize("key", [None, "k"])
    async def test_a_stale_epoch_changes_nothing(self, bench: Bench, key: str | None) -> None:
        lease = await self._running(bench, retry=Retry(attempts=2))
        early = self._behalf(bench, lease, lease.epoch, key=key, digest=key)
        await early.write(put_state, lease.task_id, "a", "1", "ann")
        await bench.end(lease, failed())
        bench.clock.advance(hours=1)
        await bench.store.write(promote_delayed, 10)
        again = await bench.claim_one()
        assert (again.run_id, again.epoch) == (lease.run_id, lease.epoch + 1)
        late = self._behalf(bench, lease, lease.epoch, key=key and "l", digest=key)
        with pytest.raises(Fenced):
            await late.write(put_state, lease.task_id, "a", "2", "ann")
        with pytest.raises(Fenced):
            await late.write(enqueue, [bench.batch(await bench.task(), [2])])
        kept = await bench.store.read(get_state, lease.task_id, "a")
        assert kept is not None
        assert kept.value == "1"
        assert len(await bench.store.read(list_audit_entries, None, FAR, 10)) == 1
        assert await bench.store.read(count_runs, lease.task_id) == {"running": 1}

    async def test_the_second_change_of_a_request_is_fenced_too(self, bench: Bench) -> None:
        lease = await self._running(bench)
        store = self._behalf(bench, lease, lease.epoch)
        await store.write(put_state, lease.task_id, "a", "1", "ann")
        await store.write(put_state, lease.task_id, "b", "1", "ann")
        await bench.end(lease)
        with pytest.raises(Fenced):
            await store.write(put_state, lease.task_id, "c", "1", "ann")
        found = await bench.store.read(list_state, lease.task_id, "", 9)
        assert [value.key for value in found] == ["a", "b"]

    async def test_an_end_and_a_change_never_pass_each_other(self, bench: Bench) -> None:
        lease = await self._running(bench)
        store = self._behalf(bench, lease, lease.epoch)

        async def change() -> bool:
            try:
                await store.write(put_state, lease.task_id, "a", "1", "ann")
            except Fenced:
                return False
            return True

        changed, _ = await asyncio.gather(change(), bench.end(lease))
        assert (await bench.store.read(get_state, lease.task_id, "a") is not None) == changed
        assert len(await bench.store.read(list_audit_entries, None, FAR, 10)) == int(changed)

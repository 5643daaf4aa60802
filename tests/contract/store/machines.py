"""Readings: one for each home and heartbeat, kept for a week; and who was last heard when."""

from __future__ import annotations

from datetime import timedelta

from rota.model.attempts import KeptAttempt
from rota.model.heartbeats import KEEP_READINGS, MachineLoad, MachineSample
from rota.model.ids import Epoch
from rota.store.attempts import record_launch
from rota.store.heartbeats import (
    list_attempt_heartbeats,
    list_machine_samples,
    newest_machine_samples,
    record_heartbeats,
    record_machine_sample,
)
from tests.contract.store.beating import PATIENCE, sign_of
from tests.tools.store_bench import Bench

MINUTE = timedelta(minutes=1)
BUSY = MachineLoad(cpu_percent=62.5, memory_bytes=3 << 30, memory_total=8 << 30)


class MachineContract:
    """What holds for readings of machines."""

    async def _read(self, bench: Bench, home: str = "h1", host: str = "here") -> None:
        await bench.store.write(record_machine_sample, "w1", home, host, BUSY)

    async def _history(
        self, bench: Bench, host: str | None = None, most: int = 10
    ) -> list[MachineSample]:
        now = bench.store.now()
        return await bench.store.read(list_machine_samples, 0, now + 1, host, most)

    async def test_a_reading_counts_what_the_worker_runs(self, bench: Bench) -> None:
        await bench.worker("w1")
        await bench.worker("w2")
        mine = await bench.task("mine", route="agent")
        theirs = await bench.task("theirs", space="member")
        await bench.queue(mine)
        lease = await bench.claim_one("w1")
        kept = KeptAttempt(
            run_id=lease.run_id, epoch=Epoch(lease.epoch), home="h1", nonce="n", boot="b",
            executor="tmux",
        )  # fmt: skip
        assert await bench.store.write(record_launch, kept, "w1")
        await bench.queue(theirs)
        await bench.claim_one("w2")
        await self._read(bench)
        (reading,) = await self._history(bench)
        assert reading == MachineSample(
            home="h1", host="here", at=bench.clock.now(),
            running=1, agents=1, panes=1, spaces=1, load=BUSY,
        )  # fmt: skip

    async def test_nothing_known_is_unknown_and_nothing_running_is_none(self, bench: Bench) -> None:
        await bench.store.write(record_machine_sample, "nobody", "h1", "here", MachineLoad())
        (reading,) = await self._history(bench)
        assert reading.load == MachineLoad(None, None, None)
        assert (reading.running, reading.agents, reading.panes, reading.spaces) == (0, 0, 0, 0)

    async def test_two_at_one_instant_are_one(self, bench: Bench) -> None:
        await self._read(bench)
        await self._read(bench)
        assert len(await self._history(bench)) == 1

    async def test_the_newest_come_first_and_of_one_machine_alone(self, bench: Bench) -> None:
        for host in ("one", "two", "one"):
            await self._read(bench, home=f"{host}:home", host=host)
            bench.clock.advance(MINUTE)
        assert [r.host for r in await self._history(bench)] == ["one", "two", "one"]
        assert [r.host for r in await self._history(bench, most=1)] == ["one"]
        assert [r.host for r in await self._history(bench, host="two")] == ["two"]
        newest = await bench.store.read(newest_machine_samples, 0)
        assert [(r.host, bench.clock.now() - r.at) for r in newest] == [
            ("one", MINUTE),
            ("two", 2 * MINUTE),
        ]
        assert await bench.store.read(newest_machine_samples, bench.store.now()) == []

    async def test_old_readings_go_with_the_next(self, bench: Bench) -> None:
        await self._read(bench)
        bench.clock.advance(KEEP_READINGS + MINUTE)
        await self._read(bench)
        assert [r.at for r in await self._history(bench)] == [bench.clock.now()]

    async def test_running_attempts_are_told_longest_unheard_first(self, bench: Bench) -> None:
        await bench.worker("w1", timedelta(hours=1))
        await bench.queue(await bench.task("early"))
        early = await bench.claim_one()
        await bench.queue(await bench.task("late", space="member"))
        late = await bench.claim_one()
        await bench.queue(await bench.task("unheard"))
        await bench.claim_one()
        for lease in (late, early):
            await bench.store.write(
                record_heartbeats, "w1", [sign_of(lease)], bench.store.now() + PATIENCE
            )
            bench.clock.advance(MINUTE)
        found = await bench.store.read(list_attempt_heartbeats, None, 10)
        assert [(heard.task, heard.space, heard.executor) for heard in found] == [
            ("late", "member", ""),
            ("early", "main", ""),
        ]
        assert found[1].heartbeat.sign == sign_of(early)
        assert len(await bench.store.read(list_attempt_heartbeats, None, 1)) == 1
        space = await bench.space("member")
        assert [
            heard.task for heard in await bench.store.read(list_attempt_heartbeats, space.id, 10)
        ] == ["late"]
        await bench.end(late)
        assert await bench.store.read(list_attempt_heartbeats, space.id, 10) == []

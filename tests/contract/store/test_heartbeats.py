"""Heartbeats: one row for each attempt, and samples of machines."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota.model.attempts import KeptAttempt, Lost
from rota.model.heartbeats import (
    KEEP_READINGS,
    AttemptSample,
    MachineLoad,
    MachineSample,
    MissedHeartbeat,
)
from rota.model.ids import Epoch, RunId
from rota.model.runs import Lease
from rota.store.attempts import record_launch, renew_home_lease
from rota.store.heartbeats import (
    get_heartbeats,
    list_attempt_heartbeats,
    list_machine_samples,
    list_missed_heartbeats,
    newest_machine_samples,
    record_heartbeats,
    record_machine_sample,
    record_missed_heartbeats,
)
from rota.store.views import list_run_events
from rota.store.workers import fence_workers
from tests.contract.store.test_attempts import HOME, LONG, SHORT, kept_for
from tests.tools.store_bench import Bench, micros

# heartbeats of attempts

MINUTE = timedelta(minutes=1)
PATIENCE = micros(2.5 * MINUTE)


def sign_of(lease: Lease, **facts: Any) -> AttemptSample:
    """Return a sign of an attempt."""
    return AttemptSample(run_id=lease.run_id, epoch=lease.epoch, **facts)


class TestHeartbeats:
    """What holds for heartbeats."""

    async def _running(self, bench: Bench) -> Lease:
        await bench.worker("w1", SHORT)
        await bench.queue(await bench.task())
        return await bench.claim_one()

    async def _beat(self, bench: Bench, *signs: AttemptSample, worker: str = "w1") -> None:
        await bench.store.write(record_heartbeats, worker, signs, bench.store.now() + PATIENCE)

    async def _overdue(self, bench: Bench) -> list[MissedHeartbeat]:
        return await bench.store.read(list_missed_heartbeats, PATIENCE, 10)

    async def test_the_newest_sign_stands_and_is_no_event(self, bench: Bench) -> None:
        lease = await self._running(bench)
        assert await bench.store.read(get_heartbeats, [lease.run_id]) == {}
        await self._beat(bench, sign_of(lease, state="starting"))
        bench.clock.advance(MINUTE)
        newest = sign_of(
            lease, pid=7, cpu_seconds=1.5, memory_bytes=4096, processes=2,
            output_at=bench.clock.now(), last_line="half way", pane="$ work",
        )  # fmt: skip
        await self._beat(bench, newest)
        heard = (await bench.store.read(get_heartbeats, [lease.run_id]))[lease.run_id]
        assert (heard.sign, heard.at, heard.silence) == (newest, bench.clock.now(), None)
        assert await bench.events(lease.run_id) == []

    async def test_nobody_tells_of_a_run_that_is_not_theirs(self, bench: Bench) -> None:
        lease = await self._running(bench)
        await self._beat(bench, sign_of(lease), worker="w2")
        older = AttemptSample(run_id=lease.run_id, epoch=Epoch(lease.epoch - 1))
        stranger = AttemptSample(run_id=RunId(lease.run_id + 1_000), epoch=Epoch(1))
        await self._beat(bench, older, stranger)
        assert await bench.store.read(get_heartbeats, [lease.run_id, stranger.run_id]) == {}
        await bench.end(lease)
        await self._beat(bench, sign_of(lease))
        assert await bench.store.read(get_heartbeats, [lease.run_id]) == {}

    async def test_a_later_attempt_has_not_been_heard_of(self, bench: Bench) -> None:
        lease = await self._running(bench)
        await self._beat(bench, sign_of(lease))
        await bench.end(lease, Lost(reason="gone"))
        again = await bench.claim_one()
        assert await bench.store.read(get_heartbeats, [lease.run_id]) == {}
        await self._beat(bench, sign_of(again))
        heard = await bench.store.read(get_heartbeats, [lease.run_id])
        assert heard[lease.run_id].sign.epoch == again.epoch

    async def test_two_missed_beats_are_found_and_noted_once(self, bench: Bench) -> None:
        lease = await self._running(bench)
        await self._beat(bench, sign_of(lease, last_line="half way"))
        bench.clock.advance(2 * MINUTE)
        assert await self._overdue(bench) == []
        bench.clock.advance(MINUTE)
        (found,) = await self._overdue(bench)
        assert (found.run_id, found.epoch, found.trusted, found.kept) == (*lease[:2], True, False)
        assert await bench.store.write(record_missed_heartbeats, {found: "why"}) == 1
        assert await bench.store.write(record_missed_heartbeats, {found: "why"}) == 0
        assert await self._overdue(bench) == []
        heard = (await bench.store.read(get_heartbeats, [lease.run_id]))[lease.run_id]
        assert (heard.silence, heard.sign.last_line) == ("why", "half way")
        (event,) = await bench.store.read(list_run_events, lease.run_id)
        assert (event.name.value, event.data) == ("run.silent", {"reason": "why"})
        await self._beat(bench, sign_of(lease))
        heard = (await bench.store.read(get_heartbeats, [lease.run_id]))[lease.run_id]
        assert heard.silence is None

    async def test_one_that_was_never_heard_of_is_found_too(self, bench: Bench) -> None:
        lease = await self._running(bench)
        bench.clock.advance(3 * MINUTE)
        (found,) = await self._overdue(bench)
        assert await bench.store.write(record_missed_heartbeats, {found: "why"}) == 1
        heard = (await bench.store.read(get_heartbeats, [lease.run_id]))[lease.run_id]
        assert heard.silence == "why"

    async def test_what_is_heard_before_a_silence_is_noted_ends_it(self, bench: Bench) -> None:
        lease = await self._running(bench)
        await self._beat(bench, sign_of(lease))
        bench.clock.advance(3 * MINUTE)
        (found,) = await self._overdue(bench)
        await self._beat(bench, sign_of(lease))
        assert await bench.store.write(record_missed_heartbeats, {found: "why"}) == 0
        assert await bench.events(lease.run_id) == []

    async def test_a_silence_tells_whether_worker_and_keeper_may_live(self, bench: Bench) -> None:
        lease = await self._running(bench)
        await bench.store.write(renew_home_lease, HOME, "here", bench.store.now() + micros(LONG))
        assert await bench.store.write(record_launch, kept_for(lease), "w1")
        bench.clock.advance(3 * MINUTE)
        await bench.store.write(fence_workers)
        (found,) = await self._overdue(bench)
        assert (found.trusted, found.kept) == (False, True)

    async def test_a_run_that_ended_is_never_overdue(self, bench: Bench) -> None:
        lease = await self._running(bench)
        await self._beat(bench, sign_of(lease))
        await bench.end(lease)
        bench.clock.advance(timedelta(days=1))
        assert await self._overdue(bench) == []


# samples of machines

BUSY = MachineLoad(cpu_percent=62.5, memory_bytes=3 << 30, memory_total=8 << 30)


class TestMachines:
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

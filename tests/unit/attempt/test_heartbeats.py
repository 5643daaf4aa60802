"""Heartbeats of attempts, and keepers that give none."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from rota.errors import Unavailable
from rota.flow.attempt import programs
from rota.flow.attempt.output import OutputParser
from rota.flow.attempt.programs import FollowedAttempt, KeeperWatchdog
from rota.model.attempts import KeptAttempt, OutputStream, Succeeded
from rota.model.heartbeats import AttemptSample
from rota.model.ids import Epoch, RunId
from tests.unit.attempt.keeper_home_fake import Counting, ManyYard, assignment, work_on
from tests.unit.attempt.test_checks import Eyes
from tests.unit.attempt.test_relaunch import DONE, OVERLOAD, House, Trial, agent_run, said

KEPT = KeptAttempt(
    run_id=RunId(1), epoch=Epoch(1), home="h", nonce="n", boot="b", executor="process"
)


class Mute:
    """A reader that says nothing."""

    def feed(self, line, *, cut=False):
        return ()


class SilentYard:
    """A keeper that says something only when a test lets it."""

    def __init__(self):
        self.beat = 1
        self.pid = 7
        self.pane = None
        self.roused = []

    async def take_sample(self, kept):
        return AttemptSample(
            run_id=kept.run_id, epoch=kept.epoch, pid=self.pid, heartbeat=self.beat, pane=self.pane
        )

    def wake(self, kept, *, for_good):
        self.roused.append(for_good)
        return True


@pytest.fixture
def yard():
    return SilentYard()


@pytest.fixture
def followed():
    return {1: FollowedAttempt(KEPT, OutputParser(Mute()))}


def many(count):
    kept = (replace(KEPT, run_id=RunId(n), nonce=str(n)) for n in range(count))
    return {each.run_id: FollowedAttempt(each, OutputParser(Mute())) for each in kept}


async def looks(watch, followed, count):
    return [(await watch.look(followed))[0].state for _ in range(count)]


async def test_a_keeper_that_misses_two_beats_is_woken_and_then_ended(yard, followed):
    watch = KeeperWatchdog(yard, least=0.0)
    assert await looks(watch, followed, 3) == ["running", "silent", "silent"]
    assert yard.roused == [False, True]
    assert watch.ended == {1: programs.SILENT}


async def test_a_keeper_that_speaks_again_is_left_alone(yard, followed):
    watch = KeeperWatchdog(yard, least=0.0)
    for _ in range(10):
        assert await looks(watch, followed, 2) == ["running", "silent"]
        yard.beat += 1
    assert True not in yard.roused
    assert watch.ended == {}


async def test_looks_that_are_too_close_do_not_count(yard, followed):
    watch = KeeperWatchdog(yard, least=3600.0)
    assert set(await looks(watch, followed, 20)) == {"running"}
    assert yard.roused == []


async def test_one_that_has_not_introduced_itself_has_missed_nothing(yard, followed):
    yard.pid = None
    watch = KeeperWatchdog(yard, least=0.0)
    assert set(await looks(watch, followed, 5)) == {"running"}
    assert yard.roused == []


async def test_a_sign_has_the_last_line_and_the_pane_made_safe(yard, followed):
    yard.pane = "\x1b]0;title\x07$ \x1b[31mwork\x1b[0m"
    followed[1].hearing.take(
        OutputStream.ERR, b"first\n\x1b[32msecond\x1b[0m " + b"x" * 1_000 + b"\n"
    )
    (sign,) = await KeeperWatchdog(yard).look(followed)
    assert sign.pane == "$ work"
    assert sign.last_line.startswith("second xxx")
    assert len(sign.last_line) == 300


async def test_what_is_not_followed_any_more_is_forgotten(yard, followed):
    watch = KeeperWatchdog(yard, least=0.0)
    await looks(watch, followed, 2)
    assert await watch.look({}) == []
    assert await looks(watch, followed, 1) == ["running"]


async def test_looking_at_many_does_not_wait_for_each():
    gate = asyncio.Event()

    class Slow(SilentYard):
        waiting = 0

        async def take_sample(self, kept):
            self.waiting += 1
            if self.waiting == 100:
                gate.set()
            await gate.wait()
            return await super().take_sample(kept)

    async with asyncio.timeout(5):
        assert len(await KeeperWatchdog(Slow()).look(many(100))) == 100


async def test_looks_at_many_do_not_fall_on_one_moment():
    starts = []

    class Timed(SilentYard):
        async def take_sample(self, kept):
            starts.append(asyncio.get_running_loop().time())
            return await super().take_sample(kept)

    await KeeperWatchdog(Timed()).look(many(5))
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert min(gaps) >= programs.PAUSE_SECONDS / 2


class PartlyBlind(SilentYard):
    """One attempt of many cannot be looked at."""

    def __init__(self, blind):
        super().__init__()
        self.blind = blind
        self.begun = []

    async def take_sample(self, kept):
        self.begun.append(kept.run_id)
        if kept.run_id == 1:
            await self.blind()
        return await super().take_sample(kept)


async def fail():
    raise Unavailable("the folder does not answer")


async def test_what_fails_at_one_look_leaves_out_that_one_alone(caplog):
    watch = KeeperWatchdog(PartlyBlind(fail), least=0.0)
    assert [sign.run_id for sign in await watch.look(many(3))] == [0, 2]
    assert [sign.state for sign in await watch.look(many(3))] == ["silent", "silent"]
    told = [record for record in caplog.records if record.message == "attempt.sample_failed"]
    assert [(record.run_id, record.error) for record in told] == [
        (1, "Unavailable: the folder does not answer")
    ] * 2


async def test_a_look_that_hangs_holds_up_nobody_and_is_not_begun_again():
    hangs = asyncio.Event()
    yard = PartlyBlind(hangs.wait)
    watch = KeeperWatchdog(yard, least=0.0, patience=0.05)
    async with asyncio.timeout(5):
        assert [sign.run_id for sign in await watch.look(many(3))] == [0, 2]
        assert [sign.run_id for sign in await watch.look(many(3))] == [0, 2]
        assert yard.begun == [0, 1, 2, 0, 2]
        hangs.set()
        await asyncio.sleep(0)
        assert [sign.run_id for sign in await watch.look(many(3))] == [0, 1, 2]


async def test_what_a_look_saw_that_came_too_late_counts_for_nothing():
    hangs = asyncio.Event()
    yard = PartlyBlind(hangs.wait)
    watch = KeeperWatchdog(yard, least=0.0, patience=0.05)
    hangs.set()
    await watch.look(many(2))
    hangs.clear()
    await watch.look(many(2))
    hangs.set()
    await asyncio.sleep(0)
    yard.beat += 1
    assert [sign.state for sign in await watch.look(many(2))] == ["running", "running"]


async def test_one_that_could_not_be_looked_at_has_still_missed_what_it_missed():
    answers = [None, None, OSError("too many open files"), None]

    async def now_and_then():
        if (fault := answers.pop(0)) is not None:
            raise fault

    watch = KeeperWatchdog(PartlyBlind(now_and_then), least=0.0)
    for _ in answers[:]:
        await watch.look(many(2))
    assert watch.ended[1] == programs.SILENT


# between two launches


async def test_an_attempt_that_waits_between_two_tries_is_told_of(desk):
    seen = []

    class Looking(House):
        async def sleep(self, seconds):
            seen.extend(await self.work.take_samples())
            await super().sleep(seconds)

    given = await agent_run(desk)
    house = Looking(desk, Trial(said(OVERLOAD, code=1), said(DONE)))
    assert await house.run(given) == Succeeded(result='"done"')
    ((run_id, epoch, state, alive),) = [(s.run_id, s.epoch, s.state, s.alive) for s in seen]
    assert (run_id, epoch) == (given.lease.run_id, given.lease.epoch)
    assert (state, alive) == ("resting", True)


async def test_an_attempt_whose_checks_take_long_is_told_of(desk):
    eyes = Eyes(page=None)
    given = await assignment(desk, checks=[{"url": "http://example.org/"}])
    work = work_on(desk.store, ManyYard({"out": b"done\n"}), Counting(), probes=eyes)
    running = asyncio.ensure_future(work.run(given))
    await eyes.waiting.wait()
    assert [(sign.run_id, sign.state) for sign in await work.take_samples()] == [
        (given.lease.run_id, "concluding")
    ]
    running.cancel()
    await asyncio.wait([running])
    assert await work.take_samples() == []

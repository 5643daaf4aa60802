"""An attempt from start to report: recorded once, stopped, handed over and carried on."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
from datetime import timedelta

import pytest

from rota.agents.command.reader import CommandReader
from rota.errors import Fenced, Unavailable
from rota.flow.attempt import output as hearing_module
from rota.flow.attempt.output import END, OutputParser
from rota.flow.attempt.prepare import USUAL
from rota.flow.attempt.programs import PART, OutputFollower, ProgramControl
from rota.model.agents import OutputFormat, ProcessExit
from rota.model.attempts import (
    Cancelled,
    ExitReason,
    Failed,
    KeptAttempt,
    Lost,
    Released,
    Succeeded,
)
from rota.model.programs import ResourceLimits
from rota.model.tasks import Policy, TaskKind
from rota.model.text import MORE
from rota.runtime.worker import AttemptStop, Worker
from rota.store.attempts import list_kept_attempts, record_launch, record_output, renew_home_lease
from rota.store.tasks import find_space
from rota.store.views import list_run_output
from tests.tools.interception import intercept
from tests.unit.attempt.keeper_home_fake import (
    Counting,
    FakeYard,
    ManyYard,
    a_few_turns,
    assignment,
    leave,
    texts,
    work_on,
)

# recorded once


@pytest.fixture
def yard():
    return FakeYard()


async def test_a_program_is_told_of_its_run_and_its_last_line_is_the_result(desk, chance, yard):
    given = await assignment(desk)
    yard.end(b"one\ntwo\n")
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome == Succeeded(result='"two"')
    assert await texts(desk, given.lease.run_id) == ["one", "two"]
    (command,) = yard.started
    assert (command.argv, command.cwd, command.stdin) == (("count",), "/work", b"null")
    assert command.env["ROTA_RUN_ID"] == str(given.lease.run_id)
    assert command.env["ROTA_TRACE_ID"] == given.trace_id


async def test_what_a_failing_program_said_last_is_told(desk, chance, yard):
    given = await assignment(desk)
    yard.err = b"x" * 10_000 + b"\nno such week\n"
    yard.end(code=1)
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert outcome.message.endswith("no such week")


async def test_how_long_nobody_was_there_is_reported_with_the_end(desk, chance, yard):
    given = await assignment(desk)
    yard.end(b"one\n", ago=62.5)
    report = await work_on(desk.store, yard, chance).run(given)
    assert (report.outcome, report.away) == (Succeeded(result='"one"'), 62_500_000)


async def test_what_was_seen_alive_has_ended_since_then(desk, chance, yard):
    given, work = await assignment(desk), work_on(desk.store, yard, chance)
    yard.boot_time = itertools.chain([100.0], itertools.repeat(103.0)).__next__
    running = asyncio.ensure_future(work.run(given))
    while not yard.looks:
        await asyncio.sleep(0)
    yard.end(b"one\n", ago=62.5)
    assert (await running).away == 3_000_000


@pytest.mark.parametrize(
    ("left", "result"),
    [
        (b'{"paid": 3}', '{"paid": 3}'),
        (b"  three paid \n", '"three paid"'),
        (b'"three"', '"three"'),
        (b"\xff\x1b[31m", '"\N{REPLACEMENT CHARACTER}"'),
        (b"NaN", '"NaN"'),
        (b"[" * 100_000, None),
        (b"\n", '"two"'),
        (b"", '"two"'),
        (None, '"two"'),
    ],
)
async def test_what_a_script_left_in_its_result_file_is_its_result(
    desk, chance, yard, left, result
):
    given = await assignment(desk)
    yard.left = left
    yard.end(b"one\ntwo\n")
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert isinstance(outcome, Succeeded)
    assert outcome.result == result or result is None


@pytest.mark.parametrize("facts", [{"code": 1}, {"reason": ExitReason.CANCELLED, "code": None}])
async def test_a_result_file_makes_no_success(desk, chance, yard, facts):
    given = await assignment(desk)
    yard.left = b"well"
    yard.end(b"", **facts)
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert not isinstance(outcome, Succeeded)


async def test_a_result_file_that_is_too_long_is_a_failure(desk, chance, yard):
    given = await assignment(desk)
    yard.left = b"x" * (256 * 1024 + 1)
    yard.end(b"well\n")
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert outcome.code == "bad_result"


def wavering(store, after):
    """Let a store lose the first answer of each operation that an attempt needs."""

    def once(failed=False):
        async def waver(proceed, *args):
            nonlocal failed
            if failed:
                return await proceed(*args)
            failed = True
            if after:
                await proceed(*args)
            raise Unavailable("the connection was lost")

        return waver

    for operation in (record_launch, record_output, list_kept_attempts):
        intercept(store, operation, once())
    return store


@pytest.mark.parametrize("after", [False, True])
async def test_what_is_said_while_the_store_wavers_is_recorded_once(desk, chance, yard, after):
    given = await assignment(desk)
    yard.end(b"".join(b"line %d\n" % n for n in range(50)))
    report = await work_on(wavering(desk.store, after), yard, chance).run(given)
    assert report.outcome == Succeeded(result='"line 49"')
    assert await texts(desk, given.lease.run_id) == [f"line {n}" for n in range(50)]
    assert len(yard.started) == 1


async def test_who_does_not_hold_the_run_reports_nothing(desk, chance, yard):
    given = await assignment(desk)
    yard.end(b"one\n")
    with pytest.raises(Fenced):
        await work_on(desk.store, yard, chance, "w2").run(given)
    assert yard.started == []
    assert yard.cancelled == []


async def test_what_was_heard_by_another_process_is_not_heard_again(desk, chance, yard):
    given = await assignment(desk)
    yard.out = b"one\ntwo\n"
    first = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    async with asyncio.timeout(5):
        while await texts(desk, given.lease.run_id) != ["one", "two"]:
            await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    yard.ending = None
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    yard.end(b"three\n")
    report = await work_on(desk.store, yard, chance).run(given._replace(kept=kept))
    assert report.outcome == Succeeded(result='"three"')
    assert await texts(desk, given.lease.run_id) == ["one", "two", "three"]
    assert len(yard.started) == 1


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"code": 3}, "exit"),
        ({"reason": ExitReason.SIGNALED, "code": None, "signal": 11}, None),
        ({"reason": ExitReason.HARD_TIMEOUT, "code": None, "killed": True}, "timeout"),
        ({"reason": ExitReason.EXEC_FAILED, "detail": "No such file"}, "script_unavailable"),
        ({"reason": ExitReason.TOO_MANY_PROCESSES, "detail": "101"}, "too_many_processes"),
    ],
)
async def test_no_end_but_a_good_one_is_a_success(desk, chance, yard, facts, wanted):
    given = await assignment(desk)
    yard.end(b"well\n", **facts)
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert isinstance(outcome, Failed)
    if wanted not in {None, "exit"}:
        assert outcome.code == wanted


@pytest.mark.parametrize(
    "reason", [ExitReason.LOST_KEEPER_DIED, ExitReason.LOST_REBOOT, ExitReason.LEASE_EXPIRED]
)
async def test_an_end_that_tells_nothing_of_the_work_is_a_loss(desk, chance, yard, reason):
    given = await assignment(desk)
    yard.end(b"half\n", reason=reason, code=None)
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert isinstance(outcome, Lost)


async def test_an_agent_that_nobody_knows_is_refused(desk, chance, yard):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="Look.", agent="oracle")
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert (outcome.code, outcome.retryable) == ("agent_unavailable", False)
    assert yard.started == []


async def test_the_agent_command_is_told_its_instructions(desk, chance, yard):
    given = await assignment(
        desk, ("think", "-v"), kind=TaskKind.AGENT, instructions="Look.", agent="command"
    )
    yard.end(json.dumps({"rota": "result", "text": "seen"}).encode() + b"\n")
    outcome = (await work_on(desk.store, yard, chance).run(given)).outcome
    assert outcome == Succeeded(result='"seen"')
    assert yard.started[0].stdin == b"Look."


SECOND = timedelta(seconds=1)
IDLE = "it wrote nothing for 5 s (idle timeout)"


@pytest.mark.parametrize(
    ("policy", "usual", "wanted"),
    [
        (Policy(), USUAL, (1800.0, None, 10.0)),
        (
            Policy(),
            ResourceLimits(hard_seconds=60.0, idle_seconds=5.0, grace_seconds=2.0),
            (60.0, 5.0, 2.0),
        ),
        (Policy(timeout=SECOND, idle_timeout=2 * SECOND, grace=3 * SECOND), USUAL, (1.0, 2.0, 3.0)),
        (Policy(idle_timeout=3600 * SECOND), USUAL, (3630.0, 3600.0, 10.0)),
        (Policy(idle_timeout=5 * SECOND), USUAL, (1800.0, 5.0, 10.0)),
    ],
)
async def test_a_task_says_its_timeouts_and_the_settings_say_the_rest(
    desk, chance, yard, policy, usual, wanted
):
    given = await assignment(desk, policy=policy)
    yard.end(b"done\n")
    work = work_on(desk.store, yard, chance, usual=usual)
    await work.run(given)
    bounds = yard.bounds
    assert (bounds.hard_seconds, bounds.idle_seconds, bounds.grace_seconds) == wanted


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        (
            {"reason": ExitReason.HARD_TIMEOUT, "killed": True},
            "it took longer than its timeout of 60 s, and was killed",
        ),
        (
            {"reason": ExitReason.IDLE_TIMEOUT},
            f"{IDLE}, and ended after SIGTERM",
        ),
        (
            {"reason": ExitReason.IDLE_TIMEOUT, "killed": True, "proven": False},
            f"{IDLE}, and was killed; whether all its processes have ended could not be proven",
        ),
    ],
)
async def test_the_record_says_which_timeout_ended_it_and_how(desk, chance, yard, facts, sentence):
    policy = Policy(timeout=60 * SECOND, idle_timeout=5 * SECOND)
    given = await assignment(desk, policy=policy)
    yard.end(b"half\n", code=None, **facts)
    report = await work_on(desk.store, yard, chance).run(given)
    assert report.outcome.message == sentence
    told = json.loads(report.exit)
    assert told["reason"] == facts["reason"].value
    assert told["killed"] is facts.get("killed", False)
    assert told["proven"] is facts.get("proven", True)


async def test_who_carries_on_reads_a_line_that_lies_across_two_parts_as_one(desk):
    yard, line = FakeYard(), b'{"rota": "result", "text": "whole"}\n'
    yard.out = b"x" * (PART - 10) + b"\n" + line + b"y\n"
    kept = KeptAttempt(run_id=1, epoch=1, home="h", nonce="n", boot="b", executor="process",
                out_offset=len(yard.out))  # fmt: skip
    hearing = OutputParser(CommandReader(OutputFormat.TEXT))
    await OutputFollower(desk.store, yard, ProgramControl(yard), None)._caught_up(
        kept, "w1", hearing
    )
    assert hearing.reader.end(ProcessExit(code=0)).outcome == Succeeded(result='"whole"')


async def test_who_carries_on_with_much_lets_others_have_their_turns(desk):
    yard, turns, at_reads = FakeYard(), itertools.count(), []
    yard.out = b"x" * 999 + b"\n"
    yard.out *= 3 * PART // len(yard.out)
    read = yard.read_output
    yard.read_output = lambda *asked: (at_reads.append(next(turns)), read(*asked))[1]

    async def others():
        while True:
            next(turns)
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    await asyncio.sleep(0)
    kept = KeptAttempt(run_id=1, epoch=1, home="h", nonce="n", boot="b", executor="process",
                out_offset=len(yard.out))  # fmt: skip
    await OutputFollower(desk.store, yard, ProgramControl(yard), None)._caught_up(
        kept, "w1", OutputParser(CommandReader(OutputFormat.TEXT))
    )
    beside.cancel()
    assert len(at_reads) >= 3
    assert all(later > earlier + 1 for earlier, later in itertools.pairwise(at_reads))


async def test_who_carries_on_counts_the_output_that_is_on_record(desk, chance, yard, monkeypatch):
    """How it was cut into events is not in the bytes: line by line here, all at once there."""
    monkeypatch.setattr(hearing_module, "MOST_EVENTS", 20)
    read = yard.read_output

    def slowly(kept, stream, offset, most):
        found = read(kept, stream, offset, most)
        return found[: found.find(b"\n") + 1] if most == PART else found

    yard.read_output = slowly
    given = await assignment(desk)
    for _ in range(3):
        yard.end(b"a line\n" * 15)
        await work_on(desk.store, yard, chance).run(given)
        (kept,) = await desk.store.read(list_kept_attempts, yard.home)
        given = given._replace(kept=kept)
    assert kept.out_offset == len(yard.out)
    events = await desk.store.read(list_run_output, given.lease.run_id, 1_000)
    as_it_came = [event.data["text"] for event in events if END not in event.data]
    assert as_it_came == ["a line"] * 19 + [MORE]
    assert [event.data["text"].count("a line") for event in events if END in event.data] == [11]


# stopped, let go, cut off or carried on


async def test_a_cancelled_one_is_stopped_and_waited_for(desk, chance, yard):
    given = await assignment(desk)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    async with asyncio.timeout(5):
        while not yard.started:
            await asyncio.sleep(0)
    running.cancel()
    report = await running
    assert isinstance(report.outcome, Cancelled)
    assert json.loads(report.exit)["reason"] == "cancelled"
    assert yard.cancelled == ["cancelled"]


async def begun(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("left", [False, True])
async def test_nobody_leaves_while_a_program_is_being_started(desk, chance, yard, left):
    given = await assignment(desk)
    yard.starting.clear()
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    async with asyncio.timeout(5):
        while not await desk.store.read(list_kept_attempts, yard.home):
            await asyncio.sleep(0)
    await begun(lambda: work._going)
    await a_few_turns()
    if left:
        work.detach(given.lease.run_id)
    running.cancel()
    await a_few_turns()
    assert not running.done()
    yard.starting.set()
    await asyncio.wait([running])
    assert running.cancelled() == left
    assert len(yard.started) == 1
    assert yard.cancelled == ([] if left else ["cancelled"])


@pytest.mark.parametrize(
    ("why", "told"),
    [(AttemptStop.DRAIN, []), (AttemptStop.FENCED, []), (AttemptStop.CANCEL, ["cancelled"])],
)
async def test_what_is_stopped_before_its_first_step_ends_only_if_it_was_cancelled(
    desk, chance, yard, why, told
):
    given = await assignment(desk)
    first = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(first.run(given))
    await begun(lambda: yard.started)
    await leave(first, given, running)
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    work = work_on(desk.store, yard, chance)
    await work.open()
    worker = Worker(desk.store, [work], "w1", desk.clock, chance, slots=5)
    worker.adopt(given._replace(kept=kept))
    worker.stop_run(given.lease.run_id, why)
    await begun(lambda: not worker._attempts)
    assert yard.cancelled == told


async def test_an_answer_in_the_way_of_letting_go_holds_nobody_up(desk, chance, yard):
    given = await assignment(desk)
    asked = asyncio.Event()

    async def answers_all_the_same(*_):
        asked.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return False

    intercept(desk.store, record_launch, answers_all_the_same)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await asked.wait()
    work.detach(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await running
    assert yard.started == []


async def test_who_is_stopped_while_it_records_has_an_end(desk, chance, yard):
    given = await assignment(desk)
    yard.out = b"one\n"
    recording, go = asyncio.Event(), asyncio.Event()

    async def slow(proceed, *args):
        recording.set()
        await go.wait()
        return await proceed(*args)

    intercept(desk.store, record_output, slow)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await recording.wait()
    running.cancel()
    await asyncio.sleep(0)
    go.set()
    async with asyncio.timeout(5):
        assert isinstance((await running).outcome, Cancelled)
    assert await texts(desk, given.lease.run_id) == ["one"]


async def test_what_was_recorded_after_the_last_look_is_not_recorded_again(desk, chance, yard):
    given = await assignment(desk)
    yard.out = b"one\ntwo\n"
    first = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    async with asyncio.timeout(5):
        while await texts(desk, given.lease.run_id) != ["one", "two"]:
            await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    yard.ending = None
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    yard.end(b"three\n")
    stale = dataclasses.replace(kept, out_offset=4)
    async with asyncio.timeout(5):
        report = await work_on(desk.store, yard, chance).run(given._replace(kept=stale))
    assert report.outcome == Succeeded(result='"three"')
    assert await texts(desk, given.lease.run_id) == ["one", "two", "three"]


async def test_what_cannot_be_carried_on_is_ended_before_it_is_refused(desk, chance, yard):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="Look.", agent="command")
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await begun(lambda: yard.started)
    work = work_on(desk.store, yard, chance)
    work.detach(given.lease.run_id)
    running.cancel()
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    kept = dataclasses.replace(kept, agent="oracle")
    yard.cancelled.clear()
    yard.ending = None
    report = await work.run(given._replace(kept=kept))
    assert isinstance(report.outcome, Failed)
    assert yard.cancelled != []


async def test_what_has_been_gone_on_without_is_ended_and_forgotten(desk, chance, yard):
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await begun(lambda: yard.started)
    await leave(work, given, running)
    await desk.end_open(given.lease.run_id, Succeeded())
    await work.renew()
    await begun(lambda: yard.cancelled == ["its run continued without it"])
    assert yard.forgotten == []
    await work.renew()
    await begun(lambda: yard.forgotten == [given.lease.run_id])
    await work._discarding.close()
    assert await desk.store.read(list_kept_attempts, yard.home) == []


async def test_a_promise_counts_from_before_the_store_was_asked(desk, chance, yard):
    slept = 0.0

    async def slow(proceed, *args):
        nonlocal slept
        slept = 500.0
        await proceed(*args)

    intercept(desk.store, renew_home_lease, slow)
    yard.boot_time = lambda: slept
    await work_on(desk.store, yard, chance).renew()
    assert yard.promised == 15 * 60.0


async def test_one_that_was_let_go_is_left_alone(desk, chance, yard):
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    async with asyncio.timeout(5):
        while not yard.started:
            await asyncio.sleep(0)
    work.detach(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert yard.cancelled == []


async def test_one_that_was_let_go_before_it_was_written_down_is_given_back(desk, chance, yard):
    given = await assignment(desk)
    asked = asyncio.Event()

    async def never(*_):
        asked.set()
        await asyncio.get_running_loop().create_future()

    intercept(desk.store, find_space, never)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await asked.wait()
    work.detach(given.lease.run_id)
    running.cancel()
    assert (await running).outcome == Released()
    assert yard.started == []


# time without any process

SECOND_MICROS = 1_000_000


@pytest.mark.parametrize(
    ("facts", "away", "left"),
    [
        ({}, 65, 15.0),  # killed between writing it down and starting its program
        ({"launches": 1, "relaunch_at": 5}, 60, 10.0),  # killed while it waited for its next try
    ],
)
async def test_what_is_carried_on_later_has_all_the_time_that_is_left(
    desk, clock, facts, away, left
):
    given = await assignment(desk, policy=Policy(timeout=timedelta(seconds=15)))
    yard, began = ManyYard({"out": b"done\n"}), desk.store.now()
    told = dict(facts)
    if "relaunch_at" in told:
        told["relaunch_at"] = began + told["relaunch_at"] * SECOND_MICROS
    kept = KeptAttempt(
        run_id=given.lease.run_id, epoch=given.lease.epoch, home=yard.home, nonce="n",
        boot=yard.boot, executor="process", started_at=began, **told,
    )  # fmt: skip
    assert await desk.store.write(record_launch, kept, "w1")
    clock.advance(timedelta(seconds=65))
    report = await work_on(desk.store, yard, Counting()).run(given._replace(kept=kept))
    assert report.outcome == Succeeded(result='"done"')
    assert (report.away, yard.bounds.hard_seconds) == (away * SECOND_MICROS, left)

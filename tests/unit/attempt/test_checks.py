"""Checks between the end of a program and its report; gates before it begins."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from rota.agents.command.agent import ScriptAgent
from rota.flow.attempt.runner import AttemptRunner
from rota.model.attempts import Cancelled, ExitReason, Failed, Succeeded
from rota.model.checks import CheckState, SuppressionReason
from rota.model.tasks import TaskKind
from rota.ports.host import FileStat, ProbeResult
from rota.store.attempts import list_kept_attempts
from rota.store.tasks import put_state
from tests.tools.plugins import EXECUTORS
from tests.unit.attempt.keeper_home_fake import (
    Counting,
    ManyYard,
    a_few_turns,
    assignment,
    leave,
    work_on,
)


class Eyes:
    """Probes that see what a test says."""

    def __init__(
        self,
        file="the result does not contain it",
        page=(True, "it answered 200"),
        match=False,
        faults=(),
    ):
        self._file, self._page, self._match, self._faults = file, page, match, faults
        self.results = 0
        self.noted = []
        self.waiting = asyncio.Event()

    async def note_files(self, attempt, space, folder, paths, *, anew):
        self.noted.append((attempt, space, folder, paths, anew))

    async def stat_file(self, attempt, space, folder, path):
        return self._file

    async def check_url(self, url, contains, seconds):
        if self._page is None:
            self.waiting.set()
            await asyncio.Event().wait()
        return ProbeResult(*self._page)

    async def search(self, space, pattern, text):
        return self._match

    async def check_result(self, space, schema, result):
        self.results += 1
        return self._faults


async def ran(desk, yard, eyes=None, kind=TaskKind.SCRIPT, **spec):
    given = await assignment(desk, kind=kind, **spec)
    return await work_on(desk.store, yard, Counting(), probes=eyes).run(given)


async def test_a_success_whose_checks_hold_is_verified(desk):
    yard = ManyYard({"out": b"all is well\n"})
    report = await ran(desk, yard, checks=[{"min_length": 3}, {"not_like": "error"}])
    assert report.outcome == Succeeded(result='"all is well"')
    assert report.notes.check_state is CheckState.VERIFIED
    assert len(json.loads(report.notes.check_results)) == 2


async def test_a_success_that_a_check_contradicts_is_a_failure_that_may_be_tried_again(desk):
    yard = ManyYard({"out": b"I could not do it\n"})
    report = await ran(desk, yard, checks=[{"not_like": "could not"}, {"min_length": 3}])
    assert isinstance(report.outcome, Failed)
    assert (report.outcome.code, report.outcome.retryable) == ("check_failed", True)
    assert report.notes.check_state is CheckState.CONTRADICTED
    assert [one["passed"] for one in json.loads(report.notes.check_results)] == [False, True]


async def test_without_checks_nothing_is_said(desk):
    report = await ran(desk, ManyYard({"out": b"x\n"}))
    assert report.notes is None


async def test_a_failure_is_not_checked(desk):
    report = await ran(desk, ManyYard({"code": 1}), checks=[{"min_length": 3}])
    assert report.outcome.code != "check_failed"


@pytest.mark.parametrize(
    ("eyes", "check", "passed"),
    [
        (Eyes(file=FileStat(0, 3, True)), {"file_newer": "x"}, True),
        (Eyes(file=FileStat(2**52, 3, False)), {"file_newer": "x"}, False),
        (Eyes(file=FileStat(2**52, 3, None)), {"file_newer": "x"}, False),
        (Eyes(file="a link"), {"file_newer": "x"}, False),
        (Eyes(), {"url": "http://a.example"}, True),
        (Eyes(page=(False, "it answered 503")), {"url": "http://a.example"}, False),
        (Eyes(match=True), {"not_like": "x+", "regex": True}, False),
        (Eyes(match=None), {"not_like": "x+", "regex": True}, False),
        (Eyes(match=False), {"not_like": "x+", "regex": True}, True),
        (Eyes(), {"json_schema": {}}, True),
        (Eyes(faults=["it is not of the type object"]), {"json_schema": {}}, False),
        (Eyes(faults=None), {"json_schema": {}}, False),
        (None, {"file_newer": "x"}, False),
        (None, {"json_schema": {}}, False),
    ],
)
async def test_what_is_looked_at_outside_counts(desk, eyes, check, passed):
    report = await ran(desk, ManyYard({"out": b"x\n"}), eyes, checks=[check])
    assert isinstance(report.outcome, Succeeded) is passed
    assert json.loads(report.notes.check_results)[0]["evidence"]


async def test_files_are_noted_before_the_work_begins_and_not_before_its_gate(desk):
    eyes, yard = (
        Eyes(file=FileStat(0, 3, True)),
        ManyYard({"out": b'{"wake": true}\n'}, {"out": b"x"}),
    )
    given = await assignment(desk, checks=[{"file_newer": "x"}], folder="out", gate=GATE)
    begun = []

    async def start(kept, *rest):
        begun.append(len(eyes.noted))
        await ManyYard.start(yard, kept, *rest)

    yard.start = start
    report = await work_on(desk.store, yard, Counting(), probes=eyes).run(given)
    assert report.notes.check_state is CheckState.VERIFIED
    lease = given.lease
    assert eyes.noted == [((lease.run_id, lease.epoch), "main", "out", ["x"], True)]
    assert begun == [0, 1]


@pytest.mark.parametrize(
    ("program", "passed", "words"),
    [
        ({"out": b"ok\n"}, True, "it ended with 0"),
        ({"out": b"no such week\n", "code": 2}, False, "it ended with 2\nno such week"),
        ({"reason": ExitReason.HARD_TIMEOUT, "code": None}, False, "longer than 60 s"),
    ],
)
async def test_a_program_of_a_check_runs_beside_and_is_told_the_result(
    desk, program, passed, words
):
    yard = ManyYard({"out": b"done\n"}, program)
    report = await ran(desk, yard, checks=[{"command": ["verify", "--all"]}])
    assert isinstance(report.outcome, Succeeded) is passed
    assert words in json.loads(report.notes.check_results)[0]["evidence"]
    check = yard.started[1]
    assert check.argv == ("verify", "--all")
    assert json.loads(check.stdin)["result"] == "done"


async def test_checks_that_were_cut_off_twice_are_not_looked_at_again(desk):
    """A check that brings down the daemon would bring down each one that comes after it."""
    given = await assignment(desk, checks=[{"json_schema": {}}])
    yard, eyes, looked = ManyYard({"out": b"x\n"}), Eyes(), asyncio.Queue()

    async def never(space, schema, result):
        await looked.put(result)
        await asyncio.Event().wait()

    eyes.check_result = never
    for _ in range(2):
        work = work_on(desk.store, yard, Counting(), probes=eyes)
        running = asyncio.ensure_future(work.run(given))
        await looked.get()
        await leave(work, given, running)
        (kept,) = await desk.store.read(list_kept_attempts, yard.home)
        given = given._replace(kept=kept)
    report = await work_on(desk.store, yard, Counting(), probes=eyes).run(given)
    assert looked.empty()
    assert (report.outcome.code, report.outcome.retryable) == ("check_failed", False)
    assert "terminated 2 times" in report.outcome.message


async def test_what_an_earlier_process_left_beside_is_ended_first(desk):
    yard = ManyYard({"out": b"done\n"}, {"out": b"ok\n"})
    given = await assignment(desk, checks=[{"command": ["verify"]}])
    left = _kept(given, "left")
    yard.outs["left"] = b""
    yard.left_beside = [left]
    report = await work_on(desk.store, yard, Counting()).run(given)
    assert report.notes.check_state is CheckState.VERIFIED
    assert yard.cancelled == ["it is no longer needed"]


def _kept(given, nonce):
    from rota.model.attempts import KeptAttempt

    lease = given.lease
    return KeptAttempt(
        run_id=lease.run_id, epoch=lease.epoch, home="h", nonce=nonce, boot="b", executor="process"
    )


async def test_who_stops_a_run_stops_its_checks(desk):
    eyes = Eyes(page=None)
    work = asyncio.ensure_future(
        ran(desk, ManyYard({"out": b"x\n"}), eyes, checks=[{"url": "http://a.example"}])
    )
    await eyes.waiting.wait()
    work.cancel()
    assert isinstance((await work).outcome, Cancelled)


async def test_who_stops_a_run_stops_the_program_of_its_check(desk):
    yard = ManyYard({"out": b"x\n"}, None)
    work = asyncio.ensure_future(ran(desk, yard, checks=[{"command": ["verify"]}]))
    await yard.going.wait()
    work.cancel()
    assert isinstance((await work).outcome, Cancelled)
    assert yard.cancelled


class Slow(ManyYard):
    """A yard on which every start but the first takes until it is let."""

    def __init__(self, *programs):
        super().__init__(*programs)
        self.begins = asyncio.Event()
        self.may_begin = asyncio.Event()

    async def start(self, kept, *rest):
        if self.started:
            self.begins.set()
            await self.may_begin.wait()
        await super().start(kept, *rest)


async def being_started(desk, yard):
    """Return kept work and its attempt, whose check is being started."""
    given = await assignment(desk, checks=[{"command": ["verify"]}])
    work = work_on(desk.store, yard, Counting())
    running = asyncio.ensure_future(work.run(given))
    await yard.begins.wait()
    return work, given, running


async def test_who_stops_a_run_stops_the_program_of_its_check_that_is_being_started(desk):
    yard = Slow({"out": b"x\n"}, None)
    _, _, running = await being_started(desk, yard)
    running.cancel()
    await asyncio.sleep(0)
    yard.may_begin.set()
    await asyncio.wait([running], timeout=5)
    assert running.done()
    assert isinstance(running.result().outcome, Cancelled)
    assert (len(yard.started), len(yard.cancelled)) == (2, 2)


async def test_nobody_leaves_while_the_program_of_a_check_is_being_started(desk):
    yard = Slow({"out": b"x\n"}, None)
    work, given, running = await being_started(desk, yard)
    work.detach(given.lease.run_id)
    running.cancel()
    await a_few_turns()
    assert not running.done()
    yard.may_begin.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (len(yard.started), yard.cancelled) == (2, [])


async def test_a_tool_that_was_called_is_known_from_the_stream(desk):
    said = b'{"rota": "tool", "name": "Write"}\n{"rota": "result", "text": "done"}\n'
    checks = [{"tool_called": "Write"}]
    wish = {"instructions": "Do it", "agent": "command", "output": "lines", "checks": checks}
    report = await ran(desk, ManyYard({"out": said}), kind=TaskKind.AGENT, **wish)
    assert report.notes.check_state is CheckState.VERIFIED


GATE = {"command": ["anything-new"]}


async def test_a_gate_that_says_no_wakes_nobody(desk):
    yard = ManyYard({"out": b'{"wake": false, "reason": "no mail", "state": {"n": 3}}\n'})
    report = await ran(desk, yard, gate=GATE)
    assert report.outcome == Succeeded(result='"no mail"')
    assert (report.notes.suppressed, report.notes.remembered) == (
        SuppressionReason.BY_GATE,
        '{"n": 3}',
    )
    assert [command.argv for command in yard.started] == [("anything-new",)]


async def test_a_gate_that_says_yes_hands_on_and_is_remembered_with_the_success(desk):
    wake = {"wake": True, "state": 7, "input": "3 mails"}
    yard = ManyYard({"out": json.dumps(wake).encode()}, {"out": b"done\n"})
    report = await ran(desk, yard, gate=GATE)
    assert report.outcome == Succeeded(result='"done"')
    assert (report.notes.suppressed, report.notes.remembered) == (None, "7")
    assert json.loads(yard.started[1].stdin) == {"input": "3 mails"}


async def test_a_gate_finds_again_what_it_wanted_to(desk):
    yard = ManyYard({"out": b'{"wake": false}\n'})
    given = await assignment(desk, gate=GATE)
    await desk.store.write(put_state, given.lease.task_id, "gate", '{"n": 3}', "run 1")
    await work_on(desk.store, yard, Counting()).run(given)
    assert json.loads(yard.started[0].stdin)["state"] == {"n": 3}


@pytest.mark.parametrize(
    "program",
    [
        {"code": 1, "out": b'{"wake": false}\n'},
        {"out": b""},
        {"out": b"yes\n"},
        {"out": b'{"wake": "no"}\n'},
        {"out": b'["wake"]\n'},
        {"out": b'{"wake": false, "state": "' + b"x" * 70_000 + b'"}\n'},
        {"reason": ExitReason.HARD_TIMEOUT, "code": None},
        {"out": b"y\n" * 10_000},
    ],
)
async def test_a_gate_that_cannot_tell_is_a_failure_and_skips_nothing(desk, program):
    yard = ManyYard(program)
    report = await ran(desk, yard, gate=GATE)
    assert isinstance(report.outcome, Failed)
    assert report.outcome.code == "gate_failed"
    assert len(yard.started) == 1


async def test_a_gate_that_runs_is_carried_on_as_a_gate(desk):
    yard = ManyYard(None, {"out": b"done\n"})
    given = await assignment(desk, gate=GATE)
    work = work_on(desk.store, yard, Counting())
    await work.open()
    first = asyncio.ensure_future(work.run(given))
    await yard.going.wait()
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    assert kept.gate_reply == ""
    work.detach(given.lease.run_id)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    yard.outs[kept.nonce] = b'{"wake": true}\n'
    yard._end(kept, reason=ExitReason.EXITED, code=0, proven=True)
    report = await work_on(desk.store, yard, Counting()).run(given._replace(kept=kept))
    assert report.outcome == Succeeded(result='"done"')
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    assert json.loads(kept.gate_reply)["wake"] is True


async def carried_on(desk, yard, **spec):
    """Return an assignment with a gate that an earlier process has started and left."""
    given = await assignment(desk, gate=GATE)
    work = work_on(desk.store, yard, Counting())
    first = asyncio.ensure_future(work.run(given))
    await yard.going.wait()
    async with asyncio.timeout(5):
        while (kept := (await desk.store.read(list_kept_attempts, yard.home))[0]).out_offset < len(
            yard.outs[kept.nonce]
        ):
            await asyncio.sleep(0)
    await leave(work, given, first)
    return given._replace(task=replace(given.task, spec={**given.task.spec, **spec}), kept=kept)


async def test_a_gate_whose_task_has_none_any_more_is_swept_before_the_work_begins(desk):
    yard = ManyYard(None, {"out": b"done\n"})
    given = await carried_on(desk, yard, gate=None)
    swept = []

    async def sweep(kept):
        swept.append((kept.nonce, len(yard.started)))

    yard.clean_up = sweep
    report = await work_on(desk.store, yard, Counting()).run(given)
    assert report.outcome == Succeeded(result='"done"')
    assert (given.kept.nonce, 1) in swept


class Repeating(ScriptAgent):
    """A script whose readers remember what they were fed."""

    def __init__(self):
        self.fed = []

    def reader(self, wish, room):
        reader = super().reader(wish, room)
        feed, lines = reader.feed, []
        self.fed.append(lines)

        def remembered(line, **how):
            lines.append(line)
            return feed(line, **how)

        reader.feed = remembered
        return reader


async def test_a_gate_that_is_heard_anew_is_heard_by_a_new_reader(desk):
    yard = ManyYard({"out": b'one\n{"wake": false}\n', "goes_on": True})
    given = await carried_on(desk, yard)
    yard.outs[given.kept.nonce] += b'{"wake": false}\n'
    yard.finish(given.kept)
    script = Repeating()
    work = AttemptRunner(
        desk.store,
        yard,
        {"script": script},
        lambda: "w1",
        Counting(),
        executors=EXECUTORS,
        usual_agent="",
        offered={},
    )
    stale = replace(given.kept, out_offset=0)
    report = await work.run(given._replace(kept=stale))
    assert report.notes.suppressed is SuppressionReason.BY_GATE
    assert len(script.fed) > 1
    assert all(lines.count(b"one\n") == 1 for lines in script.fed)


async def test_an_agent_chooses_when_it_looks_again_within_bounds(desk):
    said = b'{"rota": "result", "text": "calm", "silent": true, "next_check": "5s"}\n'
    yard = ManyYard({"out": said})
    report = await ran(desk, yard, next_check={"min": "10m", "max": "1d"})
    assert report.outcome.silent
    template = report.notes.next_check.template
    assert template.available_at - desk.store.now() == 600 * 1_000_000

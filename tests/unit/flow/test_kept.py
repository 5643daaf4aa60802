"""Kept work: recorded once whatever fails in between, and never reported by who does not hold it."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest

from rota.agents.command.agent import CommandAgent
from rota.agents.command.script import ScriptAgent
from rota.errors import Unavailable
from rota.flow.claim import assigned
from rota.flow.execute import kept as kept_module
from rota.flow.execute import patiently as patiently_module
from rota.flow.execute.kept import KeptWork
from rota.model.keeping import Ending, Reason, Spooled
from rota.model.outcomes import Failed, Lost, Succeeded
from rota.model.tasks import NewTask, Policy, TaskKind
from rota.ports.agent import Room


class FakeYard:
    """A keeper that has written what a test says."""

    home, host, boot = "here:/home", "here", "boot"

    def __init__(self):
        self.out = b""
        self.err = b""
        self.ending = None
        self.left = None
        self.started = []
        self.cancelled = []
        self.swept = []
        self.forgotten = []
        self.starting = asyncio.Event()
        self.starting.set()
        self.bell = asyncio.Event()

    def take(self):
        return True

    def moment(self):
        return 0.0

    def promise(self, until):
        self.promised = until

    def tidy(self, known):
        self.known = known

    async def forget(self, kept):
        self.forgotten.append(kept.run_id)

    def room(self, assignment, site, offered, ids):
        return Room(folder="/room", cwd="/work", home="/home", offered=offered, ids=ids)

    async def start(self, kept, room, site, role, prepared, bounds):
        await self.starting.wait()
        self.started.append(prepared.command)

    def result(self, assignment):
        return self.left

    def look(self, kept):
        return self.ending

    def read(self, kept, stream, offset, most):
        return getattr(self, stream.value)[offset : offset + most]

    async def sweep(self, kept):
        self.swept.append(kept.run_id)

    def cancel(self, kept, grace_seconds, why):
        self.cancelled.append(why)
        self.ending = Ending(reason=Reason.CANCELLED, proven=True)
        self.bell.set()

    async def rung(self, kept, seconds):
        await self.bell.wait()
        self.bell.clear()

    def end(self, out=b"", **facts):
        self.out += out
        told = {"reason": Reason.EXITED, "code": 0, "proven": True, **facts}
        sizes = {"out": Spooled(size=len(self.out)), "err": Spooled(size=len(self.err))}
        self.ending = Ending(**told, **sizes)
        self.bell.set()


@pytest.fixture
def yard():
    return FakeYard()


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(kept_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(patiently_module, "LOOK_SECONDS", 0.0)


async def assignment(desk, command=("count",), kind=TaskKind.SCRIPT, **spec):
    await desk.worker("w1")
    owner = await desk.space("main")
    task = await desk.store.put_task(
        NewTask(
            space_id=owner.id, name="job", title="", kind=kind, route=kind.value,
            spec={"command": list(command), **spec}, policy=Policy(), origin="api",
        ),
        None, None,
    )  # fmt: skip
    desk.routes = [kind.value]
    await desk.queue(task)
    claimed = await desk.claimed(1, routes=[kind.value])
    return assigned(claimed, desk.store.incarnation)[0]


def work_on(store, yard, chance, holder="w1"):
    agents = {"command": CommandAgent(), "script": ScriptAgent()}
    return KeptWork(store, yard, agents, lambda: holder, chance, usual_agent="command", offered={})


async def texts(desk, run_id):
    events = await desk.store.run_output(run_id, 1_000)
    return "\n".join(event.data["text"] for event in events).splitlines()


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


@pytest.mark.parametrize("facts", [{"code": 1}, {"reason": Reason.CANCELLED, "code": None}])
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


class Wavering:
    """A store whose answers are lost now and then."""

    def __init__(self, store, after):
        self._store = store
        self._after = after
        self._failed = set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def _waver(self, name, call):
        if name in self._failed:
            return await call()
        self._failed.add(name)
        if self._after:
            await call()
        raise Unavailable("the connection was lost")

    async def begin_kept(self, *args):
        return await self._waver("begin", lambda: self._store.begin_kept(*args))

    async def hear(self, *args):
        return await self._waver("hear", lambda: self._store.hear(*args))

    async def kept_of(self, *args):
        return await self._waver("kept", lambda: self._store.kept_of(*args))


@pytest.mark.parametrize("after", [False, True])
async def test_what_is_said_while_the_store_wavers_is_recorded_once(desk, chance, yard, after):
    given = await assignment(desk)
    yard.end(b"".join(b"line %d\n" % n for n in range(50)))
    report = await work_on(Wavering(desk.store, after), yard, chance).run(given)
    assert report.outcome == Succeeded(result='"line 49"')
    assert await texts(desk, given.lease.run_id) == [f"line {n}" for n in range(50)]
    assert len(yard.started) == 1


async def test_who_does_not_hold_the_run_reports_nothing(desk, chance, yard):
    given = await assignment(desk)
    yard.end(b"one\n")
    running = asyncio.ensure_future(work_on(desk.store, yard, chance, "w2").run(given))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not running.done()
    assert yard.started == []
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
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
    (kept,) = await desk.store.kept_of(yard.home)
    yard.end(b"three\n")
    report = await work_on(desk.store, yard, chance).run(given._replace(kept=kept))
    assert report.outcome == Succeeded(result='"three"')
    assert await texts(desk, given.lease.run_id) == ["one", "two", "three"]
    assert len(yard.started) == 1


async def test_a_cancelled_one_is_stopped_and_waited_for(desk, chance, yard):
    given = await assignment(desk)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    async with asyncio.timeout(5):
        while not yard.started:
            await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
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
        while not await desk.store.kept_of(yard.home):
            await asyncio.sleep(0)
    await begun(lambda: work._going)
    for _ in range(20):
        await asyncio.sleep(0)
    if left:
        work.let_go(given.lease.run_id)
    running.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not running.done()
    yard.starting.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(yard.started) == 1
    assert yard.cancelled == ([] if left else ["cancelled"])


async def test_who_is_stopped_while_it_records_has_an_end(desk, chance, yard, monkeypatch):
    given = await assignment(desk)
    yard.out = b"one\n"
    recording, go = asyncio.Event(), asyncio.Event()
    hear = desk.store.hear

    async def slow(*args):
        recording.set()
        await go.wait()
        return await hear(*args)

    monkeypatch.setattr(desk.store, "hear", slow)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await recording.wait()
    running.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5):
            await running
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
    (kept,) = await desk.store.kept_of(yard.home)
    yard.end(b"three\n")
    stale = dataclasses.replace(kept, out_at=4)
    async with asyncio.timeout(5):
        report = await work_on(desk.store, yard, chance).run(given._replace(kept=stale))
    assert report.outcome == Succeeded(result='"three"')
    assert await texts(desk, given.lease.run_id) == ["one", "two", "three"]


async def test_what_cannot_be_carried_on_is_ended_before_it_is_refused(desk, chance, yard):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="Look.", agent="command")
    running = asyncio.ensure_future(work_on(desk.store, yard, chance).run(given))
    await begun(lambda: yard.started)
    work = work_on(desk.store, yard, chance)
    work.let_go(given.lease.run_id)
    running.cancel()
    (kept,) = await desk.store.kept_of(yard.home)
    task = dataclasses.replace(given.task, spec={**given.task.spec, "agent": "oracle"})
    yard.cancelled.clear()
    yard.ending = None
    report = await work.run(given._replace(kept=kept, task=task))
    assert isinstance(report.outcome, Failed)
    assert yard.cancelled != []


async def test_what_has_been_gone_on_without_is_ended_and_forgotten(desk, chance, yard):
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    await begun(lambda: yard.started)
    work.let_go(given.lease.run_id)
    running.cancel()
    await asyncio.wait([running])
    await desk.end_open(given.lease.run_id, Succeeded())
    await work.renew()
    assert (yard.cancelled, yard.forgotten) == (["its run has gone on without it"], [])
    await work.renew()
    assert yard.forgotten == [given.lease.run_id]
    assert await desk.store.kept_of(yard.home) == []


async def test_a_promise_counts_from_before_the_store_was_asked(desk, chance, yard, monkeypatch):
    renew_home, slept = desk.store.renew_home, 0.0

    async def slow(*args):
        nonlocal slept
        slept = 500.0
        await renew_home(*args)

    monkeypatch.setattr(desk.store, "renew_home", slow)
    yard.moment = lambda: slept
    await work_on(desk.store, yard, chance).renew()
    assert yard.promised == 15 * 60.0


async def test_one_that_was_let_go_is_left_alone(desk, chance, yard):
    given = await assignment(desk)
    work = work_on(desk.store, yard, chance)
    running = asyncio.ensure_future(work.run(given))
    async with asyncio.timeout(5):
        while not yard.started:
            await asyncio.sleep(0)
    work.let_go(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert yard.cancelled == []


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"code": 3}, "exit"),
        ({"reason": Reason.SIGNALED, "code": None, "signal": 11}, None),
        ({"reason": Reason.HARD_TIMEOUT, "code": None, "killed": True}, "timeout"),
        ({"reason": Reason.EXEC_FAILED, "detail": "No such file"}, "script_unavailable"),
        ({"reason": Reason.TOO_MANY_PROCESSES, "detail": "101"}, "too_many_processes"),
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
    "reason", [Reason.LOST_KEEPER_DIED, Reason.LOST_REBOOT, Reason.LEASE_EXPIRED]
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

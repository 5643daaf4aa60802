"""Launches inside an attempt, sessions from run to run, and answers that reach the agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent, ScriptAgent
from rota.errors import Unavailable
from rota.flow.attempt.attempt import LaunchRetryPolicy, requeue_until_lifted
from rota.flow.attempt.runner import AttemptRunner
from rota.flow.claim import make_assignments
from rota.flow.define.runs import answer_question
from rota.flow.settle import settle_attempts
from rota.model.agents import AgentErrorKind, AgentResult
from rota.model.attempts import (
    AttemptReport,
    Cancelled,
    ExitReason,
    ExitRecord,
    Failed,
    Released,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.events import EventName
from rota.model.tasks import TaskKind
from rota.model.views import RunFilter
from rota.rules.permissions import LOCAL
from rota.rules.task_spec import ONE_OFF_NAMES, ONE_OFF_ORIGIN
from rota.store import store as store_module
from rota.store.attempts import list_kept_attempts, record_launch, schedule_relaunch
from rota.store.sessions import find_session
from rota.store.store import HookedStore
from rota.store.views import list_questions, list_run_events, list_runs
from tests.tools.plugins import EXECUTORS
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, leave, texts


def line(kind, **fields):
    return json.dumps({"rota": kind, **fields}).encode() + b"\n"


OVERLOAD = line("error", **{"class": "overload", "message": "529 Overloaded"})
LOST = line("error", **{"class": "session_lost", "message": "no conversation found"})
DONE = line("result", text="done")


class Trial(FakeYard):
    """A yard whose keepers end at once, each with the next of what a test says."""

    def __init__(self, *ends):
        super().__init__()
        self.ends = list(ends)
        self.rooms = []
        self.nonces = []
        self.all_bounds = []

    async def start(self, kept, room, *rest):
        await super().start(kept, room, *rest)
        self.rooms.append(room)
        self.nonces.append(kept.nonce)
        self.all_bounds.append(rest[-1])
        self.out, self.err, self.ending = b"", b"", None
        out, facts = self.ends.pop(0)
        if facts is not None:
            self.end(out, **facts)


def said(out, **facts):
    return out, facts


class House:
    """Work on a store, in a yard, with a wait that moves the clock."""

    def __init__(self, desk, yard, store=None, patience=None, **more):
        self.desk = desk
        self.waited = []
        self.work = AttemptRunner(
            store or desk.store,
            yard,
            {agent.name: agent for agent in (CommandAgent(), CodexAgent(), ScriptAgent())},
            lambda: "w1",
            Random(4),
            executors=EXECUTORS,
            usual_agent="command",
            offered={},
            patience=patience,
            sleep=self.sleep,
            **more,
        )

    async def sleep(self, seconds):
        self.waited.append(seconds)
        self.desk.clock.advance(timedelta(seconds=seconds))

    async def run(self, given):
        return (await self.work.run(given)).outcome


async def agent_run(desk, **spec):
    told = {"instructions": "Look.", "agent": "command", "output": "lines", **spec}
    program = () if told["agent"] == "codex" else ("think",)
    return await assignment(desk, program, kind=TaskKind.AGENT, **told)


async def faults(desk, run_id):
    events = await desk.store.read(list_run_events, run_id)
    return [event.data for event in events if event.name is EventName.AGENT_ERROR]


async def test_what_is_refused_twice_and_then_done_is_one_attempt(desk):
    given = await agent_run(desk)
    yard = Trial(said(line("text", text="a") + OVERLOAD, code=1), said(OVERLOAD), said(DONE))
    house = House(desk, yard)
    assert await house.run(given) == Succeeded(result='"done"')
    assert house.waited == [5.0, 5.0]
    assert len(set(yard.nonces)) == 3
    assert await texts(desk, given.lease.run_id) == ["a"]
    pauses = [data for data in await faults(desk, given.lease.run_id) if "retry" in data]
    assert [(data["kind"], data["retry"], data["of"]) for data in pauses] == [
        ("overload", 1, 3),
        ("overload", 2, 3),
    ]
    assert pauses[0]["message"].startswith("The model's provider is overloaded")
    (run,) = await desk.store.read(list_runs, RunFilter(limit=10))
    assert (run.epoch, run.retries) == (1, 0)


async def test_no_more_than_three_retries_are_made(desk):
    given = await agent_run(desk)
    yard = Trial(*[said(OVERLOAD, code=1)] * 4)
    outcome = await House(desk, yard).run(given)
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retryable, len(yard.started)) == ("overload", True, 4)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (said(b"", reason=ExitReason.SIGNALED, code=None, signal=9), "out_of_memory"),
        (said(b"", code=137), "out_of_memory"),
        (said(line("error", **{"class": "authentication"}), code=1), "authentication"),
        (said(b"well", code=3), "other"),
    ],
)
async def test_what_is_not_transient_is_not_tried_again(desk, end, code):
    given = await agent_run(desk)
    yard = Trial(end)
    outcome = await House(desk, yard).run(given)
    assert (outcome.code, len(yard.started)) == (code, 1)
    if code == "out_of_memory":
        assert not outcome.retryable


async def test_a_script_is_not_tried_again_inside_its_attempt(desk):
    given = await assignment(desk)
    yard = Trial(said(OVERLOAD, code=1))
    assert isinstance(await House(desk, yard).run(given), Failed)
    assert len(yard.started) == 1


async def test_all_tries_together_have_the_time_of_one_attempt(desk):
    given = await agent_run(desk)
    policy = replace(given.task.policy, timeout=timedelta(seconds=12))
    given = given._replace(task=replace(given.task, policy=policy))
    yard = Trial(*[said(OVERLOAD, code=1)] * 4)
    house = House(desk, yard)
    outcome = await house.run(given)
    assert outcome.code == "overload"
    assert [bounds.hard_seconds for bounds in yard.all_bounds] == [12.0, 7.0, 2.0]


async def test_a_cancellation_holds_while_it_waits(desk):
    given = await agent_run(desk)
    yard = Trial(said(OVERLOAD, code=1), said(DONE))
    house = House(desk, yard)
    waiting = asyncio.Event()

    async def forever(seconds):
        waiting.set()
        await asyncio.get_running_loop().create_future()

    house.work._trying._sleep = forever
    running = asyncio.ensure_future(house.run(given))
    await waiting.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(yard.started) == 1


class Dying:
    """A store that dies before or after one of its operations, once; a process with it."""

    def __init__(self, operation, *, after):
        self._operation = operation
        self._after = after
        self._first = operation is record_launch
        self.died = asyncio.Event()

    async def __call__(self, write, operation, args, kwargs):
        if operation is not self._operation or self._first:
            # The first launch goes through: before it nothing can be lost.
            self._first = self._first and operation is not self._operation
            return await write(operation, *args, **kwargs)
        if self._after:
            await write(operation, *args, **kwargs)
        self.died.set()
        return await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operation", [schedule_relaunch, record_launch])
async def test_a_process_that_dies_between_two_tries_loses_none_and_adds_none(
    desk, operation, after
):
    given = await agent_run(desk)
    yard = Trial(said(line("text", text="a") + OVERLOAD, code=1), said(DONE))
    dying = Dying(operation, after=after)
    house = House(desk, yard, HookedStore(desk.store, dying))
    running = asyncio.ensure_future(house.run(given))
    async with asyncio.timeout(5):
        await dying.died.wait()
    await leave(house.work, given, running)
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    if operation is record_launch and after:  # written down, and nothing of it was started
        yard.out, yard.ending = b"", ExitRecord(reason=ExitReason.LOST_NEVER_STARTED, proven=True)
    outcome = await House(desk, yard).run(given._replace(kept=kept))
    assert outcome == Succeeded(result='"done"')
    assert len(yard.started) == 2
    (row,) = await desk.store.read(list_kept_attempts, yard.home)
    assert row.launches == 1
    assert await texts(desk, given.lease.run_id) == ["a"]
    retries = [data["retry"] for data in await faults(desk, given.lease.run_id) if "retry" in data]
    assert retries == [1]


@pytest.mark.parametrize("after", [False, True])
async def test_a_lost_answer_to_a_pause_adds_no_try(desk, monkeypatch, after):
    given = await agent_run(desk)
    yard = Trial(said(OVERLOAD, code=1), said(DONE))
    lost = []

    async def waver(write, operation, args, kwargs):
        if operation is schedule_relaunch and not lost:
            lost.append(await write(operation, *args, **kwargs) if after else None)
            raise Unavailable("the connection was lost")
        return await write(operation, *args, **kwargs)

    monkeypatch.setattr(store_module, "RETRY_SECONDS", 0.0)
    assert await House(desk, yard, HookedStore(desk.store, waver)).run(given) == Succeeded(
        result='"done"'
    )
    assert len([data for data in await faults(desk, given.lease.run_id) if "retry" in data]) == 1


async def next_run(desk, given, outcome):
    await settle_attempts(desk.store, [(given, outcome)], Random(1))
    await desk.queue(given.task)
    claimed = await desk.claimed(1, routes=["agent"])
    return make_assignments(claimed, desk.store.database.incarnation)[0]


async def session_of(desk, given, agent):
    return await desk.store.read(find_session, given.lease.run_id, agent, shared=True, own=False)


async def test_the_next_run_goes_on_in_the_session_of_the_last(desk):
    given = await agent_run(desk, session="shared")
    yard = Trial(said(line("session", id="s-1") + DONE), said(line("session", id="s-1") + DONE))
    work = House(desk, yard).work
    given = await next_run(desk, given, await work.run(given))
    await work.run(given)
    assert [room.session for room in yard.rooms] == [None, "s-1"]
    assert yard.started[1].env["ROTA_SESSION"] == "s-1"


async def test_a_run_whose_task_keeps_no_session_begins_anew(desk):
    given = await agent_run(desk)
    yard = Trial(said(line("session", id="s-1") + DONE), said(DONE))
    work = House(desk, yard).work
    given = await next_run(desk, given, await work.run(given))
    await work.run(given)
    assert [room.session for room in yard.rooms] == [None, None]


async def test_a_lost_session_is_forgotten_and_the_attempt_goes_on_without(desk):
    given = await agent_run(desk, session="shared")
    yard = Trial(
        said(line("session", id="s-1") + DONE),
        said(LOST, code=1),
        said(line("session", id="s-2") + DONE),
    )
    house = House(desk, yard)
    given = await next_run(desk, given, await house.work.run(given))
    assert await house.run(given) == Succeeded(result='"done"')
    assert [room.session for room in yard.rooms] == [None, "s-1", None]
    assert house.waited == []
    kept = await session_of(desk, given, "command")
    assert kept.id == "s-2"
    assert (await desk.store.read(list_kept_attempts, yard.home))[-1].launches == 0


def codex(total, text="hi"):
    usage = {"input_tokens": total, "output_tokens": total, "cached_input_tokens": 0}
    events = (
        {"type": "thread.started", "thread_id": "t-1"},
        {"type": "item.completed", "item": {"type": "agent_message", "text": text}},
        {"type": "turn.completed", "usage": usage},
    )
    return "".join(json.dumps(event) + "\n" for event in events).encode()


async def test_what_a_session_used_before_is_not_counted_again(desk):
    given = await agent_run(desk, agent="codex", session="shared", output="text")
    yard = Trial(said(codex(10)), said(codex(25)))
    work = House(desk, yard).work
    first = given.lease.run_id
    given = await next_run(desk, given, await work.run(given))
    await work.run(given)
    used = []
    for run_id in (first, given.lease.run_id):
        events = await desk.store.read(list_run_events, run_id)
        used += [e.data["input"] for e in events if e.name is EventName.USAGE]
    assert used == [10, 15]
    kept = await session_of(desk, given, "codex")
    assert (kept.id, kept.input) == ("t-1", 25)


@pytest.mark.parametrize("keep", [False, True])
async def test_an_answer_reaches_the_agent_in_the_session_that_asked(desk, keep):
    given = await agent_run(desk, session="shared" if keep else "isolated")
    asks = line("session", id="s-1") + line("question", text="Which colour?", options=["red"])
    yard = Trial(said(asks), said(DONE))
    work = House(desk, yard).work
    report = await work.run(given)
    assert report.outcome == WaitingForAnswer(question="Which colour?", options=("red",))
    await settle_attempts(desk.store, [(given, report)], Random(1))
    (question,) = await desk.store.read(list_questions, [given.lease.run_id])
    await answer_question(desk.store, LOCAL, question.id, "red")
    claimed = await desk.claimed(1, routes=["agent"])
    again = make_assignments(claimed, desk.store.database.incarnation)[0]
    assert (await work.run(again)).outcome == Succeeded(result='"done"')
    answered = "You asked: Which colour?\nThe answer is: red"
    told = yard.started[1]
    assert told.stdin.decode() == answered
    assert json.loads(told.env["ROTA_ANSWERS"]) == ["red"]
    assert yard.rooms[1].session == "s-1"


async def test_what_is_done_once_says_itself_what_to_do(desk):
    given = await agent_run(desk)
    errand = {"instructions": "Go.", "agent": "command", "command": ["go"], "timeout": 7.0}
    given = given._replace(
        task=replace(
            given.task, name=ONE_OFF_NAMES[TaskKind.AGENT], origin=ONE_OFF_ORIGIN, spec={}
        ),
        lease=given.lease._replace(payload=json.dumps(errand)),
    )
    yard = Trial(said(b"gone\n"))
    assert await House(desk, yard).run(given) == Succeeded(result='"gone"')
    assert (yard.started[0].argv, yard.started[0].stdin) == (("go",), b"Go.")
    assert yard.all_bounds[0].hard_seconds == 7.0


END = [
    ("nothing", said(b""), "no_result"),
    ("result twice", said(line("result", text="one") + DONE), None),
    ("failed with a result", said(DONE, code=3), "other"),
    ("an error after the result", said(DONE + OVERLOAD, code=0), "overload"),
    ("nothing but a banner", said(line("result", text="API Error: 529 overloaded")), "overload"),
    ("a long line", said(b"x" * 200_000 + b"\n" + DONE), None),
    ("a long result", said(line("result", text="y" * 100_000)), None),
]


@pytest.mark.parametrize(("end", "code"), [case[1:] for case in END], ids=[c[0] for c in END])
async def test_every_end_has_its_outcome(desk, end, code):
    given = await agent_run(desk)
    yard = Trial(*[end] * 4)
    outcome = await House(desk, yard, patience=LaunchRetryPolicy(retries=0)).run(given)
    if code is None:
        assert isinstance(outcome, Succeeded)
        assert json.loads(outcome.result) in {"done", "y" * 100_000}
    else:
        assert isinstance(outcome, Failed)
        assert outcome.code == code


async def test_a_result_after_a_cancellation_does_not_count(desk):
    given = await agent_run(desk)
    yard = Trial(said(DONE, reason=ExitReason.CANCELLED, code=None, killed=True))
    assert isinstance(await House(desk, yard).run(given), Cancelled)


# limits that are lifted at a known time


def limit(seconds, desk):
    lifted = desk.clock.now().timestamp() + seconds
    return line("error", **{"class": "rate_limit", "message": "limit reached", "until": lifted})


async def test_a_limit_that_is_lifted_later_gives_the_run_back_until_then(desk):
    given = await agent_run(desk)
    house = House(desk, Trial(said(limit(3600, desk), code=1)))
    outcome = await house.run(given)
    assert isinstance(outcome, Released)
    assert outcome.until == desk.store.now() + 3600 * 1_000_000
    assert "accepts no requests until 2026-" in outcome.reason
    assert house.waited == []


@pytest.mark.parametrize(
    ("seconds", "changes"),
    [(3600, {"thread": "cli:default"}), (3600, {"epoch": 20}), (9 * 86_400, {})],
)
async def test_nobody_waits_in_vain_for_a_limit_to_be_lifted(desk, seconds, changes):
    given = await agent_run(desk)
    work = given._replace(lease=given.lease._replace(**changes))
    report = requeue_until_lifted(
        AttemptReport(outcome=Failed(code="rate_limit", message="")),
        AgentResult(
            outcome=Failed(code="rate_limit", message=""),
            error=AgentErrorKind.RATE_LIMIT,
            until=desk.clock.now() + timedelta(seconds=seconds),
        ),
        work,
        desk.store.now(),
    )
    assert isinstance(report.outcome, Failed)


async def test_a_limit_that_is_lifted_in_a_moment_is_waited_for_inside_the_attempt(desk):
    given = await agent_run(desk)
    house = House(desk, Trial(said(limit(8, desk)), said(DONE)))
    assert await house.run(given) == Succeeded(result='"done"')
    assert house.waited == [8.0]

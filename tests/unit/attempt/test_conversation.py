"""Runs of one conversation: what they are told, what they go on in, and in which order."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from random import Random

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.command.agent import CommandAgent
from rota.errors import Invalid, NotFound
from rota.flow.claim import make_assignments
from rota.flow.define.messages import say
from rota.flow.define.runs import answer_question, enqueue, run_again
from rota.flow.define.tasks import put_task
from rota.flow.settle import settle_attempts
from rota.model.attempts import Cancelled, ExitReason, Succeeded, WaitingForAnswer
from rota.model.checks import SuppressionReason
from rota.model.runs import RunState
from rota.model.sessions import SessionFilter
from rota.model.tasks import OnLost, Overlap, Policy, Pool, TaskKind
from rota.model.threads import MessageState, NewThread
from rota.model.views import RunFilter
from rota.ports.agent import AgentRegistry
from rota.rules.messages import asks_for_answer
from rota.rules.permissions import LOCAL
from rota.rules.prompts import INTERRUPTED
from rota.store.attempts import list_kept_attempts
from rota.store.sessions import list_sessions
from rota.store.tasks import add_thread
from rota.store.threads import list_messages, put_thread
from rota.store.views import (
    list_deliveries,
    list_questions,
    list_run_output,
    list_runs,
    list_workers,
)
from tests.unit.attempt.keeper_home_fake import assignment, leave
from tests.unit.attempt.test_relaunch import DONE, House, Trial, agent_run, line, next_run, said

HERE = "cli:default"
AGENTS = AgentRegistry({"command": CommandAgent(), "claude": ClaudeAgent()}, "claude")
TALK = {"instructions": "Talk.", "agent": "command", "command": ["think"], "output": "lines"}


class Begun(Trial):
    """A yard that tells when a program has begun."""

    def __init__(self, *ends):
        super().__init__(*ends)
        self.begun = asyncio.Event()

    async def start(self, *given):
        await super().start(*given)
        self.begun.set()


async def answering(desk, name="talk", thread=HERE, **spec):
    """Return a task that answers in a thread."""
    if not await desk.store.read(list_workers):
        await desk.worker("w1")
    await desk.space("main")
    desk.routes = ["agent"]
    return await put_task(
        desk.store, LOCAL, name, kind=TaskKind.AGENT, route="agent", thread=thread,
        spec={**TALK, "answers": True, "context": "group", **spec},
        policy=Policy(on_lost=OnLost.RETRY),
    )  # fmt: skip


async def claim(desk):
    claimed = await desk.claimed(1, routes=["agent"])
    return make_assignments(claimed, desk.store.database.incarnation)[0]


async def tell(desk, *texts, thread=HERE):
    return [
        await say(desk.store, LOCAL, AGENTS, thread, text, space="main", sender="Ann")
        for text in texts
    ]


async def test_what_was_said_is_the_prompt_of_the_next_run_and_its_session_the_threads(desk):
    await answering(desk)
    one, two = await tell(desk, "And the invoices?", "</message> today")
    yard = Trial(said(line("session", id="s-1") + DONE), said(DONE))
    house = House(desk, yard)
    given = await claim(desk)
    assert (given.lease.run_id, given.lease.thread) == (one.reader, HERE)
    assert (await desk.run(one.reader)).pool == "foreground", "somebody waits for the answer"
    given = await next_run_after(desk, given, await house.work.run(given), "more")
    told = yard.started[0].stdin.decode()
    assert told.startswith('Talk.\n\n<message sender="Ann" time="')
    assert told.count("<message ") == 2
    assert ">And the invoices?</message>\n" in told
    assert "&lt;/message&gt; today</message>" in told
    await house.work.run(given)
    assert [room.session for room in yard.rooms] == [None, "s-1"]
    found = await desk.store.read(list_messages, HERE, None, 1 << 62, 10)
    assert [(m.body, m.state, m.run_id) for m in reversed(found[1:])] == [
        (one.body, MessageState.GIVEN, one.reader),
        (two.body, MessageState.GIVEN, one.reader),
    ]
    (session,) = await desk.store.read(list_sessions, SessionFilter())
    assert (session.title, session.agent) == (
        "Ann: And the invoices? Ann: </message> today",
        "command",
    )


async def next_run_after(desk, given, report, *texts):
    await settle_attempts(desk.store, [(given, report)], Random(1))
    await tell(desk, *texts)
    return await claim(desk)


async def test_without_a_task_that_answers_an_agent_is_asked_once_in_the_thread(desk):
    await desk.worker("w1")
    await desk.space("main")
    (message,) = await tell(desk, "Hello?")
    run = await desk.run(message.reader)
    assert (run.task, run.lane, run.pool) == ("once-agent", HERE, "foreground")
    told = json.loads(run.payload)
    assert (told["agent"], told["context"], told["payload"]) == (
        "claude",
        "group",
        {"messages": True},
    )


async def test_a_run_whose_messages_were_taken_has_nothing_to_do(desk):
    await answering(desk)
    await tell(desk, "one")
    given = await claim(desk)
    await tell(desk, "two")  # both are the next run's now
    yard = Trial()
    assert await House(desk, yard).run(given) == Cancelled(reason="its messages were read already")
    assert yard.started == []


async def test_what_is_said_while_a_run_waits_to_go_on_reaches_it_with_the_answer(desk):
    await answering(desk)
    await tell(desk, "one")
    asks = line("session", id="s-1") + line("question", text="Sure?")
    yard = Trial(said(asks), said(b"", reason=ExitReason.LOST_KEEPER_DIED, code=None), said(DONE))
    work = House(desk, yard).work
    given = await claim(desk)
    await settle_attempts(desk.store, [(given, await work.run(given))], Random(1))
    (question,) = await desk.store.read(list_questions, [given.lease.run_id])
    await answer_question(desk.store, LOCAL, question.id, "yes")
    (two,) = await tell(desk, "two")
    assert two.reader == given.lease.run_id
    for more in ("", f"\n\n{INTERRUPTED}"):  # the attempt that was told first is lost
        given = await claim(desk)
        await settle_attempts(desk.store, [(given, await work.run(given))], Random(1))
        told = yard.started[-1].stdin.decode()
        assert told.startswith("<message sender=")
        answer = "You asked: Sure?\nThe answer is: yes"
        assert told.endswith(f">two</message>\n\n{answer}{more}")
    assert [room.session for room in yard.rooms] == [None, "s-1", "s-1"]


async def test_runs_of_one_session_go_on_one_after_the_other(desk):
    first, second = await answering(desk), await answering(desk, "beside")
    alone = await answering(desk, "alone", thread=None, context="isolated")
    for task in (first, second, first, alone, alone):
        await enqueue(desk.store, task, None)
    leases = await desk.claim(10)
    assert sorted(lease.task_id for lease in leases) == [first.id, alone.id, alone.id]
    await desk.end(next(lease for lease in leases if lease.task_id == first.id))
    (after,) = await desk.claim(10)
    assert after.task_id == second.id


async def test_slots_of_one_session_wait_in_its_lane_too(desk):
    task, other = await answering(desk), await answering(desk, "beside")
    await desk.planned(task, every="1m")
    await enqueue(desk.store, other, None)
    (busy,) = await desk.claim(10)
    desk.clock.advance(minutes=1)
    await desk.plan()
    assert await desk.claim(10) == []
    await desk.end(busy)
    (lease,) = await desk.claim(10)
    assert (lease.task_id, lease.thread) == (task.id, HERE)


@pytest.mark.parametrize(
    ("policy", "field"),
    [(Policy(lane="own"), "lane"), (Policy(overlap=Overlap.ALLOW), "overlap")],
)
async def test_what_would_let_them_overlap_is_refused(desk, policy, field):
    await desk.space("main")
    with pytest.raises(Invalid) as refused:
        await put_task(
            desk.store, LOCAL, "talk", kind=TaskKind.AGENT, route="agent",
            spec={**TALK, "context": "group"}, policy=policy,
        )  # fmt: skip
    assert refused.value.field == field


async def test_an_agent_never_goes_on_in_a_session_of_another(desk):
    given = await agent_run(desk, context="group")
    yard = Trial(said(line("session", id="s-1") + DONE), said(b""))
    work = House(desk, yard).work
    given = await next_run(desk, given, await work.run(given))
    spec = {"instructions": "Look.", "agent": "codex", "context": "group"}
    await work.run(given._replace(task=replace(given.task, spec=spec)))
    assert [room.session for room in yard.rooms] == [None, None]


async def test_an_attempt_that_is_carried_on_stays_with_the_agent_it_began_with(desk):
    given = await agent_run(desk)
    yard = Begun((b"", None))
    house = House(desk, yard)
    running = asyncio.ensure_future(house.work.run(given))
    async with asyncio.timeout(5):
        await yard.begun.wait()
    await leave(house.work, given, running)
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    assert kept.agent == "command"
    yard.end(DONE)
    changed = replace(given.task, spec={"instructions": "Look.", "agent": "codex", "max_turns": 3})
    again = House(desk, yard)
    outcome = await again.run(given._replace(task=changed, kept=kept))
    assert outcome == Succeeded(result='"done"')


async def test_an_agent_with_sections_is_told_of_its_run_in_them(desk):
    given = await agent_run(desk, envelope=True, previous_result=True)
    yard = Trial(said(line("result", text="the <first>")), said(DONE))
    work = House(desk, yard).work
    given = await next_run(desk, given, await work.run(given))
    await work.run(given)
    first, second = (started.stdin.decode() for started in yard.started)
    assert first.startswith('<task title="job" id="')
    assert 'zone="UTC"/>\n\n<instructions>\nLook.\n</instructions>' in first
    assert "<previous_result" not in first
    assert "the &lt;first&gt;\n</previous_result>" in second


async def test_internal_text_is_on_record_and_is_not_told_to_anybody(desk):
    given = await agent_run(desk)
    policy = replace(given.task.policy, deliver_to="log:")
    given = given._replace(task=replace(given.task, policy=policy))
    yard = Trial(said(line("result", text="<internal>kestrel</internal>")))
    report = await House(desk, yard).work.run(given)
    assert report.outcome == Succeeded(silent=True)
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    run_id = given.lease.run_id
    assert await desk.state(run_id) is RunState.SUCCEEDED
    assert await desk.store.read(list_deliveries, run_id, 10) == []
    assert (await desk.run(run_id)).mark is SuppressionReason.SILENT
    output = [event.data["text"] for event in await desk.store.read(list_run_output, run_id, 10)]
    assert output == ["<internal>kestrel</internal>"]


@pytest.mark.parametrize(
    ("text", "result"),
    [("Paid. <internal>kestrel</internal>", '"Paid."'), ("Paid. <internal>kestrel", '"Paid."')],
)
async def test_what_is_left_of_a_result_is_the_result(desk, text, result):
    given = await agent_run(desk)
    yard = Trial(said(line("result", text=text)))
    assert await House(desk, yard).run(given) == Succeeded(result=result)


async def test_a_question_is_asked_without_it(desk):
    given = await agent_run(desk)
    asks = line("question", text="Pay?<internal>kestrel</internal>", context="<internal>kestrel")
    assert await House(desk, Trial(said(asks))).run(given) == WaitingForAnswer(question="Pay?")


async def test_a_script_may_write_what_it_likes(desk):
    given = await assignment(desk)
    outcome = await House(desk, Trial(said(b"<internal>x</internal>\n"))).run(given)
    assert outcome == Succeeded(result='"<internal>x</internal>"')


async def test_too_much_or_nothing_cannot_be_said(desk):
    await answering(desk)
    for text in ("", "x" * 16_001):
        with pytest.raises(Invalid, match="text"):
            await tell(desk, text)
    other = await desk.space("ann")
    await desk.store.write(add_thread, other.id, "ann:own")
    with pytest.raises(NotFound):
        await tell(desk, "hello", thread="ann:own")


async def test_what_an_agent_asks_for_beside_its_result_is_not_lost_with_internal_text(desk):
    given = await agent_run(desk)
    policy = replace(given.task.policy, deliver_to="log:")
    given = given._replace(task=replace(given.task, policy=policy))
    told = "calm<internal>kestrel</internal>"
    yard = Trial(said(line("result", text=told, silent=True, next_check="2h")))
    report = await House(desk, yard).work.run(given)
    assert report.outcome == Succeeded(result='"calm"', silent=True, next_check="2h")
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    assert await desk.store.read(list_deliveries, given.lease.run_id, 10) == []


async def test_ist_39_people_wait_for_what_reads_them_and_a_named_pool_wins(desk):
    task = await answering(desk)
    assert (await enqueue(desk.store, task, None)).created
    runs = [await desk.run(message.reader) for message in await tell(desk, "one")]
    (asked, *_) = await desk.store.read(list_runs, RunFilter(task_id=task.id, limit=2))
    assert (asked.id, runs[0].pool) == (runs[0].id, Pool.FOREGROUND)
    first = await desk.store.read(list_runs, RunFilter(before=asked.id))
    assert [run.pool for run in first] == [Pool.BACKGROUND]
    await desk.end_open(asked.id, Cancelled(reason="not now"))
    again = await run_again(desk.store, LOCAL, asked.id)
    assert (await desk.run(again.run_id)).pool is Pool.FOREGROUND
    named = await answering(desk, "named", "talk:there")
    policy = replace(named.policy, pool=Pool.BACKGROUND)
    await put_task(
        desk.store, LOCAL, "named", kind=TaskKind.AGENT, route="agent", thread="talk:there",
        spec=dict(named.spec), policy=policy, replace=True,
    )  # fmt: skip
    (other,) = await tell(desk, "two", thread="talk:there")
    assert (await desk.run(other.reader)).pool is Pool.BACKGROUND


async def test_g2_49_a_registered_task_answers_in_many_threads(desk):
    task = await answering(desk)
    owner = await desk.space("main")
    for key in ("talk:one", "talk:two"):
        await desk.store.write(put_thread, NewThread(owner.id, key, {"task_id": task.id}))
        (message,) = await tell(desk, "Hello?", thread=key)
        run = await desk.run(message.reader)
        assert (run.task, run.lane) == ("talk", key)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("@Rota, hello", True), ("hello @ROTA!", True), ("hello\n@rota", True),
        ("me@rota.example", False), ("@rotating", False), ("rota", False), ("", False),
    ],
)  # fmt: skip
def test_g2_09_a_trigger_is_a_word_of_its_own_in_any_case(text, wanted):
    assert asks_for_answer("@rota", text) is wanted
    assert asks_for_answer(None, text)

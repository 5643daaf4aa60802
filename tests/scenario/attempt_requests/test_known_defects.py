"""Deferred operations and confirmations of other systems (IST rows): what went wrong there."""

from __future__ import annotations

import pytest

from rota.errors import NotPermitted
from rota.flow.settle import running
from rota.model.attempts import AttemptReport, Succeeded, WaitingForAnswer
from rota.rules.settlement import SettlementContext, settle
from rota.store.settlement import settle as write_settlements
from rota.store.tasks import get_seen, list_state
from rota.store.views import list_deliveries
from tests.contract.store.talking import AGAIN
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import failed


async def deferred(agent):
    await agent("defer_state", key="n", value=agent.lease.epoch)
    await agent("defer_seen", items=[{"item": "t-1"}])
    await agent("defer_message", text="The mail", to="email:ann", name="mail")
    await agent("spawn_subtask", instructions="Go on.")


async def done(talkers, task):
    """Return how often each deferred thing has been done."""
    seen = await talkers.store.read(get_seen, task.id, "default", "t-1")
    kept = await talkers.store.read(list_state, task.id, "", 10)
    runs = await talkers.person("list_runs", task="once-agent")
    return {
        "state": [int(one.value) for one in kept],
        "seen": 0 if seen is None else seen.count,
        "mails": len(await talkers.store.read(list_deliveries, None, 10)),
        "subtasks": len(runs["runs"]),
    }


NOTHING = {"state": [], "seen": 0, "mails": 0, "subtasks": 0}


async def test_ist_w06_a_crash_in_the_middle_applies_nothing_and_a_retry_all_of_it_once(talkers):
    """Files were applied after the commit: a crash between lost them, or a retry replayed them."""
    agent = await talkers.begin()
    task = agent.assignment.task
    await deferred(agent)
    context = SettlementContext(policy=task.policy, now=talkers.store.now())
    ended = settle(running(agent.lease), AttemptReport(outcome=Succeeded()), context)

    async def nothing_is_done():
        assert await done(talkers, task) == NOTHING

    cuts = await cut_at_every_query(
        talkers.store, write_settlements, [ended], check=nothing_is_done
    )
    assert cuts > 10
    assert await agent.end()  # it says so once more, because it never got the answer
    assert await done(talkers, task) == {"state": [1], "seen": 1, "mails": 1, "subtasks": 1}


async def test_ist_26_a_failed_run_leaves_no_effect(small):
    agent = await small.begin()
    await deferred(agent)
    assert await agent.end(failed())
    assert await done(small, agent.assignment.task) == NOTHING


async def test_ist_27_subtasks_of_a_member_are_refused_and_told_so(small):
    agent = await small.begin(await small.task(space="ann"))
    with pytest.raises(NotPermitted, match="only the role 'main'"):
        await agent("spawn_subtask", instructions="Go on.")
    assert await agent.end()
    assert await small.bench.claim() == []


async def test_ist_28_the_same_items_applied_twice_are_there_once(small):
    task = await small.task()
    for count in (1, 2):
        agent = await small.begin(task)
        await agent("defer_seen", items=[{"item": "t-1"}, {"item": "t-2"}])
        assert await agent.end()
        found = await small.person("get_seen", task="agent", item="t-1")
        assert (found["count"], found["new"]) == (count, count == 1)


async def test_ist_32_a_retry_does_not_apply_what_the_first_attempt_deferred(small):
    agent = await small.begin(retry=AGAIN)
    await deferred(agent)
    await agent.end(failed())
    again = await small.next()
    assert await again.end()
    assert await done(small, agent.assignment.task) == NOTHING


async def test_ist_32_what_was_deferred_before_a_question_is_applied_after_the_answer(talkers):
    agent = await talkers.begin()
    await deferred(agent)
    await agent.asks()
    assert await done(talkers, agent.assignment.task) == NOTHING
    await talkers.person("answer_run", run=agent.run_id, answer="yes")
    again = await talkers.next()
    await again("defer_message", text="The mail", to="email:ann", name="mail")
    assert await done(talkers, agent.assignment.task) == NOTHING
    assert await again.end()
    expected = {"state": [1], "seen": 1, "mails": 1, "subtasks": 1}
    assert await done(talkers, agent.assignment.task) == expected


async def test_ist_w18_words_that_sound_like_a_question_park_no_run(small):
    """Phrases were searched for in the answer: false hits blocked runs, and a rerun began anew."""
    agent = await small.begin()
    assert await agent.end(Succeeded(result='"Please confirm. Reply yes or no."'))
    assert (await small.person("show_run", run=agent.run_id))["state"] == "succeeded"
    agent = await small.begin(agent.assignment.task)
    assert await agent.end(WaitingForAnswer(question="Shall I?", default="no"))
    (waiting,) = (await small.person("list_waiting"))["waiting"]
    asked = waiting["question"]
    assert (asked["attempt"], asked["default"]) == (1, "no")
    await small.person("answer_run", run=agent.run_id, question=asked["id"], answer="yes")
    again = await small.next()
    assert (again.lease.cause, again.assignment.answers) == ("resume", ("yes",))

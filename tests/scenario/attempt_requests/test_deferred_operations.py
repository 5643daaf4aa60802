"""What an attempt says for its run is done once, or when it has succeeded, or never."""

from __future__ import annotations

import json

import pytest

from rota.errors import Conflict, Fenced, Invalid, NotFound, NotPermitted
from rota.flow.define import attempt_requests
from rota.flow.settle import running
from rota.model.attempt_requests import MAX_DEFERRED
from rota.model.attempts import AttemptReport, Lost, Succeeded
from rota.model.tasks import OnLost
from rota.rules.permissions import LOCAL
from rota.rules.settlement import SettlementContext, settle
from rota.store.settlement import settle as write_settlements
from rota.store.tasks import get_seen, list_state, put_state
from rota.store.views import list_deliveries
from tests.contract.store.test_attempt_requests import AGAIN
from tests.scenario.attempt_requests.attempts import COMMANDS
from tests.tools.power_cut import cut_at_every_query
from tests.tools.store_bench import failed

INSIDE = {
    name: command for name, command in COMMANDS.items() if command.group == "attempt_requests"
}
FIELDS = {
    "send_message": {"text": "hello", "to": "log:"},
    "ask_user": {"question": "Shall I?"},
    "spawn_subtask": {"instructions": "Go on."},
    "defer_state": {"key": "n", "value": 1},
    "defer_seen": {"items": [{"item": "a"}]},
    "defer_message": {"text": "hello", "to": "log:"},
    "defer_alert": {"text": "hello"},
    "get_effect": {"name": "x"},
    "record_effect": {"name": "x", "result": 1},
}


async def nothing_was_done(talkers, task):
    assert await talkers.store.read(list_deliveries, None, 10) == []
    assert await talkers.store.read(list_state, task.id, "", 10) == []
    assert await talkers.store.read(get_seen, task.id, "default", "a") is None
    assert await talkers.bench.claim() == []


@pytest.mark.parametrize("name", INSIDE)
async def test_nobody_but_an_attempt_speaks_and_only_for_its_own_run(small, name):
    agent = await small.begin()
    other = await small.begin(await small.task("other"))
    with pytest.raises(NotFound):
        await small.ask(name, LOCAL, FIELDS[name])
    with pytest.raises(NotFound):
        await agent(name, run=other.run_id, **FIELDS[name])
    assert await other.end()
    await nothing_was_done(small, agent.assignment.task)


@pytest.mark.parametrize("name", INSIDE)
async def test_an_attempt_that_has_lost_its_run_says_nothing_any_more(small, name):
    old = await small.begin(on_lost=OnLost.RETRY)
    await old.end(Lost(reason="gone"))
    new = await small.next()
    for stale in (old, new.as_another(epoch=old.lease.epoch)):
        with pytest.raises(Fenced):
            await stale(name, **FIELDS[name])
    assert await new.end()
    with pytest.raises(Fenced):
        await new(name, **FIELDS[name])
    await nothing_was_done(small, new.assignment.task)


async def test_a_message_goes_to_the_thread_at_once_whatever_becomes_of_the_run(small):
    agent = await small.begin(await small.task(thread="cli:default"))
    told = await agent("send_message", text="I have begun.")
    (delivery,) = await small.store.read(list_deliveries, agent.run_id, 10)
    assert (delivery.channel, delivery.target, delivery.body) == ("cli", "default", "I have begun.")
    assert (told["again"], told["result"]) == (False, {"delivery": delivery.id})
    assert await agent.end(failed())
    assert len(await small.store.read(list_deliveries, agent.run_id, 10)) == 1


@pytest.mark.parametrize("space", ["main", "ann"])
async def test_a_place_that_a_channel_leads_to_is_preferred_and_any_other_warned_of(small, space):
    small.channels = ("log",)
    task = await small.task(space=space, thread=f"cli:{space}", deliver_to="log:ann")
    agent = await small.begin(task)
    told = await agent("send_message", text="one")
    dead = await agent("send_message", text="two", to=f"cli:{space}")
    assert (told["warning"], "no channel 'cli'" in dead["warning"]) == (None, True)
    late = await agent("defer_message", text="three", to=f"cli:{space}")
    assert "use log" in late["warning"]
    agent = await small.begin(await small.task("mute", space=space, thread=f"cli:{space}"))
    assert (await agent("defer_alert", text="four"))["warning"] is None
    assert await agent.end()
    sent = await small.store.read(list_deliveries, None, 10)
    places = {each.body: f"{each.channel}:{each.target}" for each in sent}
    assert places == {"one": "log:ann", "two": f"cli:{space}", "four": "log:"}


async def test_a_retried_run_is_told_that_it_has_sent_its_message(talkers):
    agent = await talkers.begin(retry=AGAIN)
    first = await agent("send_message", text="The report of today", to="log:ann", name="report")
    await agent.end(failed())
    again = await talkers.next()
    told = await again("send_message", text="Today's report", to="log:ann", name="report")
    assert told == {**first, "again": True}
    assert (await again("get_effect", name="report"))["result"] == first["result"]
    other = await again("send_message", text="Something else", to="log:ann")
    assert not other["again"]
    assert (await again("send_message", text="Something else", to="log:ann"))["again"]
    assert len(await talkers.store.read(list_deliveries, agent.run_id, 10)) == 2


async def test_what_a_script_did_itself_is_kept_for_its_next_attempt(small):
    agent = await small.begin(retry=AGAIN)
    with pytest.raises(NotFound, match="not happened"):
        await agent("get_effect", name="payment")
    await agent("record_effect", name="payment", result={"receipt": 7})
    await agent.end(failed())
    again = await small.next()
    assert (await again("get_effect", name="payment"))["result"] == {"receipt": 7}
    told = await again("record_effect", name="payment", result={"receipt": 8})
    assert (told["again"], told["result"]) == (True, {"receipt": 7})


async def test_an_attempt_of_a_member_speaks_only_where_its_run_is_heard(small):
    task = await small.task(space="ann", thread="ann:room", deliver_to="log:ann")
    agent = await small.begin(task)
    for where in ("ann:room", "log:ann", None):
        await agent("send_message", text=f"to {where}", to=where)
    for where in ("log:bob", "telegram:chat:1", "log:"):
        for name in ("send_message", "defer_message"):
            with pytest.raises(NotPermitted, match="may not send to"):
                await agent(name, text="hello", to=where)
    with pytest.raises(Invalid, match="channel:target"):
        await agent("send_message", text="hello", to="nowhere")
    assert len(await small.store.read(list_deliveries, agent.run_id, 10)) == 3


async def test_everything_deferred_happens_with_the_success(talkers):
    task = await talkers.task(deliver_to="log:ann")
    agent = await talkers.begin(task)
    await agent("defer_state", key="cursor", value={"page": 2})
    await agent("defer_state", key="gone", forget=True)
    await agent("defer_seen", items=[{"item": "a"}, {"item": "b", "provider": "mail"}])
    put = await agent("defer_message", text="The mail", to="email:ann@example.org", name="mail")
    assert (put["put"], put["effect"]) == ("deferred", None)
    await agent("defer_alert", text="Look at this.")
    await talkers.store.write(put_state, task.id, "gone", "1", "ann")
    assert [d.body for d in await talkers.store.read(list_deliveries, None, 10)] == []
    assert await agent.end()
    kept = await talkers.store.read(list_state, task.id, "", 10)
    assert [(one.key, json.loads(one.value)) for one in kept] == [("cursor", {"page": 2})]
    sent = {
        (d.channel, d.target): d.body for d in await talkers.store.read(list_deliveries, None, 10)
    }
    assert sent["email", "ann@example.org"] == "The mail"
    assert {d.body for d in await talkers.store.read(list_deliveries, None, 10)} == {
        "The mail", "Look at this.", "done",
    }  # fmt: skip


async def test_a_subtask_has_its_parents_pool_thread_agent_and_walls(small):
    walls = {"executor": "sandbox", "network": "none", "tools": ["Read"]}
    spec = {**walls, "agent": "claude", "metadata": {"secret": 1}}
    task = await small.task(spec=spec, thread="cli:default", priority=7)
    agent = await small.begin(task)
    put = await agent("spawn_subtask", instructions="Look further.", payload={"n": 1})
    assert (put["put"], await small.bench.claim()) == ("deferred", [])
    assert await agent.end()
    child = await small.next()
    run = await small.bench.run(child.run_id)
    assert (run.task, run.upstream_id, run.priority) == ("once-agent", agent.run_id, 7)
    assert run.pool == (await small.bench.run(agent.run_id)).pool
    assert (child.lease.thread, child.lease.depth) == ("cli:default", 1)
    errand = json.loads(run.payload)
    assert errand == {
        **walls, "agent": "claude", "instructions": "Look further.", "payload": {"n": 1},
    }  # fmt: skip
    grandchild = await child("spawn_subtask", instructions="And further.")
    assert grandchild["put"] == "deferred"
    assert await child.end()
    second = await small.next()
    assert json.loads((await small.bench.run(second.run_id)).payload)["executor"] == "sandbox"


async def test_subtasks_are_for_main_and_go_only_so_deep(small):
    member = await small.begin(await small.task(space="ann"))
    with pytest.raises(NotPermitted, match="'main'"):
        await member("spawn_subtask", instructions="Go on.")
    agent = await small.begin(await small.task("root"))
    for _ in range(attempt_requests.DEEPEST_SUBTASK):
        await agent("spawn_subtask", instructions="Again.")
        assert await agent.end()
        agent = await small.next()
    with pytest.raises(Conflict, match="4 deep"):
        await agent("spawn_subtask", instructions="Again.")


async def test_e10_an_agent_cannot_flood_the_store_or_the_queue(small):
    agent = await small.begin()
    for number in range(20):
        await agent("spawn_subtask", instructions=f"Work {number}.")
    with pytest.raises(Conflict, match="21 subtasks, at most 20"):
        await agent("spawn_subtask", instructions="One more.")
    for number in range(MAX_DEFERRED - 20):
        await agent("defer_state", key=f"k{number}", value=number)
    with pytest.raises(Conflict, match="at most 200"):
        await agent("defer_state", key="more", value=1)


async def test_the_same_effect_is_deferred_once_and_never_after_it_was_done(small):
    agent = await small.begin(retry=AGAIN)
    said = {"text": "hello", "to": "log:"}
    assert (await agent("defer_message", **said))["put"] == "deferred"
    assert (await agent("defer_message", **said))["put"] == "already_deferred"
    await agent.end(failed())
    again = await small.next()
    await again("send_message", **said)
    put = await again("defer_message", **said)
    assert (put["put"], put["effect"]["again"]) == ("already_done", True)
    assert await again.end()
    assert len(await small.store.read(list_deliveries, None, 10)) == 1


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


async def test_a_crash_in_the_middle_applies_nothing_and_a_retry_all_of_it_once(talkers):
    """IST-W06: Files were applied after the commit: a crash between lost them, or a retry replayed them."""
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


async def test_a_failed_run_leaves_no_effect(small):
    """IST-26."""
    agent = await small.begin()
    await deferred(agent)
    assert await agent.end(failed())
    assert await done(small, agent.assignment.task) == NOTHING


async def test_subtasks_of_a_member_are_refused_and_told_so(small):
    """IST-27."""
    agent = await small.begin(await small.task(space="ann"))
    with pytest.raises(NotPermitted, match="only the role 'main'"):
        await agent("spawn_subtask", instructions="Go on.")
    assert await agent.end()
    assert await small.bench.claim() == []


async def test_the_same_items_applied_twice_are_there_once(small):
    """IST-28."""
    task = await small.task()
    for count in (1, 2):
        agent = await small.begin(task)
        await agent("defer_seen", items=[{"item": "t-1"}, {"item": "t-2"}])
        assert await agent.end()
        found = await small.person("get_seen", task="agent", item="t-1")
        assert (found["count"], found["new"]) == (count, count == 1)


async def test_a_retry_does_not_apply_what_the_first_attempt_deferred(small):
    """IST-32."""
    agent = await small.begin(retry=AGAIN)
    await deferred(agent)
    await agent.end(failed())
    again = await small.next()
    assert await again.end()
    assert await done(small, agent.assignment.task) == NOTHING


async def test_what_was_deferred_before_a_question_is_applied_after_the_answer(talkers):
    """IST-32."""
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

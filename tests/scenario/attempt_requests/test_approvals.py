"""An approval is about exactly the bytes that were shown (attack cases E1 to E5)."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest

from rota.errors import Conflict, IllegalMove, Invalid, NotFound, NotPermitted
from rota.flow.maintain import expire
from rota.rules.approvals import DECISIONS, decision, question_text
from rota.store.views import list_questions
from tests.scenario.attempt_requests.attempts import ANN

DEPLOY = {"tool": "shell", "args": ["deploy", "--to", "production"], "env": {"REGION": "eu"}}


async def decide(talkers, question, answer="approve", /, **fields):
    said = {"answer": answer, "action_hash": question["action_hash"], **fields}
    return await talkers.person("answer_run", run=question["run"], **said)


async def test_the_whole_action_is_shown_with_its_hash_and_who_asks(small):
    agent = await small.begin()
    question = await agent.asks(question="Deploy?", action=DEPLOY)
    assert (question["kind"], question["options"]) == ("approval", list(DECISIONS))
    shown = json.loads(question["action"])
    assert shown == {
        "action": DEPLOY, "attempt": 1, "run": agent.run_id, "space": "main", "task": "agent",
    }  # fmt: skip
    assert list(shown) == sorted(shown)
    assert question["action_hash"] == hashlib.sha256(question["action"].encode()).hexdigest()


@pytest.mark.parametrize("answer", DECISIONS)
async def test_the_resumed_attempt_is_told_the_decision_with_the_hash(small, answer):
    agent = await small.begin()
    question = await agent.asks(question="Deploy?", action=DEPLOY)
    assert (await decide(small, question, answer))["state"] == "queued"
    again = await small.next()
    bound = f"{answer} sha256:{question['action_hash']}"
    assert again.assignment.answers == (bound,)
    (asked,) = await small.store.read(list_questions, [again.run_id])
    assert bound in decision(asked)
    assert question["action"] in question_text(asked)


async def test_e1_an_agent_cannot_approve_for_itself_or_for_another(small):
    agent = await small.begin()
    other = await small.begin(await small.task("other"))
    question = await agent.asks(question="Deploy?", action=DEPLOY)
    for attempt in (agent, other):
        with pytest.raises(NotPermitted, match="only people"):
            await attempt(
                "answer_run",
                run=agent.run_id,
                answer="approve",
                action_hash=question["action_hash"],
            )
    with pytest.raises(NotFound):  # another space's people, too
        await small.person(
            "answer_run",
            ANN,
            run=agent.run_id,
            answer="approve",
            action_hash=question["action_hash"],
        )
    assert (await small.person("show_run", run=agent.run_id))["state"] == "waiting"


async def test_e2_one_changed_byte_makes_an_approval_void(small):
    agent = await small.begin()
    question = await agent.asks(question="Deploy?", action=DEPLOY)
    changed = question["action"].replace("production", "productiom")
    digest = hashlib.sha256(changed.encode()).hexdigest()
    with pytest.raises(Conflict, match="does not match the action"):
        await decide(small, question, action_hash=digest)
    with pytest.raises(Invalid, match="^action_hash"):
        await decide(small, question, action_hash=None)
    assert (await decide(small, question))["state"] == "queued"


async def test_e2_the_same_action_asked_again_needs_an_approval_of_its_own(small):
    agent = await small.begin()
    first = await agent.asks(question="Deploy?", action=DEPLOY)
    await decide(small, first)
    again = await small.next()
    second = await again.asks(question="Deploy?", action=DEPLOY)
    assert second["action_hash"] != first["action_hash"]
    with pytest.raises(Conflict, match="does not match the action"):
        await decide(small, first)  # a click that came twice
    with pytest.raises(IllegalMove, match="closed"):
        await decide(small, first, question=first["id"])
    assert (await small.person("show_run", run=agent.run_id))["state"] == "waiting"


async def test_e3_of_two_decisions_at_once_one_counts(talkers):
    agent = await talkers.begin()
    question = await agent.asks(question="Deploy?", action=DEPLOY)
    answers = ("approve", "deny", "approve", "deny")
    tries = [decide(talkers, question, answer) for answer in answers]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert [isinstance(one, dict) for one in done].count(True) == 1, done
    shown = await talkers.person("show_run", run=agent.run_id)
    assert (
        shown["questions"][0]["answer"] == answers[[isinstance(d, dict) for d in done].index(True)]
    )
    assert [event["name"] for event in shown["events"]] == [
        "run.question_asked",
        "run.question_answered",
    ]


async def test_e3_a_decision_after_expiry_or_cancellation_is_void(small, chance):
    agent = await small.begin()
    question = await agent.asks(question="Deploy?", action=DEPLOY, expires_in="1m")
    await small.person("cancel_run", run=agent.run_id)
    with pytest.raises(IllegalMove, match="closed"):
        await decide(small, question)
    agent = await small.begin(agent.assignment.task)
    question = await agent.asks(question="Deploy?", action=DEPLOY, expires_in="1m", default="deny")
    small.clock.advance(minutes=1)
    with pytest.raises(Conflict, match="has expired"):
        await decide(small, question)
    await expire(small.store, chance)
    again = await small.next()
    assert again.assignment.answers == (f"deny sha256:{question['action_hash']}",)


HIDDEN = {
    "a right-to-left override": "rm \u202etxt.exe",
    "a zero-width joiner": "safe\u200d\u200bname",
    "a terminal sequence": "ok\x1b[8m; rm -rf /\x1b[0m",
    "a carriage return": "rm -rf /\rls",
    "padding": "ls" + "\u2003" * 200 + "; rm -rf /",
    "a line separator": "ls\u2028rm",
    "a tag character": "ls\U000e0041",
    "a lone surrogate": "ls\ud800",
    "a letter drawn as nothing": "ls\u3164rm\u2800",
    "a variation selector": "ls\ufe0f\U000e0100",
    "a stroke through it": "l\u0336s\u0336",
    "a deleted character": "rm\x7f\x7fls",
}


@pytest.mark.parametrize("words", HIDDEN.values(), ids=HIDDEN.keys())
async def test_e4_nothing_in_an_action_can_hide(small, words):
    agent = await small.begin()
    question = await agent.asks(question="Run it?", action={"argv": ["sh", "-c", words]})
    shown = question["action"]
    assert shown.isprintable()
    assert json.loads(shown)["action"]["argv"][2] == words  # and nothing is left out
    assert question["action_hash"] == hashlib.sha256(shown.encode()).hexdigest()


async def test_e4_an_action_that_nobody_would_read_to_its_end_is_refused(small):
    agent = await small.begin()
    with pytest.raises(Invalid, match="at most 16384"):
        await agent("ask_user", question="Run it?", action={"argv": ["sh", " " * 17_000]})


@pytest.mark.parametrize("answer", ["always", "yes", "approve all", "Approve", "approve "])
async def test_e5_there_is_no_always(small, answer):
    agent = await small.begin()
    question = await agent.asks(question="Run it?", action={"argv": ["env", "sh", "-c", "x"]})
    with pytest.raises(Invalid, match="approve, deny"):
        await decide(small, question, answer)

"""What a person approves in a control request, Rota does itself: once, and no more than it may."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.errors import Conflict, IllegalMove, NotFound, NotPermitted, Unavailable
from rota.flow.define.runs import answer_question
from rota.model.keys import KeyScope
from rota.model.runs import RunState
from rota.model.views import RunFilter
from rota.rules.approvals import QuestionAuthor, question_in
from rota.rules.permissions import LOCAL, OWNER, Caller
from rota.store.sql_console import SqlResult
from rota.store.views import list_runs
from rota.store.workers import get_open_runs
from tests.scenario.attempt_requests.attempts import ANN


async def asks(talkers, action, payload, agent=None, **more):
    """Let an attempt ask for a control action in a block; return the question."""
    agent = agent or await talkers.begin()
    request = {"action_id": "a1", "action": action, "payload": payload, **more}
    text = f"[ZUBOT_CONTROL_REQUEST]{json.dumps(request)}[/ZUBOT_CONTROL_REQUEST]"
    task = agent.assignment.task
    asker = QuestionAuthor(
        run=agent.run_id, attempt=agent.lease.epoch, task=task.name, space=task.space
    )
    assert await agent.end(question_in(text, asker, talkers.store.now()))
    shown = await talkers.person("show_run", run=agent.run_id)
    assert shown["state"] == "waiting"
    return shown["questions"][-1]


async def decide(talkers, question, caller=LOCAL, answer="approve"):
    said = {"answer": answer, "action_hash": question["action_hash"]}
    return await talkers.person("answer_run", caller, run=question["run"], **said)


async def runs_of(talkers, task):
    found = await talkers.store.read(list_runs, RunFilter(task_id=task.id, limit=100))
    return [run for run in found if run.state is not RunState.WAITING]


async def told(talkers, question):
    """Return what is shown with the answer, having made sure that the run is told the same."""
    run = await talkers.person("show_run", run=question["run"])
    (asked,) = [each for each in run["questions"] if each["id"] == question["id"]]
    again = await talkers.next()
    while again.run_id != question["run"]:
        again = await talkers.next()
    words = again.assignment.answers[-1].split(" ", 2)
    assert words[:2] == ["approve", f"sha256:{question['action_hash']}"]
    assert json.loads(words[2]) == asked["outcome"]
    return asked["outcome"]


async def test_a_run_of_a_task_is_queued_once(talkers):
    report = await talkers.task("report")
    question = await asks(talkers, "enqueue_task", {"task": "report", "payload": {"day": 1}})
    assert json.loads(question["action"])["by"] == "rota"
    assert await runs_of(talkers, report) == []
    answered = await decide(talkers, question)
    assert (answered["state"], answered["outcome"]["ok"]) == ("queued", True)
    with pytest.raises(IllegalMove, match="closed"):
        await decide(talkers, question)
    (run,) = await runs_of(talkers, report)
    assert (run.id, run.payload) == (answered["outcome"]["run"], '{"day": 1}')
    assert await told(talkers, question) == answered["outcome"]


async def test_of_many_who_approve_at_once_one_does_it(talkers):
    report = await talkers.task("report")
    question = await asks(talkers, "enqueue_task", {"task_id": report.id})
    tries = [decide(talkers, question) for _ in range(5)]
    done = await asyncio.gather(*tries, return_exceptions=True)
    assert [isinstance(one, dict) for one in done].count(True) == 1, done
    assert len(await runs_of(talkers, report)) == 1


async def test_what_is_denied_or_runs_out_is_not_done(small):
    report = await small.task("report")
    question = await asks(small, "enqueue_task", {"task": "report"})
    assert (await decide(small, question, answer="deny"))["outcome"] is None
    agent = await small.next()
    until = small.clock.now() + timedelta(seconds=5)
    question = await asks(
        small, "enqueue_task", {"task": "report"}, agent, expires_at=until.isoformat()
    )
    small.clock.advance(seconds=5)
    with pytest.raises(Conflict, match="has expired"):
        await decide(small, question)
    assert await runs_of(small, report) == []


async def test_work_for_an_agent_is_queued_as_anybody_would_queue_it(small):
    payload = {
        "instructions": "Look.", "timeout_sec": 60, "agent": "claude", "metadata": {"a": 1}
    }  # fmt: skip
    question = await asks(small, "enqueue_agentic_task", payload)
    outcome = (await decide(small, question))["outcome"]
    run = await small.person("show_run", run=outcome["run"])
    assert run["task"] == "once-agent"
    expected = {"instructions": "Look.", "timeout": 60.0, "agent": "claude", "metadata": {"a": 1}}
    assert run["payload"] == expected


async def test_a_run_in_the_queue_is_cancelled_and_one_that_goes_on_told_to_stop(talkers):
    other = await talkers.task("other")
    (queued,) = await talkers.bench.queue(other, at=talkers.clock.now() + timedelta(hours=1))
    question = await asks(talkers, "kill_task_run", {"run_id": queued})
    assert (await decide(talkers, question))["outcome"] == {
        "ok": True, "run": queued, "state": "cancelled",
    }  # fmt: skip
    ended = await talkers.person("show_run", run=queued)
    assert ended["state"] == "cancelled"
    assert ended["error"] == f"cancelled by {OWNER}, as requested by run {question['run']}"
    await talkers.next()
    going = await talkers.begin(other)
    question = await asks(talkers, "kill_task_run", {"run": going.run_id})
    outcome = (await decide(talkers, question))["outcome"]
    assert outcome == {"ok": True, "run": going.run_id, "state": "running"}
    (facts,) = await talkers.store.read(get_open_runs, [going.run_id])
    assert facts.cancel_requested


async def test_a_run_may_ask_to_be_ended_itself(talkers):
    agent = await talkers.begin()
    question = await asks(talkers, "kill_task_run", {"run": agent.run_id}, agent)
    answered = await decide(talkers, question)
    assert (answered["state"], answered["outcome"]["ok"]) == ("cancelled", True)


async def test_two_runs_that_end_each_other_both_end(talkers):
    one, two = await talkers.begin(), await talkers.begin(await talkers.task("two"))
    first = await asks(talkers, "kill_task_run", {"run": two.run_id}, one)
    second = await asks(talkers, "kill_task_run", {"run": one.run_id}, two)
    done = await asyncio.gather(
        decide(talkers, first), decide(talkers, second), return_exceptions=True
    )
    closed = [each for each in done if isinstance(each, IllegalMove)]
    ended = [each for each in done if isinstance(each, dict)]
    assert len(closed) + len(ended) == 2, done
    states = [(await talkers.person("show_run", run=one.run_id))["state"] for one in (one, two)]
    assert "cancelled" in states


@pytest.mark.parametrize(
    ("action", "payload", "code"),
    [
        ("enqueue_task", {"task": "nothing"}, "not_found"),
        ("enqueue_task", {"script": {"command": ["rm"]}}, "invalid"),
        ("enqueue_task", "report", "invalid"),
        ("enqueue_task", {}, "invalid"),
        ("enqueue_agentic_task", {"instructions": ""}, "invalid"),
        ("enqueue_agentic_task", {"instructions": "x", "agent": "nobody"}, "invalid"),
        ("enqueue_agentic_task", {"instructions": "x", "executor": "process"}, "invalid"),
        ("kill_task_run", {"run": 999}, "not_found"),
        ("kill_task_run", {"run": True}, "invalid"),
        ("kill_task_run", {}, "invalid"),
    ],
)
async def test_what_cannot_be_done_is_told_to_the_run_that_asked(small, action, payload, code):
    question = await asks(small, action, payload)
    outcome = (await decide(small, question))["outcome"]
    assert (outcome["ok"], outcome["error"]["code"]) == (False, code)
    assert await told(small, question) == outcome


async def test_a_run_that_has_ended_is_not_cancelled(small):
    agent = await small.begin(await small.task("other"))
    await agent.end()
    question = await asks(small, "kill_task_run", {"run": agent.run_id})
    outcome = (await decide(small, question))["outcome"]
    assert outcome["error"]["code"] == "illegal_move"
    assert (await small.person("show_run", run=agent.run_id))["state"] == "succeeded"


async def test_a_members_run_reaches_nothing_of_others_whoever_approves(small):
    mains = await small.task("secret")
    await small.bench.queue(mains, at=small.clock.now() + timedelta(hours=1))
    (run,) = await runs_of(small, mains)
    for action, payload in (
        ("enqueue_task", {"task": "secret"}),
        ("enqueue_task", {"task_id": mains.id}),
        ("kill_task_run", {"run": run.id}),
    ):
        agent = await small.begin(await small.task("hers", space="ann"))
        question = await asks(small, action, payload, agent)
        outcome = (await decide(small, question))["outcome"]
        assert outcome["error"]["code"] == "not_found", outcome
        await (await small.next()).end()
    assert [run.state for run in await runs_of(small, mains)] == [RunState.QUEUED]


async def test_who_may_not_do_it_may_not_approve_it(small):
    agent = await small.begin(await small.task("hers", space="ann"))
    question = await asks(small, "query_central_db", {"sql": "select 1"}, agent)
    poor = replace(ANN, scopes=frozenset({KeyScope.READ, KeyScope.RUN}))
    with pytest.raises(NotPermitted, match="scope 'sql'"):
        await decide(small, question, poor)
    reader = replace(ANN, scopes=frozenset({KeyScope.READ}))
    with pytest.raises(NotPermitted, match="scope 'run'"):
        await decide(small, question, reader)
    other = Caller(space="bob", role=ANN.role, name="bob", id="key:bob")
    with pytest.raises(NotFound):
        await decide(small, question, other)
    with pytest.raises(NotPermitted, match="only people"):
        await decide(small, question, agent.caller)
    assert (await small.person("show_run", run=agent.run_id))["state"] == "waiting"


class Inquirer:
    """Answers every query with the same rows, and notes what it was asked."""

    def __init__(self, rows):
        self.rows = rows
        self.asked = []

    async def ask(self, inquiry):
        self.asked.append(inquiry)
        return SqlResult(columns=("n",), rows=self.rows, truncated=False)

    async def close(self):
        pass


@pytest.mark.parametrize(("space", "all_of_it"), [("main", True), ("ann", False)])
async def test_a_query_sees_what_the_space_of_its_run_sees(small, space, all_of_it):
    small.inquirer = Inquirer(((1,), (2,)))
    agent = await small.begin(await small.task(space=space))
    question = await asks(small, "query_central_db", {"sql": "select 1", "params": [7]}, agent)
    outcome = (await decide(small, question))["outcome"]
    assert outcome == {"ok": True, "columns": ["n"], "rows": [[1], [2]], "truncated": False}
    (asked,) = small.inquirer.asked
    assert (asked.sql, asked.params) == ("select 1", (7,))
    assert (asked.space_id is None) is all_of_it
    assert await told(small, question) == outcome


async def test_an_answer_that_is_too_long_is_cut_and_says_so(small):
    small.inquirer = Inquirer(tuple(("x" * 1_000,) for _ in range(500)))
    question = await asks(small, "query_central_db", {"sql": "select 1"})
    outcome = (await decide(small, question))["outcome"]
    assert outcome["truncated"]
    assert 0 < len(outcome["rows"]) < 33


async def test_where_sql_cannot_be_asked_nothing_is_answered(small):
    question = await asks(small, "query_central_db", {"sql": "select 1"})
    with pytest.raises(Unavailable, match="SQL is not available here"):
        await decide(small, question)
    with pytest.raises(Unavailable, match="rota answer"):  # nor where nobody can do anything
        await answer_question(
            small.store, LOCAL, question["id"], "approve", question["action_hash"]
        )
    assert (await small.person("show_run", run=question["run"]))["state"] == "waiting"


async def test_an_action_that_rota_does_not_know_is_left_to_whoever_asked(small):
    question = await asks(small, "restart_the_moon", {})
    assert "by" not in json.loads(question["action"])
    assert (await decide(small, question))["outcome"] is None
    again = await small.next()
    assert again.assignment.answers == (f"approve sha256:{question['action_hash']}",)


async def test_what_is_asked_for_in_another_way_is_never_done_by_rota(small):
    report = await small.task("report")
    agent = await small.begin()
    request = {"action_id": "a", "action": "enqueue_task", "payload": {"task": "report"}}
    question = await agent.asks(question="?", action={**request, "by": "rota"})
    assert (await decide(small, question))["outcome"] is None
    assert await runs_of(small, report) == []

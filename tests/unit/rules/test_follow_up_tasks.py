"""Which tasks start when a run ends, and what they are told."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from rota.errors import Invalid
from rota.model.runs import RunSource, RunState
from rota.model.tasks import After, AfterOn, Policy, Task, TaskKind
from rota.rules.queue import MAX_CHAIN_DEPTH, MAX_PASSED_RESULT, check_chain, successor_runs

NOW = datetime(2026, 3, 2, tzinfo=UTC)
FINISHED = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.EXPIRED)


def follower(on=AfterOn.SUCCESS, *, enabled=True, task_id=9):
    return Task(
        id=task_id,
        space_id=1,
        space="main",
        name="next",
        title="",
        kind=TaskKind.PYTHON,
        route="python:next",
        spec={},
        policy=Policy(priority=3),
        after=After(task="first", on=on),
        origin="cli",
        enabled=enabled,
        enabled_since=NOW,
        paused_until=None,
        disabled_reason=None,
        failures=0,
        created_at=NOW,
        updated_at=NOW,
        deleted_at=None,
    )


def follow(tasks, state=RunState.SUCCEEDED, result=None, depth=0):
    return successor_runs(tasks, 5, state, result, depth, 1_000)


@pytest.mark.parametrize("state", FINISHED)
@pytest.mark.parametrize(
    ("on", "starts"),
    [
        (AfterOn.SUCCESS, {RunState.SUCCEEDED}),
        (AfterOn.FAILURE, {RunState.FAILED, RunState.EXPIRED}),
        (AfterOn.ANY, {RunState.SUCCEEDED, RunState.FAILED, RunState.EXPIRED}),
    ],
)
def test_a_follower_starts_after_the_ends_it_named_and_never_after_a_cancellation(
    state, on, starts
):
    assert len(follow([follower(on)], state)) == (state in starts)


def test_a_disabled_follower_does_not_start():
    assert follow([follower(enabled=False)]) == ()


def test_a_follower_starts_once_for_each_upstream_run():
    (batch,) = follow([follower()], depth=2)
    assert batch.keys == ["after:5"]
    run = batch.template
    assert (run.upstream_id, run.depth, run.source) == (5, 3, RunSource.AFTER)
    assert (run.task_id, run.priority, run.route) == (9, 3, "python:next")


def test_every_follower_starts():
    assert [b.template.task_id for b in follow([follower(task_id=1), follower(task_id=2)])] == [
        1,
        2,
    ]


def told(result):
    return json.loads(follow([follower()], result=result)[0].payloads[0])["after"]


def test_the_result_is_passed_on():
    assert told('{"n": 1}') == {
        "run": 5,
        "task": "first",
        "state": "succeeded",
        "result": {"n": 1},
    }
    assert "result" not in told(None)


def test_a_result_past_64_kib_is_named_and_not_passed_on():
    fits = json.dumps("x" * (MAX_PASSED_RESULT - 2))
    assert len(fits) == MAX_PASSED_RESULT == 64 * 1024
    assert told(fits)["result"] == json.loads(fits)
    longer = told(json.dumps("x" * MAX_PASSED_RESULT))
    assert (longer["result_too_long"], "result" in longer) == (True, False)


def test_a_chain_ends_at_its_deepest():
    assert len(follow([follower()], depth=MAX_CHAIN_DEPTH - 1)) == 1
    assert follow([follower()], depth=MAX_CHAIN_DEPTH) == ()


def test_a_task_cannot_follow_itself_by_a_detour():
    with pytest.raises(Invalid, match="cycle"):
        check_chain("a", "c", {"b": "a", "c": "b"})
    check_chain("d", "c", {"b": "a", "c": "b"})


def test_a_chain_has_at_most_sixteen_tasks():
    after = {f"t{n}": f"t{n - 1}" for n in range(1, 20)}
    check_chain("new", "t14", after)
    with pytest.raises(Invalid, match="at most 16"):
        check_chain("new", "t15", after)

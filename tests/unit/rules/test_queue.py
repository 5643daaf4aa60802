"""How a task's runs stand in the queue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.model.runs import RunSource
from rota.model.tasks import Overlap, Policy, Pool, task_lane
from rota.rules.queue import lane_of, new_run

NOW = 1_000_000
PLANNED = (RunSource.SLOT, RunSource.BACKFILL)
ASKED_FOR = (RunSource.ENQUEUE, RunSource.MANUAL, RunSource.AFTER)
TASK = "task:7"


@pytest.mark.parametrize("source", RunSource)
@pytest.mark.parametrize("overlap", [None, *Overlap])
def test_a_lane_of_the_policys_own_comes_first(source, overlap):
    assert lane_of(7, Policy(lane="L", overlap=overlap), source) == "L"


@pytest.mark.parametrize("source", PLANNED)
def test_slots_share_their_tasks_lane_by_default(source):
    assert lane_of(7, Policy(), source) == task_lane(7) == TASK


@pytest.mark.parametrize("source", ASKED_FOR)
def test_runs_that_were_asked_for_run_side_by_side_by_default(source):
    assert lane_of(7, Policy(), source) is None


@pytest.mark.parametrize("source", RunSource)
@pytest.mark.parametrize("overlap", Overlap)
def test_a_policy_that_speaks_of_overlap_means_every_run(source, overlap):
    expected = None if overlap is Overlap.ALLOW else TASK
    assert lane_of(7, Policy(overlap=overlap), source) == expected


def test_a_run_takes_its_place_from_the_policy():
    policy = Policy(pool=Pool.FOREGROUND, priority=4, group="g", metered=False)
    run = new_run(7, 1, "python:x", policy, RunSource.ENQUEUE, NOW)
    assert (run.pool, run.priority, run.group, run.metered) == (Pool.FOREGROUND, 4, "g", False)
    assert (run.available_at, run.expires_at, run.lane) == (None, None, None)


def test_a_caller_may_give_another_priority_and_zero_is_one():
    assert new_run(7, 1, "r", Policy(priority=4), RunSource.ENQUEUE, NOW, priority=0).priority == 0


@pytest.mark.parametrize("source", RunSource)
@pytest.mark.parametrize("overlap", [None, *Overlap])
def test_runs_of_one_conversation_share_its_lane_whatever_the_policy_says(source, overlap):
    policy = Policy(lane="L", overlap=overlap)
    run = new_run(7, 1, "r", policy, source, NOW, thread="talk:room", in_conversation=True)
    assert (run.lane, run.thread) == ("talk:room", "talk:room")
    alone = new_run(7, 1, "r", policy, source, NOW, in_conversation=True)
    assert (alone.lane, alone.thread) == (TASK, None)


def test_a_run_that_takes_no_part_in_its_threads_conversation_has_another_lane():
    run = new_run(7, 1, "r", Policy(lane="L"), RunSource.ENQUEUE, NOW, thread="talk:room")
    assert (run.lane, run.thread) == ("L", None)


@pytest.mark.parametrize(
    ("available_at", "expires_at"),
    [(None, NOW + 5_000_000), (NOW - 1, NOW + 5_000_000), (NOW + 9, NOW + 9 + 5_000_000)],
)
def test_a_deadline_counts_from_when_the_run_may_start(available_at, expires_at):
    policy = Policy(deadline=timedelta(seconds=5))
    run = new_run(7, 1, "r", policy, RunSource.ENQUEUE, NOW, available_at=available_at)
    assert run.expires_at == expires_at

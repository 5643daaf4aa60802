from __future__ import annotations

from datetime import timedelta

import pytest

from rota.flow.observe.status import WarningThresholds, judge
from rota.flow.observe.time_text import count_text, duration_text, first_line
from rota.model.views import DeadDeliveriesView, QueueView


def queue(**changes):
    values = {
        "ready": 0, "later": 0, "held": 0, "running": 0, "waiting": 0, "stuck": 0, "oldest_ready": None,
        "oldest_running": None, "oldest_waiting": None, "unserved_routes": (), "schedules": 0, "quarantined": 0,
    }  # fmt: skip
    return QueueView(**(values | changes))


def codes(make, workers=None, next_due=None, **changes):
    alive = [make.worker()] if workers is None else workers
    seen = judge(make.NOW, queue(**changes), alive, next_due, WarningThresholds())
    return [warning.code for warning in seen.warnings]


def test_a_calm_queue_warns_of_nothing(make):
    assert codes(make, ready=24, running=3, schedules=9) == []


def test_each_warning_has_its_threshold(make):
    assert codes(make, ready=25) == ["queue_depth_high"]
    young, old = make.NOW - timedelta(minutes=29), make.NOW - timedelta(minutes=30)
    assert codes(make, running=1, oldest_running=young) == []
    assert codes(make, running=1, oldest_running=old) == ["running_task_stale"]
    assert codes(make, stuck=1) == ["run_stuck"]
    assert codes(make, quarantined=1) == ["schedule_quarantined"]
    assert codes(make, unserved_routes=("agent:x",)) == ["route_unserved"]
    assert codes(make, next_due=make.NOW - timedelta(seconds=61)) == ["planner_late"]
    assert codes(make, next_due=make.NOW - timedelta(seconds=59)) == []


def test_messages_that_were_not_sent_are_told_with_the_last_one(make):
    found = DeadDeliveriesView(2, 12, "cli:default", "no channel 'cli' is configured")
    seen = judge(make.NOW, queue(), [], None, WarningThresholds(), dead=found)
    (warning,) = seen.warnings
    assert warning.code == "deliveries_dead"
    assert warning.sentence == (
        "2 messages of the last day were not sent, the last of run 12 to cli:default: "
        "no channel 'cli' is configured; see `rota run 12`"
    )
    (warning,) = judge(
        make.NOW,
        queue(),
        [],
        None,
        WarningThresholds(),
        dead=found._replace(messages=1, run_id=None),
    ).warnings
    assert warning.sentence == (
        "1 message of the last day was not sent, the last to cli:default: "
        "no channel 'cli' is configured"
    )


def test_nobody_working_is_a_warning_only_when_there_is_work(make):
    gone = [make.worker(lease_until=make.NOW - timedelta(seconds=1)), make.worker(fenced=True)]
    for work in ("ready", "later", "held", "running", "schedules"):
        assert codes(make, workers=gone, **{work: 1}) == ["no_worker"]
    assert codes(make, workers=[]) == []


def test_ages_are_told_in_seconds(make):
    seen = judge(make.NOW, queue(ready=1, oldest_ready=make.at(11)), [], None, WarningThresholds())
    assert seen.ages == {"ready": 3600.0}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 ms"), (0.0034, "3 ms"), (1, "1 s"), (4.25, "4.2 s"), (60, "1 min"), (125, "2 min 5 s"),
        (3600, "1 h"), (3725, "1 h 2 min"), (90000, "1 d 1 h"), (86405, "1 d"),
    ],
)  # fmt: skip
def test_lengths_are_told_in_two_units(seconds, text):
    assert duration_text(timedelta(seconds=seconds)) == text


def test_words_are_short():
    assert count_text(1, "run") == "1 run"
    assert count_text(1200, "run") == "1,200 runs"
    assert first_line("a\nb") == "a"
    assert first_line(None) == ""
    assert first_line("x" * 50, 10) == "x" * 9 + "…"

"""Status: what goes on, who works, and what is advised where nobody does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from rota.flow.observe.status import (
    IDLE,
    NOBODY,
    RESTING,
    DaemonState,
    WarningThresholds,
    judge,
    worker_availability,
)
from rota.flow.observe.time_text import count_text, duration_text, first_line
from rota.flow.observe.why import explain
from rota.model.runs import QueueState, RunState
from rota.model.views import DeadDeliveriesView, QueueView
from rota.store.views import list_workers


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


# workers

CALM = QueueView(
    ready=0, later=0, held=0, running=0, waiting=0, stuck=0, oldest_ready=None,
    oldest_running=None, oldest_waiting=None, unserved_routes=(), schedules=1, quarantined=0,
)  # fmt: skip


class Books:
    """As much of a store as is asked."""

    def __init__(self, workers, taken=None):
        self.workers = workers
        self.taken = taken
        self.database = self

    async def read(self, operation):
        assert operation is list_workers
        return self.workers

    def roles_taken(self):
        return self.taken

    def is_gone(self, _host):
        return False


def told(make, run, **changes):
    facts = {"runs": [run], "unfinished": [run], "workers": [make.worker()], **changes}
    found = make.facts(make.at(7), make.at(7, 0, 59), instant=make.at(7), **facts)
    (story,) = explain(found, ZoneInfo("UTC")).stories
    return story.sentence.removesuffix("; run 1").removeprefix("in the queue for 5 h: ")


@pytest.mark.parametrize("state", ["stopping", "ending"])
async def test_a_daemon_that_takes_nothing_new_is_no_hand(make, state):
    hands = await worker_availability(Books([make.worker()], taken=True), DaemonState(state, "w1"))
    assert [worker.alive(make.NOW) for worker in hands.workers] == [True]
    assert [worker.takes(make.NOW) for worker in hands.workers] == [False]
    assert hands.idle == IDLE[state]


async def test_another_worker_takes_what_a_stopped_daemon_does_not(make):
    hands = await worker_availability(
        Books([make.worker(), make.worker(id="w2")]), DaemonState("stopping", "w1")
    )
    assert [worker.takes(make.NOW) for worker in hands.workers] == [False, True]


async def test_what_a_stopped_daemon_has_left_to_its_keepers_is_no_hand(make):
    hands = await worker_availability(
        Books([make.worker(running=1)], taken=True), DaemonState("stopped", "w1")
    )
    assert [worker.alive(make.NOW) for worker in hands.workers] == [False]
    assert hands.idle == IDLE["stopped"]


def test_a_run_that_goes_on_while_nobody_is_there_is_told_as_that(make):
    run = make.run(1, make.at(7), state=RunState.RUNNING)
    leaving = replace(make.worker(), leaving=True)
    assert told(make, run, workers=[leaving]) == "running for 5 h, attempt 1"
    said = told(make, run, workers=[replace(leaving, gone=True)], idle=IDLE["stopped"])
    assert said.endswith("; the daemon is stopped, run `rota start`")
    assert told(make, run, workers=[]).endswith("; no worker is running, start `rota up`")


async def test_who_has_the_database_and_does_not_work_is_to_be_started_not_doubled(make):
    assert (await worker_availability(Books([], taken=True), None)).idle == RESTING
    assert (await worker_availability(Books([], taken=False), None)).idle == NOBODY
    assert (await worker_availability(Books([], taken=None), None)).idle == NOBODY
    assert (
        await worker_availability(Books([], taken=True), DaemonState("stopped", None))
    ).idle == IDLE["stopped"]
    assert "`rota start`" in RESTING.step


def test_why_and_status_name_the_step_that_helps(make):
    idle = IDLE["stopped"]
    run = make.queued(1, make.at(7))
    leaving = replace(make.worker(), leaving=True)
    said = told(make, run, workers=[leaving], idle=idle)
    assert said == "the daemon is stopped, run `rota start`"
    late = [make.schedule(cursor=make.at(8))]
    facts = make.facts(make.at(9), make.at(11), schedules=late, workers=[leaving], idle=idle)
    overdue = explain(facts, ZoneInfo("UTC")).stories[0].sentence
    assert overdue.endswith("not planned yet: the daemon is stopped: run `rota start`")
    seen = judge(
        make.NOW, CALM, [leaving], make.NOW - timedelta(hours=1), WarningThresholds(), idle=idle
    )
    assert [(w.code, w.sentence.partition(": ")[2]) for w in seen.warnings] == [
        ("no_worker", "run `rota start`"),
        ("planner_late", "the daemon is stopped"),
    ]


def test_the_head_of_a_free_lane_waits_for_a_worker_and_not_for_its_lane(make):
    mine = make.queued(1, make.at(7), place=QueueState.HELD, lane="task:1")
    behind = make.queued(6, make.at(8), place=QueueState.HELD, lane="task:1")
    asking = make.run(5, state=RunState.WAITING, lane="task:1")
    others = [mine, behind, asking]
    assert (
        told(make, mine, unfinished=others, workers=[]) == "no worker is running, start `rota up`"
    )
    assert told(make, mine, unfinished=others) == "ready, a worker is about to claim it"


def test_who_is_held_behind_another_that_is_held_names_it(make):
    mine = make.queued(1, make.at(7), place=QueueState.HELD, lane="task:1")
    before = make.queued(6, make.at(6), place=QueueState.HELD, lane="task:1")
    assert (
        told(make, mine, unfinished=[mine, before]) == "run 6 of report is ahead of it in its lane"
    )

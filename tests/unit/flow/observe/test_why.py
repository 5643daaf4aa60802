"""Why a run has not begun, ended as it did, or never existed."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from rota.flow.define.runs import backfill
from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import WhySpan, load_facts, planned_around
from rota.model.events import Event, EventName
from rota.model.runs import AttemptCause, Question, QueueState, RunSource, RunState
from rota.model.schedules import ScheduleState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import After, CatchUp, Policy
from rota.rules.permissions import LOCAL
from rota.rules.plans import REPLACED
from rota.store.settlement import disable_task

UTC = ZoneInfo("UTC")


def told(facts, zone=UTC):
    return [(story.outcome, story.sentence) for story in explain(facts, zone).stories]


def one(make, hour=7, **changes):
    """What is told about the slot of one hour."""
    given = {"workers": [make.worker()], **changes}
    facts = make.facts(make.at(hour), make.at(hour, 0, 59), instant=make.at(hour), **given)
    stories = told(facts)
    assert len(stories) == 1
    return stories[0]


@pytest.mark.parametrize(
    ("changes", "verdict", "sentence"),
    [
        ({}, "ran", "ran at 07:00, took 2 s; run 1"),
        ({"began": 3}, "ran", "ran at 07:00:03 (3 s late), took 2 s; run 1"),
        ({"epoch": 3}, "ran", "ran at 07:00, took 2 s at attempt 3; run 1"),
        (
            {"began": 7500, "created": 7500},
            "late",
            "ran at 09:05, 2 h 5 min late because it was found late and caught up, took 2 s; run 1",
        ),
        (
            {"began": 600},
            "late",
            "ran at 07:10, 10 min late because it waited in the queue, took 2 s; run 1",
        ),
        (
            {"began": 600, "retries": 1, "epoch": 2},
            "late",
            (
                "ran at 07:10, 10 min late because an earlier attempt failed, "
                "took 2 s at attempt 2; run 1"
            ),
        ),
        (
            {"state": RunState.FAILED, "error": "ValueError: no.\nTraceback"},
            "failed",
            "ran at 07:00, took 2 s; failed: ValueError: no; run 1",
        ),
        (
            {"state": RunState.CANCELLED, "error": "cancelled by local"},
            "cancelled",
            "cancelled by local; run 1",
        ),
        (
            {"state": RunState.EXPIRED, "error": "it waited in the queue past its deadline"},
            "expired",
            "expired: it waited in the queue past its deadline; run 1",
        ),
        (
            {"state": RunState.RUNNING, "stuck": True},
            "running",
            "running for 5 h, attempt 1, past its timeout and cannot be stopped; run 1",
        ),
        ({"state": RunState.RUNNING}, "running", "running for 5 h, attempt 1; run 1"),
    ],
)
def test_a_slot_that_has_a_run_tells_of_it(make, changes, verdict, sentence):
    values = dict(changes)
    if "began" in values:
        values["began"] = make.at(7) + timedelta(seconds=values["began"])
    if "created" in values:
        values["created_at"] = make.at(7) + timedelta(seconds=values.pop("created"))
    assert one(make, runs=[make.run(1, make.at(7), **values)]) == (verdict, sentence)


@pytest.mark.parametrize(
    ("at", "when"), [((12, 0, 4), "is launched again at 12:00:04"), ((11,), "was launched again")]
)
def test_an_agent_that_its_provider_refused_for_a_moment_is_told_of(make, at, when):
    data = {
        "kind": "overload",
        "message": "Wait a moment.",
        "retry": 1,
        "of": 3,
        "at": make.at(*at).isoformat(),
    }
    fault = Event(
        id=1, at=make.at(11), name=EventName.AGENT_ERROR, space_id=1, task_id=1, run_id=1, data=data
    )
    running = make.run(1, make.at(7), state=RunState.RUNNING)
    _, sentence = one(make, runs=[running], faults={1: fault})
    assert sentence == f"running for 5 h, attempt 1; {when} (1 of 3): Wait a moment.; run 1"


def test_a_replaced_run_names_the_one_that_took_its_place(make):
    runs = [
        make.run(1, make.at(7), state=RunState.CANCELLED, error=REPLACED, began=None),
        make.run(2, make.at(8)),
    ]
    stories = told(make.facts(make.at(7), make.at(8), runs=runs))
    assert stories[0] == (
        "coalesced",
        "coalesced into the slot of 08:00 (run 2): a newer slot replaced it in the queue; run 1",
    )


@pytest.mark.parametrize(
    ("reason", "verdict", "sentence"),
    [
        ("disabled", "skipped", "skipped: the task was disabled"),
        ("paused", "skipped", "skipped: the task was paused"),
        ("overlap", "skipped", "skipped: an earlier run was still active (overlap skip)"),
        ("coalesced", "coalesced", "coalesced into a later slot"),
        (
            "missed",
            "missed",
            "missed: found at Sun 2026-11-15 11:00, and the task does not catch up",
        ),
        (
            "too_late",
            "missed",
            "missed: found at Sun 2026-11-15 11:00, past the catch-up window of 6 h",
        ),
        (
            "catch_up_cap",
            "missed",
            "missed: found at Sun 2026-11-15 11:00; only the newest 3 slots are caught up",
        ),
    ],
)
def test_a_slot_in_the_ledger_tells_its_reason(make, reason, verdict, sentence):
    policy = Policy(catch_up=CatchUp(window=timedelta(hours=6), cap=3))
    facts = {"ledger": [make.ledger(reason, make.at(7))], "task": make.task(policy=policy)}
    assert one(make, **facts) == (verdict, sentence)


def test_several_slots_in_the_ledger_are_one_story(make):
    row = make.ledger("coalesced", make.at(3), make.at(7), count=5)
    runs = [make.run(9, make.at(8))]
    why = explain(make.facts(make.at(3), make.at(8), ledger=[row], runs=runs), UTC)
    first, second = why.stories
    assert (first.at, first.until, first.count) == (make.at(3), make.at(7), 5)
    assert first.sentence == "5 slots coalesced into the slot of 08:00 (run 9)"
    assert second.run_id == 9


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"queue_state": QueueState.DELAYED, "available": 60},
            "not due before Sun 2026-11-15 12:01, in 1 min",
        ),
        (
            {
                "queue_state": QueueState.DELAYED,
                "available": 60,
                "cause": AttemptCause.RETRY,
                "epoch": 1,
            },
            "attempt 1 failed; it is retried at Sun 2026-11-15 12:01, in 1 min",
        ),
        ({}, "in the queue for 5 h: no worker is running, start `rota up`"),
    ],
)
def test_a_queued_run_tells_what_it_waits_for(make, changes, sentence):
    values = dict(changes)
    if "available" in values:
        values["available_at"] = make.NOW + timedelta(seconds=values.pop("available"))
    assert one(make, runs=[make.queued(1, make.at(7), **values)], workers=[]) == (
        "queued",
        f"{sentence}; run 1",
    )


def waiting(make, run, **changes):
    facts = {"runs": [run], "workers": [make.worker()], "unfinished": [run], **changes}
    return one(make, **facts)[1].removesuffix("; run 1").removeprefix("in the queue for 5 h: ")


def test_a_busy_lane_names_the_run_that_holds_it(make):
    mine = make.queued(1, make.at(7), queue_state=QueueState.HELD, lane="task:1")
    holder = make.run(5, state=RunState.RUNNING, lane="task:1")
    first = make.queued(6, make.at(6), lane="task:1")
    assert waiting(make, mine, unfinished=[mine, holder]) == "its lane is busy with run 5 of report"
    assert (
        waiting(make, mine, unfinished=[mine, first])
        == "run 6 of report is ahead of it in its lane"
    )


def test_a_reached_limit_is_named(make):
    mine = make.queued(1, make.at(7))
    other = make.run(5, state=RunState.RUNNING)
    group = Policy(group="mail", metered=False)
    limit = Limit(scope=LimitScope.GROUP, key="mail", cap=1)
    said = waiting(make, mine, unfinished=[mine, other], policies={1: group}, limits=[limit])
    reached, change = "the limit of 1 run in the", "is reached; to change it: `rota limit set"
    assert said == f"{reached} group mail {change} group mail --cap N`"
    pool = Limit(scope=LimitScope.POOL, key="background", cap=1)
    said = waiting(make, mine, unfinished=[mine, other], policies={1: Policy()}, limits=[pool])
    assert said == f"{reached} background pool {change} pool background --cap N`"


def test_a_route_nobody_serves_is_named(make):
    mine = make.queued(1, make.at(7), route="agent:claude")
    assert waiting(make, mine) == "no worker serves its route agent:claude"


def test_a_full_worker_is_told(make):
    mine = make.queued(1, make.at(7))
    assert waiting(make, mine, workers=[make.worker(running=5)]) == "all worker slots are in use"
    assert waiting(make, mine) == "ready, a worker is about to claim it"


def test_a_waiting_run_shows_its_question(make):
    mine = make.run(1, make.at(7), state=RunState.WAITING)
    question = Question(
        id=3, run_id=1, epoch=1, kind="ask", question="Go on?", context="", options=(),
        asked_at=make.at(7), expires_at=make.at(18), answered_at=None, answer=None, answered_by=None,
    )  # fmt: skip
    assert one(make, runs=[mine], questions=[question]) == (
        "waiting",
        'waits for an answer to question 3 until Sun 2026-11-15 18:00: "Go on?"; run 1',
    )


def test_a_slot_to_come_says_when(make):
    assert one(make, hour=13) == ("planned", "due in 1 h")


@pytest.mark.parametrize(
    ("changes", "sentence", "note"),
    [
        (
            {"enabled": False, "disabled_reason": "broken"},
            "will be skipped: the task is disabled",
            "disabled",
        ),
        ({"paused": True}, "will be skipped: the task is paused", "paused until"),
    ],
)
def test_a_slot_to_come_of_a_task_that_is_off(make, changes, sentence, note):
    values = dict(changes)
    if values.pop("paused", False):
        values["paused_until"] = make.at(20)
    facts = make.facts(
        make.at(13), make.at(13, 0, 59), instant=make.at(13), task=make.task(**values)
    )
    why = explain(facts, UTC)
    assert why.stories[0].sentence == sentence
    assert note in why.notes[0]


@pytest.mark.parametrize(
    ("at", "note"),
    [
        (True, "The task is disabled since Sun 2026-11-15 08:30: broken."),
        (False, "The task is disabled: broken."),
    ],
)
def test_a_disabled_task_says_since_when_if_that_is_known(make, at, note):
    off = {"enabled": False, "disabled_reason": "broken"}
    task = make.task(**off, disabled_at=make.at(8, 30) if at else None)
    facts = make.facts(make.at(13), make.at(13, 0, 59), instant=make.at(13), task=task)
    assert explain(facts, UTC).notes[0] == note


def test_slots_that_nobody_planned_are_overdue_together(make):
    late = make.schedule(cursor=make.at(8))
    why = explain(make.facts(make.at(9), make.at(11), schedules=[late]), UTC)
    assert why.stories[0].outcome == "overdue"
    assert why.stories[0].count == 3
    assert (
        why.stories[0].sentence
        == "due for 3 h and not planned yet: no worker is running: start `rota up`"
    )


def test_a_time_between_slots_names_its_neighbours(make):
    facts = make.facts(
        make.at(7, 30), make.at(7, 30, 59), instant=make.at(7, 30), runs=[make.run(1, make.at(7))]
    )
    why = explain(facts, UTC)
    assert why.notes == [
        (
            "Sun 2026-11-15 07:30 is not a slot of report: the one before it was Sun 2026-11-15 07:00, "
            "the next one is Sun 2026-11-15 08:00."
        )
    ]
    assert [story.at for story in why.stories] == [make.at(7), make.at(8)]
    assert why.stories[0].sentence == "ran at 07:00, took 2 s; run 1"


def test_slots_before_the_schedule_was_made_or_changed(make):
    young = make.schedule(created_at=make.at(9), updated_at=make.at(9))
    assert one(make, schedules=[young]) == (
        "no_slot",
        "the schedule did not exist yet: it was created Sun 2026-11-15 09:00",
    )
    changed = make.schedule(updated_at=make.at(9))
    assert one(make, schedules=[changed])[1].startswith(
        "its rule or zone data were different until"
    )


def test_a_slot_without_any_record_is_called_unknown(make):
    assert one(make) == ("unknown", "no record is left: it is older than the retention period")


def test_exceptions_of_the_rule_are_told(make):
    quiet = make.schedule(options={"quiet": "06:00-08:00", "quiet_mode": "skip"})
    assert one(make, schedules=[quiet]) == ("skipped", "skipped: it falls into quiet hours")
    excluded = make.schedule(options={"excluded": "sun"})
    assert one(make, schedules=[excluded]) == ("skipped", "skipped: the day is excluded")


def test_a_postponed_slot_says_until_when(make):
    later = make.schedule(options={"quiet": "12:30-15:00"})
    assert one(make, hour=13, schedules=[later]) == (
        "planned",
        "due in 3 h, moved to Sun 2026-11-15 15:00 by quiet hours or jitter",
    )


def test_a_schedule_that_was_set_aside_is_noted(make):
    bad = make.schedule(
        state=ScheduleState.QUARANTINED, note="its rule could not be evaluated", cursor=make.at(6)
    )
    why = explain(
        make.facts(make.at(7), make.at(7, 0, 59), instant=make.at(7), schedules=[bad]), UTC
    )
    assert why.notes == ["Schedule default was quarantined: its rule could not be evaluated."]
    assert why.stories[0].outcome == "missed"


def test_a_task_without_a_schedule_tells_of_the_runs_that_were_asked_for(make):
    facts = make.facts(
        make.at(0),
        make.at(12),
        schedules=[],
        runs=[make.run(4, created_at=make.at(9), began=make.at(9))],
    )
    why = explain(facts, UTC)
    assert why.notes == ["It has no schedule: it runs on request."]
    assert [s.sentence for s in why.stories] == [
        "requested (manual); ran at 09:00, took 2 s; run 4"
    ]


def test_a_follower_names_what_it_follows(make):
    facts = make.facts(
        make.at(0), make.at(12), schedules=[], task=make.task(after=After(task="count")),
        runs=[make.run(4, created_at=make.at(9), began=make.at(9), upstream_id=3)],
    )  # fmt: skip
    why = explain(facts, UTC)
    assert why.notes == ["It runs after count, on success."]
    assert why.stories[0].sentence.startswith("follows run 3; ran at")


def test_the_last_day_ends_with_the_next_slot(make):
    daily = make.schedule("0 7 * * *")
    facts = make.facts(
        make.NOW - timedelta(days=1), make.NOW, schedules=[daily], runs=[make.run(1, make.at(7))]
    )
    assert told(facts) == [("ran", "ran at 07:00, took 2 s; run 1"), ("planned", "due in 19 h")]


def test_a_rule_that_fires_every_second_is_bounded(make):
    busy = make.schedule("* * * * * *")
    facts = make.facts(make.NOW - timedelta(days=1), make.NOW, schedules=[busy])
    assert facts.narrowed
    assert len(facts.planned) <= 90
    (note,) = explain(facts, UTC).notes
    assert note.startswith("What ended before Sat 2026-11-14 12:00 is not shown: ")
    assert note.endswith("explains one slot, `rota runs --task report` lists all runs.")


def test_times_are_told_on_the_wall_of_the_zone(make):
    facts = make.facts(
        make.at(7), make.at(7, 0, 59), instant=make.at(7), runs=[make.run(1, make.at(7))]
    )
    assert told(facts, ZoneInfo("Asia/Tokyo"))[0][1].startswith("ran at 16:00")


def test_every_slot_is_told_exactly_once(make):
    rows = [make.ledger("disabled", make.at(2), make.at(4), count=3)]
    runs = [make.run(1, make.at(5)), make.run(2, make.at(6))]
    facts = make.facts(make.at(1), make.at(7), ledger=rows, runs=runs)
    stories = explain(facts, UTC).stories
    assert sum(story.count for story in stories) == 7
    assert [story.at for story in stories] == sorted(story.at for story in stories)


# many slots at once


def told_between(make, start, end, **facts):
    found = explain(make.facts(make.at(*start), make.at(*end), **facts), ZoneInfo("UTC"))
    return [(story.outcome, story.count, story.sentence) for story in found.stories]


def test_slots_before_a_schedule_was_made_are_one_line(make):
    young = make.schedule("*/5 * * * *", created_at=make.at(10, 58), updated_at=make.at(10, 58))
    (first, *rest) = told_between(make, (9, 2), (11, 3), schedules=[young])
    made = "the schedule did not exist yet: it was created Sun 2026-11-15 10:58"
    assert first == ("no_slot", 23, made)
    assert [verdict for verdict, _, _ in rest] == ["unknown"]


def test_a_slot_that_a_person_backfilled_is_not_said_to_be_found_late(make):
    run = make.run(
        1, make.at(7), source=RunSource.BACKFILL, created_at=make.at(11), began=make.at(11, 1)
    )
    ((verdict, _, sentence),) = told_between(make, (7,), (7,), runs=[run])
    assert verdict == "late"
    assert "late because it was backfilled at Sun 2026-11-15 11:00" in sentence


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState.SUCCEEDED, "ran at 07:00:05 (5 s late), backfilled at Sun 2026-11-15 07:00:02, "),
        (RunState.CANCELLED, ", backfilled at Sun 2026-11-15 07:00:02; run 1"),
    ],
)
def test_a_backfilled_run_says_so_however_early_it_began(make, state, words):
    run = make.run(
        1,
        make.at(7),
        source=RunSource.BACKFILL,
        created_at=make.at(7, 0, 2),
        began=make.at(7, 0, 5),
        state=state,
    )
    ((_, _, sentence),) = told_between(make, (7,), (7,), runs=[run])
    assert words in sentence


def test_a_row_says_how_many_of_its_slots_were_backfilled(make):
    row = make.ledger("disabled", make.at(7), make.at(9), 3)
    runs = [make.run(n, make.at(6 + n), source=RunSource.BACKFILL) for n in (1, 2, 3)]
    span, key = ((7,), (9,)), (1, make.at(7))
    told_of = told_between(make, *span, ledger=[row], runs=runs[:2], filled={key: 2})
    assert told_of[0][1:] == (
        3,
        "3 slots skipped: the task was disabled; 2 of them backfilled since",
    )
    told_of = told_between(make, *span, ledger=[row], runs=runs, filled={key: 3})
    assert [verdict for verdict, _, _ in told_of] == ["ran", "ran", "ran"]


async def test_the_slots_of_a_row_that_were_backfilled_are_counted_beyond_the_span(desk):
    task = await desk.task()
    schedule = await desk.planned(task, every="1m")
    await desk.store.write(disable_task, task, "off", None, [])
    begun = desk.clock.now()
    desk.clock.advance(minutes=300)
    await desk.plan()
    done = await backfill(desk.store, LOCAL, "job", begun, begun + timedelta(minutes=200))
    facts = await load_facts(desk.store, await desk.task_of(task), None)
    assert facts.narrowed
    assert facts.span.start > begun + timedelta(minutes=200)
    assert facts.filled[schedule.id, facts.ledger[0].first_at] == len(done)


EVERY_MINUTE = "* * * * *"


@pytest.mark.parametrize(
    ("rule", "first", "last"),
    [
        ("0 * * * *", (0,), (23,)),
        (EVERY_MINUTE, (11, 28), (12, 7)),
        ("*/30 * * * *", (0,), (19, 30)),
    ],
)
def test_what_happened_of_a_day_is_told_before_what_is_to_come(make, rule, first, last):
    today = WhySpan(start=make.at(0), end=make.at(23, 59, 59))
    planned, covered = planned_around([make.schedule(rule)], today, make.NOW)
    assert [planned[0].slot.at, planned[-1].slot.at] == [make.at(*first), make.at(*last)]
    assert covered.start <= make.at(*first)
    assert covered.end >= make.at(*last)


def test_a_day_to_come_is_told_from_its_beginning(make):
    tomorrow = WhySpan(start=make.at(24), end=make.at(47, 59, 59))
    planned, covered = planned_around([make.schedule(EVERY_MINUTE)], tomorrow, make.NOW)
    assert planned[0].slot.at == make.at(24)
    assert covered.end == planned[-1].slot.at < tomorrow.end


def test_what_is_left_out_of_what_is_to_come_is_said(make):
    facts = make.facts(make.at(11), make.at(12), shortened=True)
    (note,) = explain(facts, ZoneInfo("UTC")).notes
    assert note == "What comes after Sun 2026-11-15 12:00 is not shown."

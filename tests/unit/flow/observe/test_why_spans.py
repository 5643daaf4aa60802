"""What is told once for many slots, who made a slot run late, and what of a day is told."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest

from rota.flow.define.runs import backfill
from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import WhySpan, load_facts, planned_around
from rota.model.runs import RunSource, RunState
from rota.rules.permissions import LOCAL
from rota.store.settlement import disable_task


def told(make, start, end, **facts):
    found = explain(make.facts(make.at(*start), make.at(*end), **facts), ZoneInfo("UTC"))
    return [(story.verdict, story.count, story.sentence) for story in found.stories]


def test_slots_before_a_schedule_was_made_are_one_line(make):
    young = make.schedule("*/5 * * * *", created_at=make.at(10, 58), updated_at=make.at(10, 58))
    (first, *rest) = told(make, (9, 2), (11, 3), schedules=[young])
    made = "the schedule did not exist yet: it was created Sun 2026-11-15 10:58"
    assert first == ("no_slot", 23, made)
    assert [verdict for verdict, _, _ in rest] == ["unknown"]


def test_a_slot_that_a_person_backfilled_is_not_said_to_be_found_late(make):
    run = make.run(
        1, make.at(7), source=RunSource.BACKFILL, created_at=make.at(11), began=make.at(11, 1)
    )
    ((verdict, _, sentence),) = told(make, (7,), (7,), runs=[run])
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
    ((_, _, sentence),) = told(make, (7,), (7,), runs=[run])
    assert words in sentence


def test_a_row_says_how_many_of_its_slots_were_backfilled(make):
    row = make.ledger("disabled", make.at(7), make.at(9), 3)
    runs = [make.run(n, make.at(6 + n), source=RunSource.BACKFILL) for n in (1, 2, 3)]
    span, key = ((7,), (9,)), (1, make.at(7))
    told_of = told(make, *span, ledger=[row], runs=runs[:2], filled={key: 2})
    assert told_of[0][1:] == (
        3,
        "3 slots skipped: the task was disabled; 2 of them backfilled since",
    )
    told_of = told(make, *span, ledger=[row], runs=runs, filled={key: 3})
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

"""What is told once for many slots, and who made a slot run late."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from rota.flow.observe.why import explain
from rota.model.runs import Source


def told(make, start, end, **facts):
    found = explain(make.facts(make.at(*start), make.at(*end), **facts), ZoneInfo("UTC"))
    return [(story.verdict, story.count, story.sentence) for story in found.stories]


def test_slots_before_a_schedule_was_made_are_one_line(make):
    young = make.schedule("*/5 * * * *", created_at=make.at(10, 58), updated_at=make.at(10, 58))
    (first, *rest) = told(make, (9, 2), (11, 3), schedules=[young])
    made = "the schedule did not exist yet: it was made Sun 2026-11-15 10:58"
    assert first == ("no_slot", 23, made)
    assert [verdict for verdict, _, _ in rest] == ["unknown"]


def test_a_slot_that_a_person_backfilled_is_not_said_to_be_found_late(make):
    run = make.run(
        1, make.at(7), source=Source.BACKFILL, created_at=make.at(11), began=make.at(11, 1)
    )
    ((verdict, _, sentence),) = told(make, (7,), (7,), runs=[run])
    assert verdict == "late"
    assert "late because it was backfilled at Sun 2026-11-15 11:00" in sentence

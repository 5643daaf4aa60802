"""RFC 5545 rules: dates added and removed, bounds and zones."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.errors import Invalid
from rota.timing.rule_builders import rrule
from rota.timing.timetable import timetable

LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)


def test_dates_are_added_and_removed_after_counting() -> None:
    rule = rrule(
        "DTSTART:20260101T090000Z\nRRULE:FREQ=DAILY;COUNT=3\n"
        "RDATE:20260102T120000Z,20260201T090000Z\nEXDATE:20260102T090000Z",
        created_at=LONG_AGO,
        excluded="2026-01-03",
    )
    slots = timetable(rule).take(LONG_AGO, 9)
    assert [f"{s.at:%m-%dT%H}" for s in slots] == ["01-01T09", "01-02T12", "02-01T09"]


def test_a_missing_dtstart_is_the_second_of_creation_in_the_zone() -> None:
    created = datetime(2026, 7, 1, 22, 30, 15, 999_999, tzinfo=UTC)
    rule = rrule("FREQ=DAILY", created_at=created, timezone="Europe/Berlin")
    assert rule.expression == "DTSTART;TZID=Europe/Berlin:20260702T003015\nRRULE:FREQ=DAILY"
    assert rule.anchor == created.replace(microsecond=0)
    assert rrule("rrule:freq=daily", created_at=created, timezone="Europe/Berlin") == rule


def test_a_rule_takes_the_zone_of_its_dtstart_and_refuses_another() -> None:
    text = "DTSTART;TZID=Europe/Berlin:20261224T090000\nRRULE:FREQ=DAILY"
    assert rrule(text, created_at=LONG_AGO).timezone == "Europe/Berlin"
    with pytest.raises(Invalid, match="but the rule is in America/New_York"):
        rrule(text, created_at=LONG_AGO, timezone="America/New_York")
    with pytest.raises(Invalid, match="is in UTC"):
        rrule("DTSTART:20261224T090000Z\nFREQ=DAILY", created_at=LONG_AGO, timezone="Asia/Tokyo")


def test_until_as_a_date_includes_the_day() -> None:
    rule = rrule("DTSTART:20260101T090000Z\nRRULE:FREQ=DAILY;UNTIL=20260103", created_at=LONG_AGO)
    assert len(timetable(rule).take(LONG_AGO, 9)) == 3

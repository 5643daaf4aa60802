"""Faults found in other schedulers, by the id they have in the feature list."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Invalid
from rota.timing.rule_builders import calendar, cron, every, once, rrule
from rota.timing.timetable import timetable

NOW = datetime(2026, 11, 15, 9, 7, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def test_zub_w01_every_time_of_a_calendar_day_fires() -> None:
    table = timetable(calendar("07:00,12:00,17:30", timezone=BERLIN))
    slots = table.take(datetime(2026, 11, 15, 5, tzinfo=UTC), 4)
    assert [s.key[:16] for s in slots] == [
        "2026-11-15T07:00",
        "2026-11-15T12:00",
        "2026-11-15T17:30",
        "2026-11-16T07:00",
    ]


def test_zub_w03_the_latest_missed_slot_is_the_latest_one() -> None:
    table = timetable(every("1m", anchor=NOW - timedelta(days=365)))
    newest = table.latest(NOW - timedelta(days=300), NOW)
    assert newest is not None
    assert newest.at == NOW


def test_zub_w19_a_calendar_has_a_policy_for_gaps_and_folds() -> None:
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
    table = timetable(calendar("02:30", timezone=BERLIN))
    assert [f"{s.at:%dT%H:%M}" for s in table.take(spring, 2)] == ["29T01:00", "30T00:30"]
    table = timetable(calendar("02:30", timezone=BERLIN, fold="both"))
    assert [s.key[-2:] for s in table.take(autumn, 3)] == ["#0", "#1", "#0"]


def test_gen_w08_every_next_fire_is_computed_in_the_zone_from_the_planned_slot() -> None:
    table = timetable(cron("0 9 * * *", timezone="America/New_York"))
    slots = table.take(datetime(2026, 10, 30, tzinfo=UTC), 5)
    assert [f"{s.at:%d %H}" for s in slots] == ["30 13", "31 13", "01 14", "02 14", "03 14"]
    drifted = timetable(every("10m", anchor=NOW)).next(NOW + timedelta(minutes=10, seconds=7))
    assert drifted is not None
    assert drifted.at == NOW + timedelta(minutes=20)


def test_gen_w09_the_cron_parser_is_strict_and_complete() -> None:
    for bad in ("NaN * * * *", "99 * * * *", "*/0 * * * *", "0 0 30 2 *"):
        with pytest.raises(Invalid):
            cron(bad)
    assert [s.at.minute for s in timetable(cron("5/15 * * * *")).take(NOW, 4)] == [20, 35, 50, 5]
    assert cron("0 9 * * sun") == cron("0 9 * * 7") == cron("0 9 * * 0")
    assert timetable(cron("30 0 9 * * *")).take(NOW, 1)[0].at.second == 30
    leap = timetable(cron("0 0 29 2 *")).next(NOW)
    assert leap is not None
    assert leap.at == datetime(2028, 2, 29, tzinfo=UTC)
    daily = timetable(cron("0 0 * * *", timezone=BERLIN)).take(datetime(2026, 3, 27, tzinfo=UTC), 4)
    assert [f"{s.at:%d %H}" for s in daily] == ["27 23", "28 23", "29 22", "30 22"]


def test_jagc_w01_a_finite_rule_ends_quietly() -> None:
    table = timetable(rrule("FREQ=DAILY;COUNT=3", created_at=NOW))
    assert len(table.take(NOW - timedelta(seconds=1), 10)) == 3
    assert table.next(NOW + timedelta(days=3)) is None
    until = timetable(rrule("FREQ=DAILY;UNTIL=20261117T000000Z", created_at=NOW))
    assert until.next(datetime(2027, 1, 1, tzinfo=UTC)) is None
    assert timetable(cron("0 0 29 2 *")).next(datetime(2099, 1, 1, tzinfo=UTC)) is not None


def test_jagc_w08_a_rare_line_is_found_by_fields_and_not_by_minutes() -> None:
    table = timetable(cron("59 23 29 2 */7"))
    slot = table.next(NOW)
    assert slot is not None
    assert (slot.at.month, slot.at.day, slot.at.weekday()) == (2, 29, 6)


def test_jagc_w09_repeated_and_missing_times_fire_once() -> None:
    table = timetable(cron("30 2 * * *", timezone=BERLIN))
    year = table.between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert len(year) == 365
    assert len({slot.key for slot in year}) == 365


def test_ist_w23_the_repeated_hour_loses_no_run_and_the_gap_hour_is_not_late() -> None:
    table = timetable(cron("0 * * * *", timezone=BERLIN))
    autumn = table.between(
        datetime(2026, 10, 24, 22, tzinfo=UTC), datetime(2026, 10, 25, 23, tzinfo=UTC)
    )
    spring = table.between(
        datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)
    )
    assert (len(autumn), len(spring)) == (25, 23)
    assert all(b.at - a.at == timedelta(hours=1) for a, b in itertools.pairwise(autumn))


def test_g2_w05_the_zone_of_the_schedule_decides() -> None:
    after = datetime(2026, 7, 1, tzinfo=UTC)
    hours = {
        zone: timetable(cron("0 9 * * *", timezone=zone)).take(after, 1)[0].at.hour
        for zone in ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
    }
    assert hours == {"UTC": 9, "Europe/Berlin": 7, "America/New_York": 13, "Asia/Kolkata": 3}


def test_g2_28_cron_interval_and_once_each_have_a_next() -> None:
    assert timetable(cron("0 10 * * *")).take(NOW, 1)[0].at.hour == 10
    assert (
        timetable(every(timedelta(milliseconds=60_000), anchor=NOW)).take(NOW, 1)[0].at.minute == 8
    )
    single = timetable(once("2026-11-15T10:00Z", now=NOW))
    assert single.next(single.take(NOW, 1)[0].at) is None

"""What becomes of slots when the clocks change."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.timing.rule_builders import calendar, cron, rrule
from rota.timing.timetable import timetable

BERLIN = "Europe/Berlin"
BEFORE_GAP = datetime(2026, 3, 28, 12, tzinfo=UTC)
AFTER_GAP = datetime(2026, 3, 29, 12, tzinfo=UTC)
BEFORE_FOLD = datetime(2026, 10, 24, 12, tzinfo=UTC)
AFTER_FOLD = datetime(2026, 10, 25, 12, tzinfo=UTC)


def spring(expression: str, zone: str = BERLIN, **options: str) -> list[tuple[str, str]]:
    table = timetable(cron(expression, timezone=zone, **options))
    return [
        (s.key.partition("[")[0], f"{s.at:%H:%M}") for s in table.between(BEFORE_GAP, AFTER_GAP)
    ]


def autumn(expression: str, **options: str) -> list[tuple[str, str]]:
    table = timetable(cron(expression, timezone=BERLIN, **options))
    found = table.between(BEFORE_FOLD, AFTER_FOLD)
    return [(s.key[11:16] + s.key[-2:], f"{s.at:%H:%M}") for s in found]


def test_a_slot_in_a_gap_runs_once_at_its_end() -> None:
    assert spring("30 2 * * *") == [("2026-03-29T02:30", "01:00")]


def test_slots_in_one_gap_become_one() -> None:
    assert spring("0,30 2 * * *") == [("2026-03-29T02:00", "01:00")]


def test_a_slot_in_a_gap_gives_way_to_a_regular_one_at_its_end() -> None:
    assert spring("30 2,3 * * *") == [("2026-03-29T02:30", "01:00"), ("2026-03-29T03:30", "01:30")]
    assert spring("0 2,3 * * *") == [("2026-03-29T03:00", "01:00")]


def test_a_slot_in_a_gap_can_be_skipped() -> None:
    assert spring("30 2 * * *", gap="skip") == []
    assert spring("30 2,4 * * *", gap="skip") == [("2026-03-29T04:30", "02:30")]


def test_a_slot_in_a_fold_runs_once_on_the_first_pass() -> None:
    assert autumn("30 2 * * *") == [("02:30#0", "00:30")]


def test_a_slot_in_a_fold_can_run_on_the_second_pass_or_on_both() -> None:
    assert autumn("30 2 * * *", fold="second") == [("02:30#1", "01:30")]
    assert autumn("30 2 * * *", fold="both") == [("02:30#0", "00:30"), ("02:30#1", "01:30")]


def test_several_slots_in_a_fold_keep_their_order() -> None:
    first = [("01:30#0", "23:30"), ("02:00#0", "00:00"), ("02:30#0", "00:30")]
    second = [("02:00#1", "01:00"), ("02:30#1", "01:30")]
    last = [("03:30#0", "02:30")]
    line = "30,0 1-3 * * *"
    every = [("01:00#0", "23:00"), *first]
    assert autumn(line) == [*every, ("03:00#0", "02:00"), *last]
    assert autumn(line, fold="both") == [*every, *second, ("03:00#0", "02:00"), *last]
    assert autumn(line, fold="second") == [*every[:2], *second, ("03:00#0", "02:00"), *last]


@pytest.mark.parametrize("expression", ["*/30 2,4 * * *", "30 */1 * * *", "0 * * * *"])
def test_a_line_with_a_star_in_minute_or_hour_follows_elapsed_time(expression: str) -> None:
    passes = [key[-1] for key, _ in autumn(expression) if key.startswith("02:")]
    assert sorted(passes) == ["0"] * (len(passes) // 2) + ["1"] * (len(passes) // 2)
    assert all(not key.startswith("2026-03-29T02") for key, _ in spring(expression))


@pytest.mark.parametrize("expression", ["*/30 2 * * *", "* 2 * * *", "*/10 2 29 * *"])
def test_a_day_whose_only_slots_fall_into_a_gap_still_has_one(expression: str) -> None:
    assert spring(expression) == [("2026-03-29T02:00", "01:00")]
    assert spring(expression, gap="skip") == []


def test_an_hourly_rrule_makes_up_for_a_day_lost_to_a_gap() -> None:
    rule = rrule("FREQ=HOURLY;BYHOUR=2;BYMINUTE=10,50", created_at=BEFORE_GAP, timezone=BERLIN)
    found = timetable(rule).between(BEFORE_GAP, AFTER_GAP)
    assert [(s.key[:16], f"{s.at:%H:%M}") for s in found] == [("2026-03-29T02:10", "01:00")]


def test_a_star_among_the_seconds_leaves_a_line_on_the_wall() -> None:
    assert autumn("*/30 0 2 * * *") == [("02:00#0", "00:00"), ("02:00#0", "00:00")]
    assert spring("*/30 0 2 * * *") == [("2026-03-29T02:00", "01:00")]


def test_half_an_hour_is_a_gap_too() -> None:
    table = timetable(cron("15 2 * * *", timezone="Australia/Lord_Howe"))
    slot = table.next(datetime(2026, 10, 3, 12, tzinfo=UTC))
    assert slot is not None
    assert (slot.key, f"{slot.at:%H:%M}") == ("2026-10-04T02:15[Australia/Lord_Howe]#0", "15:30")


def test_two_hours_are_a_fold_too() -> None:
    table = timetable(cron("30 1,2 * * *", timezone="Antarctica/Troll", fold="both"))
    slots = table.between(datetime(2026, 10, 24, 20, tzinfo=UTC), AFTER_FOLD)
    assert [f"{s.at:%H:%M} {s.key[11:16]}{s.key[-2:]}" for s in slots] == [
        "23:30 01:30#0",
        "00:30 02:30#0",
        "01:30 01:30#1",
        "02:30 02:30#1",
    ]


def test_a_whole_day_that_a_zone_left_out_still_fires_once() -> None:
    table = timetable(cron("0 9,15 * * *", timezone="Pacific/Apia"))
    found = table.between(
        datetime(2011, 12, 29, 12, tzinfo=UTC), datetime(2011, 12, 31, 4, tzinfo=UTC)
    )
    assert [(s.key[:16], f"{s.at:%dT%H:%M}") for s in found] == [
        ("2011-12-29T09:00", "29T19:00"),
        ("2011-12-29T15:00", "30T01:00"),
        ("2011-12-30T09:00", "30T10:00"),
        ("2011-12-31T09:00", "30T19:00"),
        ("2011-12-31T15:00", "31T01:00"),
    ]


def test_calendar_and_daily_rrule_keep_to_the_wall() -> None:
    for rule in (
        calendar("02:30", timezone=BERLIN),
        rrule("FREQ=DAILY;BYHOUR=2;BYMINUTE=30;BYSECOND=0", created_at=BEFORE_GAP, timezone=BERLIN),
    ):
        table = timetable(rule)
        assert [f"{s.at:%H:%M}" for s in table.between(BEFORE_GAP, AFTER_GAP)] == ["01:00"]
        assert [f"{s.at:%H:%M}" for s in table.between(BEFORE_FOLD, AFTER_FOLD)] == ["00:30"]


def test_an_hourly_rrule_follows_elapsed_time() -> None:
    rule = rrule("FREQ=HOURLY;BYMINUTE=0;BYSECOND=0", created_at=BEFORE_GAP, timezone=BERLIN)
    found = timetable(rule).between(
        datetime(2026, 10, 24, 23, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC)
    )
    assert [s.key[11:16] + s.key[-2:] for s in found] == ["02:00#0", "02:00#1", "03:00#0"]


def test_an_excluded_day_cannot_swallow_the_gap_of_its_neighbour() -> None:
    # In Nuuk the clocks go from 23:00 on Saturday to midnight on Sunday.
    rule = cron("30 0,23 * * *", timezone="America/Nuuk", excluded="sun")
    found = timetable(rule).between(
        datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 29, 12, tzinfo=UTC)
    )
    assert [s.key[:16] for s in found] == ["2026-03-28T23:30"]


@pytest.mark.parametrize(
    ("key", "at"),
    [
        ("2026-03-29T02:30[Europe/Berlin]#0", "29T01:00"),
        ("2026-10-25T02:30[Europe/Berlin]#0", "25T00:30"),
        ("2026-10-25T02:30:15[Europe/Berlin]#1", "25T01:30"),
        ("2026-10-25T09:00[Asia/Tokyo]#0", "01T12:00"),
        ("g1:7", "01T12:00"),
        (None, "01T12:00"),
    ],
)
def test_a_schedule_goes_on_from_where_its_newest_slot_lies_now(key: str | None, at: str) -> None:
    table = timetable(cron("30 2 * * *", timezone=BERLIN))
    cursor = datetime(2026, 10, 1, 12, tzinfo=UTC)
    assert f"{table.resume(cursor, key):%dT%H:%M}" == at


def test_what_follows_elapsed_time_never_goes_back() -> None:
    table = timetable(cron("*/5 * * * *", timezone=BERLIN))
    cursor = datetime(2026, 10, 25, 1, tzinfo=UTC)
    assert table.resume(cursor, "2026-10-25T02:30[Europe/Berlin]#0") == cursor
    assert f"{table.resume(cursor, '2026-10-25T02:30[Europe/Berlin]#1'):%H:%M}" == "01:30"

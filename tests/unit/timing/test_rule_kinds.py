"""Constructors, options, keys and records."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from rota.errors import Invalid
from rota.timing.rule_builders import calendar, cron, every, from_record, once, rrule, to_record
from rota.timing.timetable import timetable

if TYPE_CHECKING:
    from rota.model.schedules import Rule

NOW = datetime(2026, 11, 15, 9, 7, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def at(rule: Rule, n: int = 3, after: datetime = NOW) -> list[str]:
    return [f"{slot.at:%m-%dT%H:%M:%S}" for slot in timetable(rule).take(after, n)]


def test_once_takes_an_instant_or_a_local_time() -> None:
    assert at(once("2026-12-24T09:00+01:00", now=NOW)) == ["12-24T08:00:00"]
    assert at(once("2026-12-24 09:00", now=NOW, timezone=BERLIN)) == ["12-24T08:00:00"]
    assert at(once(NOW + timedelta(hours=1), now=NOW)) == ["11-15T10:07:00"]
    assert at(once(datetime(2026, 12, 24, 9), now=NOW, timezone=BERLIN)) == ["12-24T08:00:00"]


def test_once_keeps_fractions_of_a_second() -> None:
    slot = timetable(once("2026-12-24T09:00:00.250Z", now=NOW)).next(NOW)
    assert slot is not None
    assert slot.at == datetime(2026, 12, 24, 9, 0, 0, 250_000, tzinfo=UTC)
    assert timetable(once("2026-12-24T09:00:00.250Z", now=NOW)).next(slot.at) is None


def test_the_past_is_refused_unless_allowed() -> None:
    with pytest.raises(Invalid, match="is in the past"):
        once("2026-11-15T09:06Z", now=NOW)
    rule = once("2026-11-15T09:06Z", now=NOW, allow_past=True)
    assert timetable(rule).next(NOW) is None
    assert timetable(rule).next(NOW - timedelta(hours=1)) is not None


def test_once_in_a_gap_or_a_fold_follows_the_options() -> None:
    gap, fold = "2027-03-28T02:30", "2027-10-31T02:30"
    assert at(once(gap, now=NOW, timezone=BERLIN)) == ["03-28T01:00:00"]
    with pytest.raises(Invalid, match="skip this time"):
        once(gap, now=NOW, timezone=BERLIN, gap="skip")
    assert at(once(fold, now=NOW, timezone=BERLIN)) == ["10-31T00:30:00"]
    assert at(once(fold, now=NOW, timezone=BERLIN, fold="second")) == ["10-31T01:30:00"]
    with pytest.raises(Invalid, match="first or second"):
        once(fold, now=NOW, timezone=BERLIN, fold="both")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-12-24",
        "2026-13-01T09:00",
        "2026-02-30T09:00",
        "2026-12-24T25:00",
        "2026-12-24T09",
        "9999-12-31T23:59Z",
        "0001-01-01T00:00",
        "2026-12-24T09:00+99:00",
        "x" * 10**6,
    ],
)
def test_once_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        once(text, now=NOW)
    assert caught.value.field == "at"


def test_an_interval_counts_from_its_anchor_without_drift() -> None:
    rule = every("7m", anchor=NOW)
    assert at(rule) == ["11-15T09:14:00", "11-15T09:21:00", "11-15T09:28:00"]
    slots = timetable(rule).take(NOW, 2)
    assert [slot.key for slot in slots] == ["g1:1", "g1:2"]
    late = timetable(rule).next(slots[0].at + timedelta(seconds=400, microseconds=3))
    assert late == slots[1]


def test_an_interval_from_long_ago_costs_nothing() -> None:
    anchor = datetime(1900, 1, 1, tzinfo=UTC)
    slot = timetable(every("1s", anchor=anchor)).next(NOW)
    assert slot is not None
    assert slot.at == NOW + timedelta(seconds=1)
    assert slot.key == f"g1:{(slot.at - anchor) // timedelta(seconds=1)}"


def test_the_generation_is_part_of_interval_and_once_keys() -> None:
    one, two = timetable(every("1h", anchor=NOW)), timetable(every("1h", anchor=NOW), generation=2)
    assert [t.take(NOW, 1)[0].key for t in (one, two)] == ["g1:1", "g2:1"]
    single = timetable(once("2026-12-24T09:00Z", now=NOW), generation=7)
    assert single.take(NOW, 1)[0].key == "g7:0"


@pytest.mark.parametrize(
    "interval", ["0s", "", "200 years", timedelta(), timedelta(microseconds=1)]
)
def test_an_impossible_interval_is_refused(interval: str | timedelta) -> None:
    with pytest.raises(Invalid) as caught:
        every(interval, anchor=NOW)
    assert caught.value.field == "every"


def test_an_anchor_needs_a_zone() -> None:
    with pytest.raises(Invalid, match="anchor"):
        every("1h", anchor=datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("times", "weekdays", "expression"),
    [
        (["17:30", "7:00"], (), "07:00,17:30"),
        ("07:00, 17:30", "mon-fri", "07:00,17:30 mon-fri"),
        ("07:00:15", ["sat", "Sunday"], "07:00:15 sat,sun"),
        ("00:00", "fri-mon", "00:00 mon,fri-sun"),
        (["07:00", "07:00"], "mon-sun", "07:00"),
        ("07:00", "weekdays", "07:00 mon-fri"),
    ],
)
def test_a_calendar_is_kept_in_canonical_form(
    times: list[str] | str, weekdays: list[str] | str, expression: str
) -> None:
    assert calendar(times, weekdays=weekdays).expression == expression


@pytest.mark.parametrize(
    ("times", "weekdays", "field"),
    [
        ("", (), "times"),
        ([], (), "times"),
        ("24:00", (), "times"),
        ("7", (), "times"),
        ("07:60", (), "times"),
        ("07:00", "funday", "weekdays"),
        ("07:00", "mon-", "weekdays"),
        (["07:00"] * 2000, (), "times"),
    ],
)
def test_a_bad_calendar_is_refused(times: list[str] | str, weekdays: str, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        calendar(times, weekdays=weekdays)
    assert caught.value.field == field


def test_bounds_include_their_instants() -> None:
    rule = cron("0 * * * *", starts_at="2026-11-15T12:00Z", ends_at="2026-11-15T14:00Z")
    assert at(rule, 9) == ["11-15T12:00:00", "11-15T13:00:00", "11-15T14:00:00"]
    rule = every("1h", anchor=NOW, starts_at="2026-11-15T12:07Z", ends_at="2026-11-15T13:07Z")
    assert at(rule, 9) == ["11-15T12:07:00", "11-15T13:07:00"]


def test_excluded_days_have_no_slots() -> None:
    rule = cron(
        "0 23 * * *", timezone="America/New_York", excluded=["2026-11-16..2026-11-18", "fri"]
    )
    # 23:00 in New York is the next day in UTC; exclusions go by the local day.
    assert at(rule) == ["11-16T04:00:00", "11-20T04:00:00", "11-22T04:00:00"]
    rule = every("12h", anchor=NOW, excluded="mon-wed")
    assert at(rule) == ["11-15T21:07:00", "11-19T09:07:00", "11-19T21:07:00"]


def test_a_rule_that_excludes_everything_is_refused() -> None:
    for build in (
        lambda: cron("0 9 * * *", excluded="mon-sun"),
        lambda: cron("0 9 * * sat", excluded="sat"),
        lambda: every("1h", anchor=NOW, excluded="mon-sun"),
        lambda: once("2026-12-24T09:00Z", now=NOW, excluded="2026-12-24"),
        lambda: cron("* * * * * *", quiet="00:00-24:00"),
        lambda: cron("0 3 * * *", quiet="22:00-07:00", quiet_mode="skip"),
        lambda: rrule("FREQ=WEEKLY;BYDAY=SA", created_at=NOW, excluded="sat"),
    ):
        with pytest.raises(Invalid):
            build()


def test_quiet_windows_postpone() -> None:
    rule = cron("0 * * * *", timezone=BERLIN, quiet="22:00-07:00")
    slots = timetable(rule).between(NOW + timedelta(hours=11), NOW + timedelta(hours=22))
    due = [f"{s.at:%H}>{s.due:%H}" for s in slots]
    assert due == [
        "21>06",
        "22>06",
        "23>06",
        "00>06",
        "01>06",
        "02>06",
        "03>06",
        "04>06",
        "05>06",
        "06>06",
        "07>07",
    ]


def test_quiet_windows_skip() -> None:
    rule = cron("0 * * * *", timezone=BERLIN, quiet="22:00-07:00", quiet_mode="skip")
    assert at(rule, 3, NOW + timedelta(hours=11)) == [
        "11-16T06:00:00",
        "11-16T07:00:00",
        "11-16T08:00:00",
    ]


def test_quiet_windows_chain_across_the_end_of_the_week() -> None:
    rule = cron("0 12 * * sat", quiet=["sat,sun 00:00-24:00", "mon 00:00-08:00", "22:00-06:00"])
    slot = timetable(rule).next(NOW)
    assert slot is not None
    assert (f"{slot.at:%a %H}", f"{slot.due:%a %H:%M}") == ("Sat 12", "Mon 08:00")


def test_a_window_belongs_to_the_day_it_starts_on() -> None:
    rule = cron("0 1 * * *", quiet="fri 22:00-07:00")
    moved = [f"{s.at:%a}" for s in timetable(rule).take(NOW, 7) if s.due != s.at]
    assert moved == ["Sat"]


def test_a_quiet_window_never_postpones_past_a_free_hour_that_comes_again() -> None:
    # 02:50 to 03:30 is quiet, but the clocks go back from 03:00 to 02:00.
    rule = cron("*/10 * * * *", timezone=BERLIN, quiet="02:50-03:30")
    slots = timetable(rule).between(
        datetime(2026, 10, 25, 0, 45, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC)
    )
    assert slots[0].due == datetime(2026, 10, 25, 1, tzinfo=UTC)
    assert [s.due for s in slots] == sorted(s.due for s in slots)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timezone", "Europe/Berln"),
        ("gap", "jump"),
        ("fold", "third"),
        ("quiet_mode", "loud"),
        ("starts_at", "soon"),
        ("ends_at", "2026-13-01T00:00"),
        ("excluded", "someday"),
        ("excluded", "2026-02-30"),
        ("excluded", "2026-12-24..2026-12-01"),
        ("excluded", ["2026-01-01"] * 2000),
        ("quiet", "22:00"),
        ("quiet", "22:00-22:00"),
        ("quiet", "25:00-07:00"),
        ("quiet", "funday 22:00-07:00"),
        ("quiet", "00:00-24:00"),
        ("jitter", "soon"),
        ("jitter", "0.0001s"),
        ("jitter", "30d"),
    ],
)
def test_a_bad_option_is_named(field: str, value: str | list[str]) -> None:
    with pytest.raises(Invalid) as caught:
        cron("0 9 * * *", **{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_bounds_must_be_in_order() -> None:
    with pytest.raises(Invalid, match="must not be before starts_at"):
        cron("0 9 * * *", starts_at="2026-12-01T00:00", ends_at="2026-11-01T00:00")


def test_jitter_is_constant_for_a_schedule_and_differs_between_schedules() -> None:
    rule = cron("0 * * * *", jitter="10m")
    offsets = set()
    for name in "abcdefgh":
        late = {s.due - s.at for s in timetable(rule, stagger=name).take(NOW, 5)}
        assert len(late) == 1
        offsets |= late
    assert len(offsets) > 4
    assert all(timedelta() <= late < timedelta(minutes=10) for late in offsets)


def test_jitter_comes_before_the_quiet_check() -> None:
    rule = cron("59 21 * * *", jitter="1h", quiet="22:00-07:00")
    slot = timetable(rule, stagger="a").next(NOW)
    assert slot is not None
    assert f"{slot.at:%H:%M} {slot.due:%H:%M}" == "21:59 07:00"


def test_the_newest_slot_of_a_stretch_is_found_without_walking_it() -> None:
    table = timetable(cron("* * * * * *", quiet="12:00-13:00", quiet_mode="skip"))
    newest = table.latest(
        datetime(2000, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
    )
    assert newest is not None
    assert newest.at == datetime(2026, 1, 1, 11, 59, 59, tzinfo=UTC)
    assert table.latest(NOW, NOW) is None


def test_instants_without_a_zone_are_refused() -> None:
    with pytest.raises(Invalid):
        timetable(cron("* * * * *")).next(datetime(2026, 1, 1))


@pytest.mark.parametrize("moment", [datetime.min, datetime(1850, 1, 1), datetime.max])  # noqa: DTZ901
def test_no_instant_is_too_far(moment: datetime) -> None:
    for rule in (
        cron("0 9 * * *", timezone=BERLIN),
        every("1h", anchor=NOW),
        once("2026-12-24T09:00Z", now=NOW),
        rrule("FREQ=DAILY", created_at=NOW, timezone="Pacific/Apia"),
    ):
        slot = timetable(rule).next(moment.replace(tzinfo=UTC))
        assert (slot is None) == (moment == datetime.max)  # noqa: DTZ901


RULES = [
    once("2026-12-24T09:00", now=NOW, timezone=BERLIN, fold="second"),
    once("2026-12-24T09:00:30.5Z", now=NOW),
    cron("*/5 9-17 L * 5L", timezone=BERLIN, gap="skip", fold="both", excluded="sat,2026-12-24"),
    every("90m", anchor=NOW, quiet=["sat,sun 00:00-24:00", "22:00-07:00"], quiet_mode="skip"),
    rrule("FREQ=WEEKLY;BYDAY=MO;COUNT=4", created_at=NOW, timezone=BERLIN, jitter="5m"),
    rrule(
        "DTSTART;TZID=Europe/Berlin:20261224T090000\nRRULE:FREQ=DAILY\n"
        "RDATE;TZID=Europe/Berlin:20261225T120000\nEXDATE:20261226T080000Z",
        created_at=NOW,
    ),
    calendar("07:00,17:30", weekdays="mon-fri", starts_at=NOW, ends_at="2030-01-01T00:00"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind.value)
def test_a_rule_survives_the_store(rule: Rule) -> None:
    record = json.loads(json.dumps(to_record(rule)))
    assert from_record(record) == rule
    assert timetable(from_record(record)).take(NOW, 5) == timetable(rule).take(NOW, 5)


def test_a_record_needs_no_optional_keys() -> None:
    assert from_record({"kind": "cron", "expression": "0 9 * * *"}) == cron("0 9 * * *")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"kind": "sometimes", "expression": "x"},
        {"kind": "cron"},
        {"kind": "cron", "expression": 5},
        {"kind": "cron", "expression": "0 9 * * *", "excluded": "sat"},
        {"kind": "cron", "expression": "0 9 * * *", "quiet": [1]},
        {"kind": "cron", "expression": "0 9 * * *", "timezone": None, "gap": "x"},
        {"kind": "interval", "expression": "PT5M"},
        {"kind": "interval", "expression": "PT5M", "anchor": "2026-01-01T00:00"},
        {"kind": "rrule", "expression": "FREQ=DAILY"},
        {"kind": "calendar", "expression": "mon"},
        {"kind": "once", "expression": "soon"},
    ],
)
def test_rubbish_is_no_record(record: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        from_record(record)

"""Laws every timetable keeps, whatever its rule."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.timing.descriptions import describe
from rota.timing.rule_builders import calendar, cron, every, from_record, once, rrule, to_record
from rota.timing.timetable import timetable

if TYPE_CHECKING:
    from rota.model.schedules import Rule

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Pacific/Apia",
    "America/Nuuk",
    "Africa/Casablanca",
    "Asia/Kathmandu",
]
NOW = datetime(2026, 1, 1, tzinfo=UTC)

instants = st.datetimes(
    min_value=datetime(2010, 1, 1),
    max_value=datetime(2030, 1, 1),
    timezones=st.just(UTC),
)
# Half of the instants lie near a change of clocks, where everything interesting happens.
changes = st.sampled_from(
    [
        datetime(2026, 3, 29, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 1, tzinfo=UTC),
        datetime(2026, 3, 8, 7, tzinfo=UTC),
        datetime(2026, 11, 1, 6, tzinfo=UTC),
        datetime(2026, 4, 4, 15, tzinfo=UTC),
        datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
        datetime(2011, 12, 30, 10, tzinfo=UTC),
        datetime(2026, 2, 15, 2, tzinfo=UTC),
    ]
)
near_changes = st.builds(
    lambda change, minutes: change + timedelta(minutes=minutes),
    changes,
    st.integers(-1800, 1800),
)
moments = instants | near_changes


def fields(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.lists(number, min_size=1, max_size=4, unique=True).map(
            lambda ns: ",".join(map(str, ns))
        ),
        st.integers(1, (high - low) // 2).map(lambda n: f"*/{n}"),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
    )


lines = st.tuples(
    fields(0, 59),
    fields(0, 23),
    st.just("*") | fields(1, 31),
    st.just("*") | fields(1, 12),
    st.just("*") | fields(0, 6) | st.sampled_from(["5L", "1#2", "mon-fri", "fri-mon"]),
).map(" ".join)
clocks = st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda t: f"{t[0]:02}:{t[1]:02}")
recurrences = st.builds(
    lambda freq, interval, rest: f"FREQ={freq};INTERVAL={interval}{rest}",
    st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]),
    st.integers(1, 20),
    st.sampled_from(
        [
            "",
            ";BYMONTH=3,10",
            ";BYDAY=MO,SU",
            ";BYHOUR=1,2,3",
            ";BYMINUTE=0,30",
            ";COUNT=40",
            ";BYDAY=SU;BYHOUR=0,2;BYSETPOS=-1",
            ";UNTIL=20290101T000000Z",
        ]
    ),
)


@st.composite
def options(draw: st.DrawFn) -> dict[str, object]:
    return {
        "timezone": draw(st.sampled_from(ZONES)),
        "gap": draw(st.sampled_from(["shift", "skip"])),
        "fold": draw(st.sampled_from(["first", "second", "both"])),
        "excluded": draw(
            st.sampled_from([(), "sat", "mon-wed,2026-03-29", "2026-03-01..2026-03-28"])
        ),
        "quiet": draw(st.sampled_from([(), "22:00-07:00", "02:15-02:45", "sat,sun 00:00-24:00"])),
        "quiet_mode": draw(st.sampled_from(["postpone", "skip"])),
        "jitter": draw(st.sampled_from([None, "10m", "90s"])),
    }


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    given_options = draw(options())
    kind = draw(st.sampled_from(["cron", "calendar", "every", "rrule", "once"]))
    try:
        if kind == "cron":
            return cron(draw(lines), **given_options)  # type: ignore[arg-type]
        if kind == "calendar":
            times = draw(st.lists(clocks, min_size=1, max_size=5))
            return calendar(times, **given_options)  # type: ignore[arg-type]
        if kind == "every":
            length = timedelta(seconds=draw(st.integers(1, 200_000)))
            return every(length, anchor=draw(moments), **given_options)  # type: ignore[arg-type]
        if kind == "rrule":
            text, start = draw(recurrences), draw(moments)
            return rrule(text, created_at=start, **given_options)  # type: ignore[arg-type]
        return once(draw(moments), now=NOW, allow_past=True, **given_options)  # type: ignore[arg-type]
    except Invalid:
        assume(condition=False)
        raise


@settings(max_examples=400, deadline=None)
@given(rules(), moments)
def test_slots_ascend_strictly_have_keys_of_their_own_and_are_never_due_early(
    rule: Rule, after: datetime
) -> None:
    slots = timetable(rule, stagger="law").take(after, 25)
    instants = [after, *(slot.at for slot in slots)]
    assert all(a < b for a, b in itertools.pairwise(instants))
    assert len({slot.key for slot in slots}) == len(slots)
    assert all(slot.due >= slot.at for slot in slots)
    dues = [slot.due for slot in slots]
    assert dues == sorted(dues)
    assert all(slot.at.tzinfo is UTC and slot.due.tzinfo is UTC for slot in slots)


@settings(max_examples=100, deadline=None)
@given(rules(), moments, st.integers(0, 15))
def test_take_between_latest_and_next_agree(rule: Rule, after: datetime, n: int) -> None:
    table = timetable(rule)
    walked, moment = [], after
    for _ in range(n):
        slot = table.next(moment)
        if slot is None:
            break
        walked.append(slot)
        moment = slot.at
    assert table.take(after, n) == walked
    if walked:
        assert table.between(after, walked[-1].at) == walked
        assert table.between(after, walked[-1].at, limit=3) == walked[:3]
        assert table.latest(after, walked[-1].at) == walked[-1]
    assert table.between(after, after) == []


@settings(max_examples=100, deadline=None)
@given(rules(), moments, st.integers(1, 100_000))
def test_the_next_slot_does_not_depend_on_where_one_asks_from(
    rule: Rule, after: datetime, seconds: int
) -> None:
    table = timetable(rule)
    slot = table.next(after)
    between = after + timedelta(seconds=seconds)
    if slot is not None and between < slot.at:
        assert table.next(between) == slot
    elif slot is not None:
        later = table.next(between)
        assert later is None or later.at > between
        assert table.next(slot.at - timedelta(microseconds=1)) == slot


@settings(max_examples=60, deadline=None)
@given(rules())
def test_a_rule_survives_the_store_and_can_be_said(rule: Rule) -> None:
    assert from_record(to_record(rule)) == rule
    assert describe(rule)


@settings(max_examples=50, deadline=None)
@given(rules(), moments, st.text(max_size=8), st.text(max_size=8))
def test_stagger_moves_only_what_is_due(rule: Rule, after: datetime, one: str, two: str) -> None:
    rule = replace(rule, quiet=())
    first = timetable(rule, stagger=one).take(after, 4)
    second = timetable(rule, stagger=two).take(after, 4)
    assert [(s.key, s.at) for s in first] == [(s.key, s.at) for s in second]
    assert all(s.due - s.at < max(rule.jitter, timedelta(microseconds=1)) for s in first)

"""Whatever is typed, a constructor returns a rule or raises Invalid."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.timing.descriptions import describe
from rota.timing.durations import parse_duration
from rota.timing.natural_language import read
from rota.timing.rule_builders import calendar, cron, every, from_record, once, rrule
from rota.timing.timetable import timetable
from rota.timing.zones import zone

NOW = datetime(2026, 11, 15, 9, 7, tzinfo=UTC)

cronish = st.text(alphabet="0123456789*/-,LW#? monfrijae@", max_size=40)
words = st.lists(
    st.sampled_from(
        [
            "every",
            "each",
            "day",
            "weekday",
            "weekend",
            "monday",
            "mon",
            "fri",
            "at",
            "on",
            "in",
            "of",
            "the",
            "month",
            "first",
            "last",
            "1st",
            "31st",
            "next",
            "tomorrow",
            "today",
            "noon",
            "7",
            "7:30",
            "25:00",
            "9am",
            "13pm",
            "30",
            "minutes",
            "2h",
            "hour",
            "and",
            ",",
            "-",
            "to",
            "2026-12-01",
            "T09:00",
            "Z",
            "FREQ=DAILY",
            ";BYDAY=MO",
            "*",
            "*/5",
            "@daily",
            "PT5M",
            "weekly",
            "hourly",
            "0",
            "12",
            "p",
            "-5",
        ]
    ),
    max_size=7,
).map(" ".join)
parts = st.lists(
    st.sampled_from(
        [
            "FREQ=DAILY",
            "FREQ=YEARLY",
            "FREQ=SECONDLY",
            "INTERVAL=0",
            "INTERVAL=7",
            "COUNT=3",
            "COUNT=999999999",
            "BYDAY=MO",
            "BYDAY=-1FR",
            "BYMONTH=2",
            "BYMONTHDAY=30",
            "BYSETPOS=2",
            "BYWEEKNO=53",
            "BYYEARDAY=-366",
            "BYHOUR=2",
            "BYMINUTE=59",
            "BYSECOND=1",
            "UNTIL=20270101T000000Z",
            "UNTIL=x",
            "WKST=SU",
            "=",
        ]
    ),
    max_size=6,
).map(";".join)
rrulish = st.builds(
    "{}{}{}".format,
    st.sampled_from(
        ["", "RRULE:", "DTSTART:20260101T000000Z\n", "DTSTART;TZID=Europe/Berlin:", "\n"]
    ),
    parts,
    st.sampled_from(
        ["", "\nRDATE:20260101T000000Z", "\nEXDATE:x", "\r\n ;", "\nEXRULE:FREQ=DAILY"]
    ),
)
anything = st.one_of(st.text(max_size=60), cronish, words, rrulish)


@settings(max_examples=800, deadline=None)
@given(anything)
def test_any_text_is_a_rule_or_invalid(text: str) -> None:
    builders = (
        lambda: cron(text),
        lambda: cron("0 9 * * *", timezone=text),
        lambda: cron("0 9 * * *", gap=text, fold=text),
        lambda: cron("0 9 * * *", starts_at=text),
        lambda: cron("0 9 * * *", excluded=text),
        lambda: cron("0 9 * * *", quiet=text),
        lambda: cron("0 9 * * *", jitter=text),
        lambda: once(text, now=NOW, timezone="Europe/Berlin"),
        lambda: every(text, anchor=NOW),
        lambda: rrule(text, created_at=NOW),
        lambda: calendar(text),
        lambda: calendar("07:00", weekdays=text),
        lambda: from_record({"kind": "cron", "expression": text}),
        lambda: from_record({"kind": "rrule", "expression": text}),
        lambda: from_record({"kind": text, "expression": text}),
        lambda: read(text, now=NOW, timezone="Europe/Berlin"),
    )
    refusals: list[Invalid] = []
    for build in builders:
        try:
            rule = build()
        except Invalid as refusal:
            refusals.append(refusal)
            continue
        timetable(rule).take(NOW, 2)
        assert describe(rule)
    assert all(refusal.field and refusal.advice for refusal in refusals)


@settings(max_examples=200, deadline=None)
@given(anything)
def test_any_text_is_a_duration_and_a_zone_or_invalid(text: str) -> None:
    for read_text in (parse_duration, zone):
        with suppress(Invalid):
            read_text(text)

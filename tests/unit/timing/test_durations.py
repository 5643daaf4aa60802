"""Lengths of time in all the spellings Rota accepts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Invalid
from rota.timing.durations import (
    format_duration,
    from_milliseconds,
    from_minutes,
    iso_duration,
    parse_duration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("2h", 7200),
        ("1.5h", 5400),
        ("1d", 86_400),
        ("1w", 604_800),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("1 hour, 30 minutes", 5400),
        ("1 hour and 30 minutes", 5400),
        ("10 sec", 10),
        ("10secs", 10),
        ("1 second", 1),
        ("5 min", 300),
        ("5 Mins", 300),
        ("2 HR", 7200),
        ("2hrs", 7200),
        ("3 Days", 259_200),
        ("2 weeks", 1_209_600),
        ("  7m  ", 420),
        ("1500ms", 1.5),
        ("0.001s", 0.001),
        ("PT10M", 600),
        ("pt1h30m", 5400),
        ("P1D", 86_400),
        ("P1W", 604_800),
        ("P1DT12H", 129_600),
        ("PT1.5S", 1.5),
    ],
)
def test_a_length_is_read_as_it_is_written(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "0s",
        "0",
        "10",
        "-5m",
        "m",
        "5x",
        "1h1h",
        "1m 2min",
        "1.5",
        "1..5h",
        "P",
        "PT",
        "P1",
        "PT1D",
        "P1H",
        "1h and",
        "1h,",
        "nan s",
        "inf h",
        "1e5s",
        "101 years",
        "36526d",
        "9" * 15 + "w",
        "1" * 200 + "s",
        "٣m",
        "1h" * 10_000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(text, field="timeout")
    assert caught.value.field == "timeout"


def test_importers_give_milliseconds_and_minutes() -> None:
    assert from_milliseconds(1500) == timedelta(seconds=1.5)
    assert from_minutes(90) == timedelta(hours=1, minutes=30)


@pytest.mark.parametrize("n", [0, -1, 10**30])
def test_importers_numbers_are_bounded(n: int) -> None:
    with pytest.raises(Invalid):
        from_milliseconds(n)
    with pytest.raises(Invalid):
        from_minutes(n)


@pytest.mark.parametrize(
    ("delta", "people", "iso"),
    [
        (timedelta(minutes=10), "10m", "PT10M"),
        (timedelta(hours=1, minutes=30), "1h 30m", "PT1H30M"),
        (timedelta(seconds=45), "45s", "PT45S"),
        (timedelta(seconds=1.5), "1.5s", "PT1.5S"),
        (timedelta(days=1), "1d", "P1D"),
        (timedelta(days=8, hours=1, seconds=1), "8d 1h 1s", "P8DT1H1S"),
        (timedelta(), "0s", "PT0S"),
        (-timedelta(minutes=5), "-5m", "-PT5M"),
    ],
)
def test_a_length_is_written_for_people_and_for_the_store(
    delta: timedelta, people: str, iso: str
) -> None:
    assert format_duration(delta) == people
    assert iso_duration(delta) == iso

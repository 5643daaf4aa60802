"""Cron lines: what they mean, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.errors import Invalid
from rota.timing.rule_builders import cron
from rota.timing.timetable import timetable

SUNDAY = datetime(2026, 11, 15, 9, 7, tzinfo=UTC)


def nexts(expression: str, n: int = 3, after: datetime = SUNDAY) -> list[str]:
    return [f"{slot.at:%m-%dT%H:%M}" for slot in timetable(cron(expression)).take(after, n)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["11-15T09:08", "11-15T09:09", "11-15T09:10"]),
        ("*/10 * * * *", ["11-15T09:10", "11-15T09:20", "11-15T09:30"]),
        ("5/15 * * * *", ["11-15T09:20", "11-15T09:35", "11-15T09:50"]),
        ("1-5/2 10 * * *", ["11-15T10:01", "11-15T10:03", "11-15T10:05"]),
        ("1,3,5 10 * * *", ["11-15T10:01", "11-15T10:03", "11-15T10:05"]),
        ("0 9 * * 1-5", ["11-16T09:00", "11-17T09:00", "11-18T09:00"]),
        ("0 9 * * mon-fri", ["11-16T09:00", "11-17T09:00", "11-18T09:00"]),
        ("0 9 * * FRI-mon", ["11-16T09:00", "11-20T09:00", "11-21T09:00"]),
        ("0 9 * * fri-mon/2", ["11-20T09:00", "11-22T09:00", "11-27T09:00"]),
        ("0 9 1 nov-feb *", ["12-01T09:00", "01-01T09:00", "02-01T09:00"]),
        ("0 10 * * 0", ["11-15T10:00", "11-22T10:00", "11-29T10:00"]),
        ("0 10 * * 7", ["11-15T10:00", "11-22T10:00", "11-29T10:00"]),
        ("0 10 * * 5-7", ["11-15T10:00", "11-20T10:00", "11-21T10:00"]),
        ("0 0 13 * 5", ["11-20T00:00", "11-27T00:00", "12-04T00:00"]),
        ("0 0 13 * *", ["12-13T00:00", "01-13T00:00", "02-13T00:00"]),
        ("0 0 */10 * 1", ["12-21T00:00", "01-11T00:00", "02-01T00:00"]),
        ("0 0 L * *", ["11-30T00:00", "12-31T00:00", "01-31T00:00"]),
        ("0 0 1,L * *", ["11-30T00:00", "12-01T00:00", "12-31T00:00"]),
        ("0 0 * * 5L", ["11-27T00:00", "12-25T00:00", "01-29T00:00"]),
        ("0 0 * * friL", ["11-27T00:00", "12-25T00:00", "01-29T00:00"]),
        ("0 0 * * 1#2", ["12-14T00:00", "01-11T00:00", "02-08T00:00"]),
        ("0 0 ? * mon", ["11-16T00:00", "11-23T00:00", "11-30T00:00"]),
        ("0 0 1 * ?", ["12-01T00:00", "01-01T00:00", "02-01T00:00"]),
        ("@yearly", ["01-01T00:00", "01-01T00:00", "01-01T00:00"]),
        ("@annually", ["01-01T00:00", "01-01T00:00", "01-01T00:00"]),
        ("@monthly", ["12-01T00:00", "01-01T00:00", "02-01T00:00"]),
        ("@weekly", ["11-22T00:00", "11-29T00:00", "12-06T00:00"]),
        ("@daily", ["11-16T00:00", "11-17T00:00", "11-18T00:00"]),
        ("@MIDNIGHT", ["11-16T00:00", "11-17T00:00", "11-18T00:00"]),
        ("@hourly", ["11-15T10:00", "11-15T11:00", "11-15T12:00"]),
        ("0 0 29 2 *", ["02-29T00:00", "02-29T00:00", "02-29T00:00"]),
    ],
)
def test_a_line_fires_when_it_says(expression: str, expected: list[str]) -> None:
    assert nexts(expression) == expected


def test_six_fields_begin_with_the_seconds() -> None:
    slots = timetable(cron("*/20 7 9 * * *")).take(SUNDAY, 2)
    assert [f"{slot.at:%H:%M:%S}" for slot in slots] == ["09:07:20", "09:07:40"]
    assert slots[0].key == "2026-11-15T09:07:20[UTC]#0"


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("60 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of month"),
        ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month"),
        ("* * * foo *", "month"),
        ("* * * * 8", "day of week"),
        ("* * * * mun", "day of week"),
        ("* * * * 1#6", "day of week"),
        ("* * * * 1#0", "day of week"),
        ("*/0 * * * *", "minute"),
        ("*/61 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("* * * * 5-1", "day of week"),
        ("NaN * * * *", "minute"),
        ("*-5 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("*,5 * * * *", "minute"),
        ("? * * * *", "minute"),
        ("* L * * *", "hour"),
        ("1.5 * * * *", "minute"),
        ("*/x * * * *", "minute"),
        ("60 * * * * *", "second"),
        ("٣ * * * *", "minute"),
    ],
)
def test_a_bad_field_is_named(expression: str, field: str) -> None:
    with pytest.raises(Invalid, match=f"the {field} field") as caught:
        cron(expression)
    assert caught.value.field == "cron"


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "*",
        "* * * *",
        "* * * * * * *",
        "@never",
        "@",
        "* " * 1000,
        "0 0 30 2 *",
        "0 0 31 4,6,9 *",
        "0 0 30 2 */2",
    ],
)
def test_a_line_that_cannot_work_is_refused(expression: str) -> None:
    with pytest.raises(Invalid):
        cron(expression)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("  0   9 *  * MON-fri ", "0 9 * * 1-5"),
        ("00 09 * * 7", "0 9 * * 0"),
        ("@daily", "0 0 * * *"),
        ("0 0 ? * fri-mon", "0 0 * * 0,1,5,6"),
        ("0 0 l * *", "0 0 L * *"),
        ("0 0 * * monl,tue#2", "0 0 * * 1L,2#2"),
    ],
)
def test_a_line_has_one_canonical_spelling(written: str, canonical: str) -> None:
    rule = cron(written)
    assert rule.expression == canonical
    assert cron(canonical) == rule

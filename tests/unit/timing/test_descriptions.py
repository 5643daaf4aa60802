"""Rules in words, both ways."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from rota.errors import Invalid
from rota.timing.descriptions import describe
from rota.timing.natural_language import read
from rota.timing.rule_builders import calendar, cron, every, once, rrule
from rota.timing.timetable import timetable

if TYPE_CHECKING:
    from rota.model.schedules import Rule

NOW = datetime(2026, 11, 15, 9, 7, tzinfo=UTC)
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0 7 * * 1-5", "weekdays at 07:00, Europe/Berlin"),
        ("*/15 * * * *", "every 15 minutes"),
        ("* * * * *", "every minute"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 * * * *", "every hour"),
        ("15 * * * *", "every hour at 15 past"),
        ("0 */2 * * *", "every 2 hours, Europe/Berlin"),
        ("0 7,17 * * 1,3", "at 07:00 and 17:00 on mon, wed, Europe/Berlin"),
        ("0 9 * * 6,0", "weekends at 09:00, Europe/Berlin"),
        ("0 9 * * 1", "every Monday at 09:00, Europe/Berlin"),
        ("0 9 1,15 * *", "on the 1st and 15th of the month at 09:00, Europe/Berlin"),
        ("0 9 L * *", "on the last day of the month at 09:00, Europe/Berlin"),
        ("0 17 * * 5L", "on the last Friday of the month at 17:00, Europe/Berlin"),
        ("0 9 * * 1#2", "on the second Monday of the month at 09:00, Europe/Berlin"),
        ("0 0 24 12 *", "on the 24th of December at 00:00, Europe/Berlin"),
        ("0 9 * 1,7 *", "every day at 09:00 in January and July, Europe/Berlin"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on weekdays, Europe/Berlin"),
        ("5 4 1-7 * 1-5/2", "cron 5 4 1-7 * 1-5/2, Europe/Berlin"),
        ("*/7 * * * *", "cron */7 * * * *, Europe/Berlin"),
        ("0 9 13 * 5", "cron 0 9 13 * 5, Europe/Berlin"),
    ],
)
def test_a_cron_line_is_said_in_plain_words_or_exactly(expression: str, said: str) -> None:
    assert describe(cron(expression, timezone=BERLIN)) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=TU,TH;COUNT=5",
            "every 2 weeks on tue and thu at 10:07, 5 times",
        ),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0", "every day at 09:00"),
        ("FREQ=MONTHLY;BYDAY=-1FR", "every month on the last Friday at 10:07"),
        ("FREQ=YEARLY;BYMONTH=12;BYMONTHDAY=24", "every year on 24 December at 10:07"),
        ("FREQ=HOURLY;INTERVAL=6", "every 6 hours"),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "rrule FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO"),
    ],
)
def test_a_recurrence_is_said_in_plain_words_or_exactly(text: str, said: str) -> None:
    assert describe(rrule(text, created_at=NOW, timezone=BERLIN)) == f"{said}, {BERLIN}"


def test_other_kinds_are_said_too() -> None:
    assert describe(every("15m", anchor=NOW)) == "every 15 minutes"
    assert describe(every("1h", anchor=NOW)) == "every hour"
    assert describe(every("100s", anchor=NOW)) == "every 100 seconds"
    rule = once("2026-12-24T09:00", now=NOW, timezone=BERLIN)
    assert describe(rule) == "once on 24 December 2026 at 09:00, Europe/Berlin"
    rule = once("2026-12-24T08:00Z", now=NOW, timezone=BERLIN)
    assert describe(rule) == "once on 24 December 2026 at 09:00, Europe/Berlin"


def test_bounds_exclusions_quiet_windows_and_jitter_are_mentioned() -> None:
    rule = calendar(
        ["07:00", "17:30"],
        weekdays="mon,wed",
        timezone=BERLIN,
        starts_at="2026-12-01T00:00",
        excluded=["2026-12-24..2027-01-02", "sat"],
        quiet="22:00-07:00",
        jitter="5m",
    )
    assert describe(rule) == (
        "at 07:00 and 17:30 on mon, wed, Europe/Berlin; from 1 December 2026 at 00:00; "
        "not on 24 December 2026 to 2 January 2027 and sat; "
        "postponed while quiet (22:00-07:00); up to 5m later"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("every weekday at 7", "weekdays at 07:00"),
        ("Every Weekday at 7:00 AM.", "weekdays at 07:00"),
        ("every day at 7:30 and 17:00", "every day at 07:30 and 17:00"),
        ("every monday and friday at 9am", "at 09:00 on mon, fri"),
        ("every mon-fri at 8:15", "weekdays at 08:15"),
        ("every tuesday 14:00", "every Tuesday at 14:00"),
        ("mondays at 9", "every Monday at 09:00"),
        ("daily at noon", "every day at 12:00"),
        ("weekends at 10", "weekends at 10:00"),
        ("every week on monday at 9", "every Monday at 09:00"),
        ("every 2 weeks on tuesday at 9", "every 2 weeks on tue at 09:00"),
        ("first of the month at 9", "on the 1st of the month at 09:00"),
        ("monthly on the 15th at 9:00", "on the 15th of the month at 09:00"),
        ("last friday of the month at 17:00", "on the last Friday of the month at 17:00"),
        ("every first monday of the month at 9", "on the first Monday of the month at 09:00"),
        ("tomorrow 9am", "once on 16 November 2026 at 09:00"),
        ("today at 18:00", "once on 15 November 2026 at 18:00"),
        ("monday at 9", "once on 16 November 2026 at 09:00"),
        ("sunday at 18:00", "once on 15 November 2026 at 18:00"),
        ("next sunday at 18:00", "once on 22 November 2026 at 18:00"),
        ("sunday at 8:00", "once on 22 November 2026 at 08:00"),
        ("next friday 5pm", "once on 20 November 2026 at 17:00"),
        ("in 20 minutes", "once on 15 November 2026 at 10:27"),
        ("in 2 hours", "once on 15 November 2026 at 12:07"),
        ("in an hour", "once on 15 November 2026 at 11:07"),
        ("2026-12-01 09:00", "once on 1 December 2026 at 09:00"),
        ("at 18:30", "once on 15 November 2026 at 18:30"),
        ("at 9:00", "once on 16 November 2026 at 09:00"),
        ("0 7 * * 1-5", "weekdays at 07:00"),
        ("@daily", "every day at 00:00"),
        ("FREQ=DAILY;COUNT=2", "every day at 10:07, 2 times"),
    ],
)
def test_a_phrase_with_one_meaning_is_read(text: str, said: str) -> None:
    assert describe(read(text, now=NOW, timezone=BERLIN)) == f"{said}, {BERLIN}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("every 30 minutes", "every 30 minutes"),
        ("every 2h", "every 2 hours"),
        ("every hour", "every hour"),
        ("hourly", "every hour"),
        ("every PT10M", "every 10 minutes"),
        ("each 90 seconds", "every 90 seconds"),
    ],
)
def test_a_phrase_of_pace_is_read(text: str, said: str) -> None:
    assert describe(read(text, now=NOW, timezone=BERLIN)) == said


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("30m", 'write "in 30m" for once, or "every 30m"'),
        ("2 hours", 'write "in 2 hours" for once, or "every 2 hours"'),
        ("18:30", 'write "at 18:30" for once, or "every day at 18:30"'),
        ("at 7", "write one time such as"),
        ("every day", "add a time of day"),
        ("every monday", "add a time of day"),
        ("monday", "add one time of day"),
        ("tomorrow", "add one time of day"),
        ("weekly", "say which day and time"),
        ("first of the month", "add a time of day"),
        ("12", "not understood"),
        ("every 5 potatoes", "not understood"),
        ("whenever", "not understood"),
        ("", "say when"),
        ("today at 8:00", "in the past"),
        ("2026-12-01", "add a time of day"),
        ("in 0 minutes", "above zero"),
        ("every day at 25:00", '"25:00" is no time of day; write for example "at 7:00"'),
        ("x" * 1001, "at most 1000 characters"),
    ],
)
def test_a_phrase_with_two_meanings_or_none_is_answered_with_what_to_write(
    text: str, advice: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read(text, now=NOW, timezone=BERLIN)
    assert advice in caught.value.advice


def test_every_few_weeks_begins_with_the_next_such_day() -> None:
    rule: Rule = read("every 2 weeks on tuesday at 9", now=NOW, timezone=BERLIN)
    assert [f"{s.at:%m-%d}" for s in timetable(rule).take(NOW, 2)] == ["11-17", "12-01"]

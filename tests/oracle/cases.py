"""The rules that are compared: every kind, every field form, every option.

A text may name moments of its window: `{day}` and `{next_day}` are the dates around the change,
`{inside}` is a wall time in the middle of what is left out or repeated, and in the spelling of
RFC 5545 `{eve}` is that time a day earlier, `{stamp}` the same as inside, `{past}` an hour later.
"""

from __future__ import annotations

from dataclasses import replace

from tests.oracle.expectations import Rule
from tests.oracle.windows import DAY, HOUR, Window, moment

START = "DTSTART:20191230T023000\nRRULE:"
HALF_HOURS = "0,30 0-4,22,23 * * *"
QUARTERS = "00:00,01:15,02:00,02:30,02:45,03:00,03:30,23:30"


def _cron(text: str, **options: object) -> Rule:
    return Rule(kind="cron", text=text, **options)


def _calendar(text: str, **options: object) -> Rule:
    return Rule(kind="calendar", text=text, **options)


def _rrule(text: str, **options: object) -> Rule:
    return Rule(kind="rrule", text=text if "RRULE:" in text else START + text, **options)


def _every(text: str, **options: object) -> Rule:
    return Rule(kind="interval", text=text, **options)


def _once(text: str, **options: object) -> Rule:
    return Rule(kind="once", text=text, **options)


RULES = [
    # once a day, in each way through a gap and a fold
    _cron("30 2 * * *"),
    _cron("30 2 * * *", gap="skip"),
    _cron("30 2 * * *", fold="second"),
    _cron("30 2 * * *", fold="both", gap="skip"),
    _cron("0 2 * * *"),
    _cron("0 3 * * *", fold="both"),
    _cron("45 1 * * *", fold="second"),
    _cron("0 0 * * *", fold="both"),
    _cron("@daily"),
    _cron("30 23 * * *"),
    _cron("59 23 * * *", fold="second"),
    _cron("15 0 * * *", gap="skip"),
    # several times a day
    _cron(HALF_HOURS),
    _cron(HALF_HOURS, gap="skip", fold="second"),
    _cron(HALF_HOURS, fold="both"),
    _cron("0-59/10 2 * * *"),
    _cron("0-59/10 2 * * *", fold="both"),
    _cron("17 1-5/2 * * *", fold="second"),
    _cron("5,20-40/5,55 0,2,23 * * *"),
    _cron("30/10 1-3 * * *"),
    # by elapsed time
    _cron("@hourly"),
    _cron("*/15 * * * *"),
    _cron("*/7 * * * *"),
    _cron("5 */2 * * *"),
    _cron("*/30 2 * * *"),
    _cron("*/30 2 * * *", gap="skip"),
    _cron("* 2 * * *", fold="second"),
    _cron("*/20 0,23 * * sat,sun"),
    _cron("*/25 22-23,1-2 * * *"),
    # days
    _cron("10 3 * * sun"),
    _cron("30 2 * * 0,6", fold="both"),
    _cron("0 22,23,0,1,2 * * mon-fri"),
    _cron("30 2 L * *"),
    _cron("30 2,23 1,L * *", fold="second"),
    _cron("0 2,3 * * 7L"),
    _cron("30 2 * * sun#1,sun#2,sun#4"),
    _cron("30 0 * * 6#5,5L"),
    _cron("0 2 1-7 * sun"),
    _cron("0 2 */2 * sun"),
    _cron("30 1,2 * mar-apr,9-11 *"),
    _cron("0 2 ? 3,10 SUN"),
    _cron("@weekly"),
    # seconds
    _cron("15,45 30 2 * * *"),
    _cron("30 0 2,3 * * *", fold="both"),
    _cron("*/20 30 2 * * *"),
    _cron("*/20 0,30 1-3 * * *", fold="both"),
    _cron("10-50/20 */30 * * * *"),
    # calendars
    _calendar("02:30"),
    _calendar(QUARTERS),
    _calendar(QUARTERS, gap="skip", fold="both"),
    _calendar(QUARTERS, fold="second"),
    _calendar("00:30,02:15,02:15:30,23:45 sat,sun"),
    # recurrences
    _rrule("FREQ=DAILY"),
    _rrule("FREQ=DAILY;INTERVAL=3;BYHOUR=2;BYMINUTE=0,30", fold="both"),
    _rrule("FREQ=DAILY;BYHOUR=0,1,2,3,23;BYMINUTE=0,30;BYSETPOS=2,6,-1"),
    _rrule("FREQ=WEEKLY;INTERVAL=2;WKST=SU;BYDAY=SA,SU,MO;BYHOUR=1,2,23", fold="second"),
    _rrule("FREQ=MONTHLY;BYDAY=-1SU,1SU,2SU;BYHOUR=0,2,3"),
    _rrule("FREQ=MONTHLY;BYMONTHDAY=-1,1,8,25,26,27,28,29;BYHOUR=2", gap="skip"),
    _rrule("FREQ=YEARLY;BYMONTH=3,4,9,10,11;BYDAY=SU;BYHOUR=2;BYMINUTE=0,30"),
    _rrule("FREQ=YEARLY;BYWEEKNO=10,13,14,43,44;BYDAY=SA,SU", fold="both"),
    _rrule("FREQ=HOURLY"),
    _rrule("FREQ=HOURLY;INTERVAL=5"),
    _rrule("FREQ=HOURLY;BYHOUR=2;BYMINUTE=0,20,40"),
    _rrule("FREQ=HOURLY;INTERVAL=24"),
    _rrule("FREQ=MINUTELY;INTERVAL=45"),
    _rrule("FREQ=SECONDLY;INTERVAL=5400"),
    _rrule("DTSTART:{stamp}\nRRULE:FREQ=DAILY", fold="both"),
    _rrule("DTSTART:{eve}\nRRULE:FREQ=MINUTELY;INTERVAL=20;COUNT=80"),
    _rrule("DTSTART:{eve}\nRRULE:FREQ=HOURLY;UNTIL={past}"),
    _rrule(
        "DTSTART:{eve}\nRRULE:FREQ=DAILY;BYHOUR=1,2,3\nRDATE:{stamp},{past}\nEXDATE:{eve}",
        fold="second",
    ),
    # intervals
    _every("PT1H"),
    _every("PT7M30S"),
    _every("PT24H"),
    _every("PT13H20M", excluded=("{day}",)),
    _every("PT20M", excluded=("sun", "{next_day}")),
    # single times
    _once("{inside}"),
    _once("{inside}", fold="second"),
    _once("{day}T00:00"),
    # excluded days
    _cron(HALF_HOURS, excluded=("{day}",)),
    _cron(HALF_HOURS, excluded=("{next_day}",), fold="both"),
    _cron(HALF_HOURS, excluded=("sat,sun",)),
    _cron("*/30 * * * *", excluded=("fri-sun", "{day}..{next_day}")),
    _calendar("00:00,02:30,23:30", excluded=("{next_day}",)),
    _rrule("FREQ=DAILY;BYHOUR=0,2,23;BYMINUTE=0,30", excluded=("sun",)),
    # quiet hours
    _cron("*/20 * * * *", quiet=("01:00-03:00",)),
    _cron("*/20 * * * *", quiet=("22:00-02:30",), quiet_mode="skip"),
    _cron(HALF_HOURS, fold="both", quiet=("sun 00:30-02:15", "mon 23:00-03:30")),
    _calendar(QUARTERS, quiet=("02:00-02:40",), quiet_mode="skip"),
    _every("PT25M", quiet=("sat,sun 01:30-02:30",)),
    # bounds
    _cron("*/10 * * * *", starts=-90, ends=90),
    _cron(HALF_HOURS, starts=0, fold="both"),
    _calendar(QUARTERS, ends=0),
]


def rules_in(window: Window) -> list[Rule]:
    """Return the rules with the moments of a window filled in."""
    change = window.change
    inside = change.at + change.before + (change.after - change.before) // 2
    words = {
        "day": f"{moment(inside):%Y-%m-%d}",
        "next_day": f"{moment(inside + DAY):%Y-%m-%d}",
        "inside": f"{moment(inside):%Y-%m-%dT%H:%M}",
        "stamp": _stamp(inside),
        "eve": _stamp(inside - DAY),
        "past": _stamp(inside + HOUR),
    }
    return [
        replace(
            rule,
            text=rule.text.format_map(words),
            excluded=tuple(day.format_map(words) for day in rule.excluded),
        )
        for rule in RULES
    ]


def _stamp(wall: int) -> str:
    return f"{moment(wall):%Y%m%dT%H%M%S}"

"""Rules made to hang, exhaust or crash a planner are refused or answered quickly."""

from __future__ import annotations

from datetime import UTC, datetime
from time import process_time
from typing import TYPE_CHECKING

import pytest

from rota.errors import Invalid
from rota.timing.natural_language import read
from rota.timing.rule_builders import calendar, cron, every, once, rrule
from rota.timing.timetable import timetable

if TYPE_CHECKING:
    from collections.abc import Callable

    from rota.model.schedules import Rule

NOW = datetime(2026, 11, 15, 9, 7, tzinfo=UTC)
LENIENT_SECONDS = 0.5
SIXTY = ",".join(map(str, range(60)))
DAY_LONG = f"BYHOUR={','.join(map(str, range(24)))};BYMINUTE={SIXTY};BYSECOND={SIXTY}"


def recur(text: str, start: str = "19700101T000000Z", **options: str) -> Rule:
    return rrule(f"DTSTART:{start}\nRRULE:{text}", created_at=NOW, **options)


HOSTILE: list[Callable[[], Rule]] = [
    lambda: recur("FREQ=DAILY;INTERVAL=0"),
    lambda: recur("FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"),
    lambda: recur("FREQ=SECONDLY", "00010101T000000Z"),
    lambda: recur("FREQ=SECONDLY", "99991231T235959Z"),
    lambda: recur("FREQ=SECONDLY"),
    lambda: recur("FREQ=SECONDLY", "19000101T000000Z"),
    lambda: recur("FREQ=SECONDLY;COUNT=1000000000"),
    lambda: recur("FREQ=SECONDLY;BYHOUR=3;COUNT=1000000000"),
    lambda: recur("FREQ=SECONDLY;BYHOUR=3;COUNT=5000"),
    lambda: recur("FREQ=YEARLY;BYYEARDAY=366;COUNT=5000"),
    lambda: recur("FREQ=SECONDLY;INTERVAL=86399;BYSECOND=13;BYMINUTE=1;BYHOUR=4"),
    lambda: recur("FREQ=SECONDLY;INTERVAL=10007;BYSECOND=13;BYMINUTE=1;BYHOUR=4;BYMONTHDAY=13"),
    lambda: recur("FREQ=SECONDLY;INTERVAL=1000000000;BYSECOND=13"),
    lambda: recur("FREQ=MINUTELY;INTERVAL=1439;BYHOUR=4;BYMINUTE=1;BYMONTH=2;BYMONTHDAY=29"),
    lambda: recur("FREQ=HOURLY;INTERVAL=24;BYHOUR=5"),
    lambda: recur("FREQ=DAILY;INTERVAL=7;BYDAY=MO"),
    lambda: recur("FREQ=WEEKLY;INTERVAL=1000000000;BYDAY=MO"),
    lambda: recur("FREQ=YEARLY;INTERVAL=1000000000"),
    lambda: recur("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;INTERVAL=1001"),
    lambda: recur(f"FREQ=YEARLY;{DAY_LONG};BYDAY=MO,TU,WE,TH,FR,SA,SU;BYSETPOS=-366,366"),
    lambda: recur(f"FREQ=YEARLY;{DAY_LONG};BYDAY=MO;BYSETPOS=-366,366;COUNT=5000"),
    lambda: recur("FREQ=DAILY;BYHOUR=9;BYSETPOS=2"),
    lambda: recur("FREQ=SECONDLY;BYSECOND=1;BYSETPOS=-2"),
    lambda: recur("FREQ=HOURLY;INTERVAL=168", "20261114T090000Z", excluded="sat"),
    lambda: recur("FREQ=SECONDLY", excluded="mon-sun"),
    lambda: recur("FREQ=DAILY\nRDATE:" + ",".join(["20260101T000000Z"] * 100_000)),
    lambda: recur(
        "FREQ=DAILY\nEXDATE:"
        + ",".join(f"2026{m:02}{d:02}T000000Z" for m in range(1, 13) for d in range(1, 29))
    ),
    lambda: rrule("X" * 1_000_000, created_at=NOW),
    lambda: rrule("FREQ=DAILY;" * 90_000, created_at=NOW),
    lambda: cron("0 9 * * sat", excluded="sat"),
    lambda: cron("* * * * * *", excluded="mon-sun"),
    lambda: cron("* * * * * *", quiet="00:00-24:00"),
    lambda: cron("* * * * * *", quiet="00:00-23:59", quiet_mode="skip"),
    lambda: cron("0 3 * * *", timezone="Europe/Berlin", quiet="22:00-07:00", quiet_mode="skip"),
    lambda: cron("30 2 * 3 7L", timezone="Europe/Berlin", gap="skip"),
    lambda: cron("0 0 29 2 */7", timezone="Europe/Berlin"),
    lambda: cron("*," * 500_000),
    lambda: cron("0 9 * * *", timezone="../" * 300_000),
    lambda: cron(
        "0 9 * * *", excluded=[f"20{y}-{m:02}-01" for y in range(26, 99) for m in range(1, 13)]
    ),
    lambda: every("1ms", anchor=datetime(1900, 1, 1, tzinfo=UTC), excluded="mon-sat"),
    lambda: every("1w", anchor=datetime(1900, 1, 6, tzinfo=UTC), excluded="sat"),
    lambda: every("9" * 1_000_000 + "s", anchor=NOW),
    lambda: once("2026-12-24T09:00" * 100_000, now=NOW),
    lambda: calendar("07:00," * 100_000),
    lambda: read("every day at " + "7 and " * 200, now=NOW),
    lambda: read("every " + "a" * 990, now=NOW),
    lambda: read(" " * 999, now=NOW),
]


@pytest.mark.parametrize("build", HOSTILE)
def test_a_hostile_rule_is_refused_or_answered_in_no_time(build: Callable[[], Rule]) -> None:
    start = process_time()
    try:
        table = timetable(build())
    except Invalid:
        table = None
    if table is not None:
        for after in (datetime(1900, 1, 1, tzinfo=UTC), NOW, datetime(2199, 1, 1, tzinfo=UTC)):
            table.next(after)
    assert process_time() - start < LENIENT_SECONDS

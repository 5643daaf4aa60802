"""RFC 5545 rules: the examples of its section 3.8.5.3, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from rota.errors import Invalid
from rota.timing.rules import rrule
from rota.timing.timetable import timetable

NEW_YORK = ZoneInfo("America/New_York")
LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)
DEFAULT_START = "19970902T090000"


def occurrences(text: str, start: str = DEFAULT_START, n: int = 60) -> list[str]:
    rule = rrule(f"DTSTART;TZID=America/New_York:{start}\nRRULE:{text}", created_at=LONG_AGO)
    slots = timetable(rule).take(LONG_AGO, n)
    return [f"{slot.at.astimezone(NEW_YORK):%Y-%m-%d %H:%M}" for slot in slots]


def days(*listed: str) -> list[str]:
    """Expand "1997-09: 2 9" to the days it lists, each at 09:00."""
    found = []
    for line in listed:
        month, _, numbers = line.partition(":")
        found += [f"{month}-{int(n):02} 09:00" for n in numbers.split()]
    return found


EXAMPLES = [
    ("FREQ=DAILY;COUNT=10", DEFAULT_START, days("1997-09: 2 3 4 5 6 7 8 9 10 11")),
    ("FREQ=DAILY;INTERVAL=10;COUNT=5", DEFAULT_START, days("1997-09: 2 12 22", "1997-10: 2 12")),
    (
        "FREQ=DAILY;INTERVAL=2",
        DEFAULT_START,
        days("1997-09: 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30"),
    ),
    (
        "FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY=SU,MO,TU,WE,TH,FR,SA",
        "19980101T090000",
        days("1998-01: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"),
    ),
    (
        "FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1",
        "19980101T090000",
        days("1998-01: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"),
    ),
    (
        "FREQ=WEEKLY;COUNT=10",
        DEFAULT_START,
        days("1997-09: 2 9 16 23 30", "1997-10: 7 14 21 28", "1997-11: 4"),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;WKST=SU",
        DEFAULT_START,
        days(
            "1997-09: 2 16 30",
            "1997-10: 14 28",
            "1997-11: 11 25",
            "1997-12: 9 23",
            "1998-01: 6 20",
            "1998-02: 3 17",
        ),
    ),
    (
        "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
        DEFAULT_START,
        days("1997-09: 2 4 9 11 16 18 23 25 30", "1997-10: 2"),
    ),
    (
        "FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH",
        DEFAULT_START,
        days("1997-09: 2 4 9 11 16 18 23 25 30", "1997-10: 2"),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        "19970901T090000",
        days(
            "1997-09: 1 3 5 15 17 19 29",
            "1997-10: 1 3 13 15 17 27 29 31",
            "1997-11: 10 12 14 24 26 28",
            "1997-12: 8 10 12 22",
        ),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
        DEFAULT_START,
        days("1997-09: 2 4 16 18 30", "1997-10: 2 14 16"),
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYDAY=1FR",
        "19970905T090000",
        days(
            "1997-09: 5",
            "1997-10: 3",
            "1997-11: 7",
            "1997-12: 5",
            "1998-01: 2",
            "1998-02: 6",
            "1998-03: 6",
            "1998-04: 3",
            "1998-05: 1",
            "1998-06: 5",
        ),
    ),
    (
        "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR",
        "19970905T090000",
        days("1997-09: 5", "1997-10: 3", "1997-11: 7", "1997-12: 5"),
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        "19970907T090000",
        days("1997-09: 7 28", "1997-11: 2 30", "1998-01: 4 25", "1998-03: 1 29", "1998-05: 3 31"),
    ),
    (
        "FREQ=MONTHLY;COUNT=6;BYDAY=-2MO",
        "19970922T090000",
        days(
            "1997-09: 22", "1997-10: 20", "1997-11: 17", "1997-12: 22", "1998-01: 19", "1998-02: 16"
        ),
    ),
    (
        "FREQ=MONTHLY;BYMONTHDAY=-3",
        "19970928T090000",
        days(
            "1997-09: 28", "1997-10: 29", "1997-11: 28", "1997-12: 29", "1998-01: 29", "1998-02: 26"
        ),
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15",
        DEFAULT_START,
        days("1997-09: 2 15", "1997-10: 2 15", "1997-11: 2 15", "1997-12: 2 15", "1998-01: 2 15"),
    ),
    (
        "FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1",
        "19970930T090000",
        days(
            "1997-09: 30",
            "1997-10: 1 31",
            "1997-11: 1 30",
            "1997-12: 1 31",
            "1998-01: 1 31",
            "1998-02: 1",
        ),
    ),
    (
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        "19970910T090000",
        days("1997-09: 10 11 12 13 14 15", "1999-03: 10 11 12 13"),
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;BYDAY=TU",
        DEFAULT_START,
        days(
            "1997-09: 2 9 16 23 30",
            "1997-11: 4 11 18 25",
            "1998-01: 6 13 20 27",
            "1998-03: 3 10 17 24 31",
        ),
    ),
    (
        "FREQ=YEARLY;COUNT=10;BYMONTH=6,7",
        "19970610T090000",
        days(
            "1997-06: 10",
            "1997-07: 10",
            "1998-06: 10",
            "1998-07: 10",
            "1999-06: 10",
            "1999-07: 10",
            "2000-06: 10",
            "2000-07: 10",
            "2001-06: 10",
            "2001-07: 10",
        ),
    ),
    (
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        "19970310T090000",
        days(
            "1997-03: 10",
            "1999-01: 10",
            "1999-02: 10",
            "1999-03: 10",
            "2001-01: 10",
            "2001-02: 10",
            "2001-03: 10",
            "2003-01: 10",
            "2003-02: 10",
            "2003-03: 10",
        ),
    ),
    (
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        "19970101T090000",
        days(
            "1997-01: 1",
            "1997-04: 10",
            "1997-07: 19",
            "2000-01: 1",
            "2000-04: 9",
            "2000-07: 18",
            "2003-01: 1",
            "2003-04: 10",
            "2003-07: 19",
            "2006-01: 1",
        ),
    ),
    (
        "FREQ=YEARLY;BYDAY=20MO",
        "19970519T090000",
        days("1997-05: 19", "1998-05: 18", "1999-05: 17"),
    ),
    (
        "FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO",
        "19970512T090000",
        days("1997-05: 12", "1998-05: 11", "1999-05: 17"),
    ),
    (
        "FREQ=YEARLY;BYMONTH=3;BYDAY=TH",
        "19970313T090000",
        days("1997-03: 13 20 27", "1998-03: 5 12 19 26", "1999-03: 4 11 18 25"),
    ),
    (
        "FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8",
        "19970605T090000",
        days(
            "1997-06: 5 12 19 26",
            "1997-07: 3 10 17 24 31",
            "1997-08: 7 14 21 28",
            "1998-06: 4 11 18 25",
        ),
    ),
    (
        "FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13",
        DEFAULT_START,
        days("1998-02: 13", "1998-03: 13", "1998-11: 13", "1999-08: 13", "2000-10: 13"),
    ),
    (
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        "19970913T090000",
        days(
            "1997-09: 13",
            "1997-10: 11",
            "1997-11: 8",
            "1997-12: 13",
            "1998-01: 10",
            "1998-02: 7",
            "1998-03: 7",
            "1998-04: 11",
            "1998-05: 9",
            "1998-06: 13",
        ),
    ),
    (
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        "19961105T090000",
        days("1996-11: 5", "2000-11: 7", "2004-11: 2"),
    ),
    (
        "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3",
        "19970904T090000",
        days("1997-09: 4", "1997-10: 7", "1997-11: 6"),
    ),
    (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        "19970929T090000",
        days(
            "1997-09: 29",
            "1997-10: 30",
            "1997-11: 27",
            "1997-12: 30",
            "1998-01: 29",
            "1998-02: 26",
            "1998-03: 30",
        ),
    ),
    (
        "FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T210000Z",
        DEFAULT_START,
        ["1997-09-02 09:00", "1997-09-02 12:00", "1997-09-02 15:00"],
    ),
    (
        "FREQ=MINUTELY;INTERVAL=15;COUNT=6",
        DEFAULT_START,
        [f"1997-09-02 {clock}" for clock in ("09:00", "09:15", "09:30", "09:45", "10:00", "10:15")],
    ),
    (
        "FREQ=MINUTELY;INTERVAL=90;COUNT=4",
        DEFAULT_START,
        [f"1997-09-02 {clock}" for clock in ("09:00", "10:30", "12:00", "13:30")],
    ),
    (
        "FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40",
        DEFAULT_START,
        [f"1997-09-02 {hour:02}:{minute:02}" for hour in range(9, 17) for minute in (0, 20, 40)],
    ),
    (
        "FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16",
        DEFAULT_START,
        [f"1997-09-02 {hour:02}:{minute:02}" for hour in range(9, 17) for minute in (0, 20, 40)],
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
        "19970805T090000",
        days("1997-08: 5 10 19 24"),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
        "19970805T090000",
        days("1997-08: 5 17 19 31"),
    ),
    (
        "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5",
        "20070115T090000",
        days("2007-01: 15 30", "2007-02: 15", "2007-03: 15 30"),
    ),
]


@pytest.mark.parametrize(("text", "start", "expected"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_the_examples_of_the_rfc_come_out_as_printed(
    text: str, start: str, expected: list[str]
) -> None:
    assert occurrences(text, start)[: len(expected)] == expected
    if "COUNT" in text:
        assert len(occurrences(text, start)) == len(expected)


def test_dates_are_added_and_removed_after_counting() -> None:
    rule = rrule(
        "DTSTART:20260101T090000Z\nRRULE:FREQ=DAILY;COUNT=3\n"
        "RDATE:20260102T120000Z,20260201T090000Z\nEXDATE:20260102T090000Z",
        created_at=LONG_AGO,
        excluded="2026-01-03",
    )
    slots = timetable(rule).take(LONG_AGO, 9)
    assert [f"{s.at:%m-%dT%H}" for s in slots] == ["01-01T09", "01-02T12", "02-01T09"]


def test_a_missing_dtstart_is_the_second_of_creation_in_the_zone() -> None:
    created = datetime(2026, 7, 1, 22, 30, 15, 999_999, tzinfo=UTC)
    rule = rrule("FREQ=DAILY", created_at=created, timezone="Europe/Berlin")
    assert rule.expression == "DTSTART;TZID=Europe/Berlin:20260702T003015\nRRULE:FREQ=DAILY"
    assert rule.anchor == created.replace(microsecond=0)
    assert rrule("rrule:freq=daily", created_at=created, timezone="Europe/Berlin") == rule


def test_a_rule_takes_the_zone_of_its_dtstart_and_refuses_another() -> None:
    text = "DTSTART;TZID=Europe/Berlin:20261224T090000\nRRULE:FREQ=DAILY"
    assert rrule(text, created_at=LONG_AGO).timezone == "Europe/Berlin"
    with pytest.raises(Invalid, match="but the rule is in America/New_York"):
        rrule(text, created_at=LONG_AGO, timezone="America/New_York")
    with pytest.raises(Invalid, match="is in UTC"):
        rrule("DTSTART:20261224T090000Z\nFREQ=DAILY", created_at=LONG_AGO, timezone="Asia/Tokyo")


def test_until_as_a_date_includes_the_day() -> None:
    rule = rrule("DTSTART:20260101T090000Z\nRRULE:FREQ=DAILY;UNTIL=20260103", created_at=LONG_AGO)
    assert len(timetable(rule).take(LONG_AGO, 9)) == 3

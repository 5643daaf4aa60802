"""All examples of RFC 5545, section 3.8.5.3, in the order they stand there, as printed.

What ends is compared to its end; of what goes on, as much as the RFC prints or more. DTSTART is a
slot only where the rule matches it. The RFC ends "every 3 hours from 9 to 5" at 17:00 UTC, which
is 13:00 in New York: both that end and the one it means are here.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from rota.timing.rule_builders import rrule
from rota.timing.timetable import timetable

NEW_YORK = ZoneInfo("America/New_York")
BEFORE = datetime(1996, 1, 1, tzinfo=UTC)
START = "19970902T090000"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
EVERY_DAY = "SU,MO,TU,WE,TH,FR,SA"


def occurrences(text: str, start: str, n: int) -> list[str]:
    """Return the first slots of a rule on the wall of New York, with the name of its offset."""
    lines = text.replace("EXDATE", "EXDATE;TZID=America/New_York")
    rule = rrule(f"DTSTART;TZID=America/New_York:{start}\nRRULE:{lines}", created_at=BEFORE)
    found = (slot.at.astimezone(NEW_YORK) for slot in timetable(rule).take(BEFORE, n))
    return [f"{slot:%Y-%m-%d %H:%M %Z}" for slot in found]


def at_nine(printed: str) -> list[str]:
    """Write out parts such as `1997 EDT Sep 2,9-11`, each day at nine o'clock."""
    found = []
    for line in re.split("[;\n]", printed.strip()):
        year, offset, month, days = line.split()
        number = MONTHS.index(month) + 1
        for item in days.split(","):
            first, _, last = item.partition("-")
            span = range(int(first), int(last or first) + 1)
            found += [f"{year}-{number:02}-{day:02} 09:00 {offset}" for day in span]
    return found


def on(day: str, clocks: str) -> list[str]:
    return [f"1997-09-{day} {clock} EDT" for clock in clocks.split()]


DAILY_UNTIL = """
1997 EDT Sep 2-30
1997 EDT Oct 1-25
1997 EST Oct 26-31
1997 EST Nov 1-30
1997 EST Dec 1-23
"""
EVERY_OTHER_DAY = """
1997 EDT Sep 2,4,6,8,10,12,14,16,18,20,22,24,26,28,30
1997 EDT Oct 2,4,6,8,10,12,14,16,18,20,22,24
1997 EST Oct 26,28,30
1997 EST Nov 1,3,5,7,9,11,13,15,17,19,21,23,25,27,29
1997 EST Dec 1,3,5
"""
JANUARIES = """
1998 EST Jan 1-31
1999 EST Jan 1-31
2000 EST Jan 1-31
"""
WEEKLY = """
1997 EDT Sep 2,9,16,23,30
1997 EDT Oct 7,14,21
1997 EST Oct 28
1997 EST Nov 4
"""
WEEKLY_UNTIL = """
1997 EDT Sep 2,9,16,23,30
1997 EDT Oct 7,14,21
1997 EST Oct 28
1997 EST Nov 4,11,18,25
1997 EST Dec 2,9,16,23
"""
EVERY_OTHER_WEEK = """
1997 EDT Sep 2,16,30
1997 EDT Oct 14
1997 EST Oct 28
1997 EST Nov 11,25
1997 EST Dec 9,23
1998 EST Jan 6,20
1998 EST Feb 3,17
"""
FIVE_WEEKS = """
1997 EDT Sep 2,4,9,11,16,18,23,25,30
1997 EDT Oct 2
"""
MONDAY_WEDNESDAY_FRIDAY = """
1997 EDT Sep 1,3,5,15,17,19,29
1997 EDT Oct 1,3,13,15,17
1997 EST Oct 27,29,31
1997 EST Nov 10,12,14,24,26,28
1997 EST Dec 8,10,12,22
"""
FIRST_FRIDAYS = """
1997 EDT Sep 5
1997 EDT Oct 3
1997 EST Nov 7
1997 EST Dec 5
1998 EST Jan 2
1998 EST Feb 6
1998 EST Mar 6
1998 EST Apr 3
1998 EDT May 1
1998 EDT Jun 5
"""
FIRST_AND_LAST_SUNDAYS = """
1997 EDT Sep 7,28
1997 EST Nov 2,30
1998 EST Jan 4,25
1998 EST Mar 1,29
1998 EDT May 3,31
"""
SECOND_TO_LAST_MONDAYS = """
1997 EDT Sep 22
1997 EDT Oct 20
1997 EST Nov 17
1997 EST Dec 22
1998 EST Jan 19
1998 EST Feb 16
"""
THIRD_TO_LAST_DAYS = """
1997 EDT Sep 28
1997 EST Oct 29
1997 EST Nov 28
1997 EST Dec 29
1998 EST Jan 29
1998 EST Feb 26
"""
SECOND_AND_FIFTEENTH = """
1997 EDT Sep 2,15
1997 EDT Oct 2,15
1997 EST Nov 2,15
1997 EST Dec 2,15
1998 EST Jan 2,15
"""
FIRST_AND_LAST_DAYS = """
1997 EDT Sep 30
1997 EDT Oct 1
1997 EST Oct 31
1997 EST Nov 1,30
1997 EST Dec 1,31
1998 EST Jan 1,31
1998 EST Feb 1
"""
EVERY_18_MONTHS = """
1997 EDT Sep 10-15
1999 EST Mar 10-13
"""
TUESDAYS_OF_EVERY_OTHER_MONTH = """
1997 EDT Sep 2,9,16,23,30
1997 EST Nov 4,11,18,25
1998 EST Jan 6,13,20,27
1998 EST Mar 3,10,17,24,31
"""
JUNE_AND_JULY = """
1997 EDT Jun 10
1997 EDT Jul 10
1998 EDT Jun 10
1998 EDT Jul 10
1999 EDT Jun 10
1999 EDT Jul 10
2000 EDT Jun 10
2000 EDT Jul 10
2001 EDT Jun 10
2001 EDT Jul 10
"""
WINTERS_OF_EVERY_OTHER_YEAR = """
1997 EST Mar 10
1999 EST Jan 10
1999 EST Feb 10
1999 EST Mar 10
2001 EST Jan 10
2001 EST Feb 10
2001 EST Mar 10
2003 EST Jan 10
2003 EST Feb 10
2003 EST Mar 10
"""
DAYS_OF_EVERY_THIRD_YEAR = """
1997 EST Jan 1
1997 EDT Apr 10
1997 EDT Jul 19
2000 EST Jan 1
2000 EDT Apr 9
2000 EDT Jul 18
2003 EST Jan 1
2003 EDT Apr 10
2003 EDT Jul 19
2006 EST Jan 1
"""
TWENTIETH_MONDAYS = "1997 EDT May 19; 1998 EDT May 18; 1999 EDT May 17"
MONDAYS_OF_WEEK_20 = "1997 EDT May 12; 1998 EDT May 11; 1999 EDT May 17"
THURSDAYS_IN_MARCH = """
1997 EST Mar 13,20,27
1998 EST Mar 5,12,19,26
1999 EST Mar 4,11,18,25
"""
SUMMER_THURSDAYS = """
1997 EDT Jun 5,12,19,26
1997 EDT Jul 3,10,17,24,31
1997 EDT Aug 7,14,21,28
1998 EDT Jun 4,11,18,25
1998 EDT Jul 2,9,16,23,30
1998 EDT Aug 6,13,20,27
1999 EDT Jun 3,10,17,24
1999 EDT Jul 1,8,15,22,29
1999 EDT Aug 5,12,19,26
"""
FRIDAYS_THE_13TH = """
1998 EST Feb 13
1998 EST Mar 13
1998 EST Nov 13
1999 EDT Aug 13
2000 EDT Oct 13
"""
SATURDAYS_AFTER_THE_FIRST_SUNDAY = """
1997 EDT Sep 13
1997 EDT Oct 11
1997 EST Nov 8
1997 EST Dec 13
1998 EST Jan 10
1998 EST Feb 7
1998 EST Mar 7
1998 EDT Apr 11
1998 EDT May 9
1998 EDT Jun 13
"""
ELECTION_DAYS = "1996 EST Nov 5; 2000 EST Nov 7; 2004 EST Nov 2"
THIRD_OF_THREE_WEEKDAYS = "1997 EDT Sep 4; 1997 EDT Oct 7; 1997 EST Nov 6"
SECOND_TO_LAST_WEEKDAYS = """
1997 EDT Sep 29
1997 EST Oct 30
1997 EST Nov 27
1997 EST Dec 30
1998 EST Jan 29
1998 EST Feb 26
1998 EST Mar 30
"""
INVALID_DATES_ARE_LEFT_OUT = "2007 EST Jan 15,30; 2007 EST Feb 15; 2007 EDT Mar 15,30"
EVERY_20_MINUTES = (
    "09:00 09:20 09:40 10:00 10:20 10:40 11:00 11:20 11:40 12:00 12:20 12:40"
    " 13:00 13:20 13:40 14:00 14:20 14:40 15:00 15:20 15:40 16:00 16:20 16:40"
)
TWO_DAYS = [*on("02", EVERY_20_MINUTES), *on("03", EVERY_20_MINUTES)]

EXAMPLES = [
    ("FREQ=DAILY;COUNT=10", START, at_nine("1997 EDT Sep 2-11")),
    ("FREQ=DAILY;UNTIL=19971224T000000Z", START, at_nine(DAILY_UNTIL)),
    ("FREQ=DAILY;INTERVAL=2", START, at_nine(EVERY_OTHER_DAY)),
    (
        "FREQ=DAILY;INTERVAL=10;COUNT=5",
        START,
        at_nine("1997 EDT Sep 2,12,22; 1997 EDT Oct 2,12"),
    ),
    (
        f"FREQ=YEARLY;UNTIL=20000131T140000Z;BYMONTH=1;BYDAY={EVERY_DAY}",
        "19980101T090000",
        at_nine(JANUARIES),
    ),
    ("FREQ=DAILY;UNTIL=20000131T140000Z;BYMONTH=1", "19980101T090000", at_nine(JANUARIES)),
    ("FREQ=WEEKLY;COUNT=10", START, at_nine(WEEKLY)),
    ("FREQ=WEEKLY;UNTIL=19971224T000000Z", START, at_nine(WEEKLY_UNTIL)),
    ("FREQ=WEEKLY;INTERVAL=2;WKST=SU", START, at_nine(EVERY_OTHER_WEEK)),
    (
        "FREQ=WEEKLY;UNTIL=19971007T000000Z;WKST=SU;BYDAY=TU,TH",
        START,
        at_nine(FIVE_WEEKS),
    ),
    ("FREQ=WEEKLY;COUNT=10;WKST=SU;BYDAY=TU,TH", START, at_nine(FIVE_WEEKS)),
    (
        "FREQ=WEEKLY;INTERVAL=2;UNTIL=19971224T000000Z;WKST=SU;BYDAY=MO,WE,FR",
        "19970901T090000",
        at_nine(MONDAY_WEDNESDAY_FRIDAY),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=8;WKST=SU;BYDAY=TU,TH",
        START,
        at_nine("1997 EDT Sep 2,4,16,18,30; 1997 EDT Oct 2,14,16"),
    ),
    ("FREQ=MONTHLY;COUNT=10;BYDAY=1FR", "19970905T090000", at_nine(FIRST_FRIDAYS)),
    (
        "FREQ=MONTHLY;UNTIL=19971224T000000Z;BYDAY=1FR",
        "19970905T090000",
        at_nine(FIRST_FRIDAYS)[:4],
    ),
    (
        "FREQ=MONTHLY;INTERVAL=2;COUNT=10;BYDAY=1SU,-1SU",
        "19970907T090000",
        at_nine(FIRST_AND_LAST_SUNDAYS),
    ),
    ("FREQ=MONTHLY;COUNT=6;BYDAY=-2MO", "19970922T090000", at_nine(SECOND_TO_LAST_MONDAYS)),
    ("FREQ=MONTHLY;BYMONTHDAY=-3", "19970928T090000", at_nine(THIRD_TO_LAST_DAYS)),
    ("FREQ=MONTHLY;COUNT=10;BYMONTHDAY=2,15", START, at_nine(SECOND_AND_FIFTEENTH)),
    ("FREQ=MONTHLY;COUNT=10;BYMONTHDAY=1,-1", "19970930T090000", at_nine(FIRST_AND_LAST_DAYS)),
    (
        "FREQ=MONTHLY;INTERVAL=18;COUNT=10;BYMONTHDAY=10,11,12,13,14,15",
        "19970910T090000",
        at_nine(EVERY_18_MONTHS),
    ),
    ("FREQ=MONTHLY;INTERVAL=2;BYDAY=TU", START, at_nine(TUESDAYS_OF_EVERY_OTHER_MONTH)),
    ("FREQ=YEARLY;COUNT=10;BYMONTH=6,7", "19970610T090000", at_nine(JUNE_AND_JULY)),
    (
        "FREQ=YEARLY;INTERVAL=2;COUNT=10;BYMONTH=1,2,3",
        "19970310T090000",
        at_nine(WINTERS_OF_EVERY_OTHER_YEAR),
    ),
    (
        "FREQ=YEARLY;INTERVAL=3;COUNT=10;BYYEARDAY=1,100,200",
        "19970101T090000",
        at_nine(DAYS_OF_EVERY_THIRD_YEAR),
    ),
    ("FREQ=YEARLY;BYDAY=20MO", "19970519T090000", at_nine(TWENTIETH_MONDAYS)),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO", "19970512T090000", at_nine(MONDAYS_OF_WEEK_20)),
    ("FREQ=YEARLY;BYMONTH=3;BYDAY=TH", "19970313T090000", at_nine(THURSDAYS_IN_MARCH)),
    ("FREQ=YEARLY;BYDAY=TH;BYMONTH=6,7,8", "19970605T090000", at_nine(SUMMER_THURSDAYS)),
    (
        f"FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13\nEXDATE:{START}",
        START,
        at_nine(FRIDAYS_THE_13TH),
    ),
    (
        "FREQ=MONTHLY;BYDAY=SA;BYMONTHDAY=7,8,9,10,11,12,13",
        "19970913T090000",
        at_nine(SATURDAYS_AFTER_THE_FIRST_SUNDAY),
    ),
    (
        "FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8",
        "19961105T090000",
        at_nine(ELECTION_DAYS),
    ),
    (
        "FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3",
        "19970904T090000",
        at_nine(THIRD_OF_THREE_WEEKDAYS),
    ),
    (
        "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2",
        "19970929T090000",
        at_nine(SECOND_TO_LAST_WEEKDAYS),
    ),
    ("FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T170000Z", START, on("02", "09:00 12:00")),
    ("FREQ=HOURLY;INTERVAL=3;UNTIL=19970902T210000Z", START, on("02", "09:00 12:00 15:00")),
    (
        "FREQ=MINUTELY;INTERVAL=15;COUNT=6",
        START,
        on("02", "09:00 09:15 09:30 09:45 10:00 10:15"),
    ),
    ("FREQ=MINUTELY;INTERVAL=90;COUNT=4", START, on("02", "09:00 10:30 12:00 13:30")),
    ("FREQ=DAILY;BYHOUR=9,10,11,12,13,14,15,16;BYMINUTE=0,20,40", START, TWO_DAYS),
    ("FREQ=MINUTELY;INTERVAL=20;BYHOUR=9,10,11,12,13,14,15,16", START, TWO_DAYS),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO",
        "19970805T090000",
        at_nine("1997 EDT Aug 5,10,19,24"),
    ),
    (
        "FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU",
        "19970805T090000",
        at_nine("1997 EDT Aug 5,17,19,31"),
    ),
    (
        "FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=5",
        "20070115T090000",
        at_nine(INVALID_DATES_ARE_LEFT_OUT),
    ),
]


@pytest.mark.parametrize(("text", "start", "printed"), EXAMPLES, ids=[e[0] for e in EXAMPLES])
def test_an_example_comes_out_as_printed(text: str, start: str, printed: list[str]) -> None:
    ends = "COUNT" in text or "UNTIL" in text
    assert occurrences(text, start, len(printed) + ends) == printed

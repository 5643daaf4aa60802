"""Recurrences in UTC against python-dateutil.

Kept out of the comparison, because dateutil departs from RFC 5545 there: plain and numbered days
in one BYDAY (it wants both), BYSETPOS with WEEKLY (it cuts the first week at DTSTART), BYWEEKNO
without days (it takes all seven), and weeks 52 and 53, where it miscounts some years.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice

from dateutil.rrule import rrulestr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.errors import Invalid
from rota.timing.rule_builders import rrule
from rota.timing.timetable import timetable

DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
starts = st.datetimes(
    min_value=datetime(1995, 1, 1),
    max_value=datetime(2030, 1, 1),
).map(lambda moment: moment.replace(microsecond=0, tzinfo=UTC))


def listed(low: int, high: int, size: int = 3) -> st.SearchStrategy[str]:
    return st.lists(st.integers(low, high), min_size=1, max_size=size, unique=True).map(
        lambda ns: ",".join(map(str, ns))
    )


def signed(high: int) -> st.SearchStrategy[str]:
    number = st.integers(1, high) | st.integers(-high, -1)
    return st.lists(number, min_size=1, max_size=3, unique=True).map(
        lambda ns: ",".join(map(str, ns))
    )


some_days = st.lists(st.sampled_from(DAYS), min_size=1, max_size=3, unique=True).map(",".join)
numbered_days = st.lists(
    st.builds("{}{}".format, st.sampled_from([1, 2, 3, 5, -1, -2]), st.sampled_from(DAYS)),
    min_size=1,
    max_size=3,
    unique=True,
).map(",".join)


@st.composite
def parts(draw: st.DrawFn, freq: str) -> list[str]:
    within_the_day = freq in {"HOURLY", "MINUTELY", "SECONDLY"}
    chosen: dict[str, st.SearchStrategy[str]] = {}
    if not within_the_day:
        chosen["BYMONTH"] = listed(1, 12)
    if freq != "WEEKLY" and not within_the_day:
        chosen["BYMONTHDAY"] = signed(31)
    if freq in {"YEARLY", "MONTHLY"}:
        chosen["BYDAY"] = some_days | numbered_days
    else:
        chosen["BYDAY"] = some_days
    if freq == "YEARLY" and draw(st.booleans()):
        weeks = listed(1, 51)
        return [f"BYWEEKNO={draw(weeks)}", f"BYDAY={draw(some_days)}"]
    if freq == "YEARLY":
        chosen["BYYEARDAY"] = signed(366)
    chosen |= {"BYHOUR": listed(0, 23), "BYMINUTE": listed(0, 59), "BYSECOND": listed(0, 59)}
    names = draw(st.lists(st.sampled_from(sorted(chosen)), max_size=3, unique=True))
    found = [f"{name}={draw(chosen[name])}" for name in names]
    if found and freq != "WEEKLY" and draw(st.integers(0, 3)) == 0:
        found.append(f"BYSETPOS={draw(signed(4))}")
    return found


def agree(freq: str, rest: list[str], start: datetime) -> None:
    text = f"DTSTART:{start:%Y%m%dT%H%M%SZ}\nRRULE:{';'.join([f'FREQ={freq}', *rest])}"
    try:
        slots = timetable(rrule(text, created_at=start)).take(start - timedelta(seconds=1), 12)
    except Invalid:
        slots = []
    # dateutil looks for what never comes up to the year 9999, so it is asked only for what does.
    assume(slots and slots[-1].at < start + timedelta(days=365 * 40))
    assume(len(slots) == 12 or "COUNT" in text)
    try:
        theirs = list(islice(rrulestr(text), 12))
    except (ValueError, IndexError):
        assume(condition=False)
        raise
    assert [slot.at for slot in slots] == theirs


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY"]), starts)
def test_rules_of_days_agree(data: st.DataObject, freq: str, start: datetime) -> None:
    rest = data.draw(parts(freq))
    rest.append(f"INTERVAL={data.draw(st.integers(1, 5))}")
    rest.append(f"WKST={data.draw(st.sampled_from(DAYS))}")
    agree(freq, rest, start)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["HOURLY", "MINUTELY", "SECONDLY"]), starts)
def test_rules_within_the_day_agree(data: st.DataObject, freq: str, start: datetime) -> None:
    rest = data.draw(parts(freq))
    rest.append(f"INTERVAL={data.draw(st.integers(1, 30))}")
    agree(freq, rest, start)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(["MONTHLY", "WEEKLY", "DAILY", "HOURLY"]), starts, st.integers(1, 10))
def test_counts_agree(freq: str, start: datetime, count: int) -> None:
    agree(freq, [f"COUNT={count}", "BYDAY=MO,WE,FR"], start)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 53), st.integers(1971, 2190))
def test_week_numbers_are_those_of_the_iso_calendar(week: int, year: int) -> None:
    start = datetime(year, 1, 1, tzinfo=UTC)
    text = f"FREQ=YEARLY;BYWEEKNO={week};BYDAY=MO,TU,WE,TH,FR,SA,SU"
    end = datetime(year + 8, 1, 1, tzinfo=UTC)
    found = timetable(rrule(text, created_at=start)).between(start - timedelta(days=1), end)
    days = [date(year, 1, 1) + timedelta(days=n) for n in range((end - start).days)]
    expected = [day for day in days if day.isocalendar().week == week]
    assert [slot.at.date() for slot in found if slot.at < end] == expected

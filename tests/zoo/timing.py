"""Bugs of time, caught by the oracle that looks at every minute around a change of the clocks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rota.errors import Invalid
from rota.timing import patterns, rule_builders, zones
from rota.timing import timetable as timetables
from rota.timing.timetable import timetable
from rota.timing.zones import ZoneClockCursor
from tests.oracle.chosen import chosen_change
from tests.oracle.compare import compare_change
from tests.zoo.bugs import bug, replaced, several, time_forgotten

SPRING = ("Europe/Berlin", "2026-03-29T01:00Z")
AUTUMN = ("Europe/Berlin", "2026-10-25T01:00Z")
ORACLE = "time oracle"


def oracle(name: str, at: str) -> str | None:
    """Return the first mismatch around a change, in short."""
    try:
        found = compare_change((chosen_change(name, at), [name])).mismatches
    except Invalid as refused:
        return str(refused)
    return f"{name} {at[:10]}, {found[0].rule}" if found else None


def in_spring() -> str | None:
    """Look at the hour that is left out."""
    return oracle(*SPRING)


def in_autumn() -> str | None:
    """Look at the hour that comes twice."""
    return oracle(*AUTUMN)


def walking(**facts: bool):
    """Return a plant that lets every walk along a wall believe something."""

    class Misled(ZoneClockCursor):
        __slots__ = ()

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            for name, value in facts.items():
                setattr(self, name, value)

    return several(replaced(timetables, "ZoneClockCursor", Misled), time_forgotten())


@bug(
    "dst-fires-twice",
    "IST-W23, sentry#66868, temporal#8205",
    "A daily rule fires in both passes of the hour that comes twice",
    check=in_autumn,
    caught_by=ORACLE,
)
def dst_fires_twice() -> Iterator[None]:
    with walking(_second=True):
        yield


@bug(
    "dst-loses-a-day",
    "celery#6438, GEN-W09",
    "A daily rule whose time is left out in spring does not fire that day",
    check=in_spring,
    caught_by=ORACLE,
)
def dst_loses_a_day() -> Iterator[None]:
    with walking(_shift=False):
        yield


@bug(
    "dst-skips-the-repeated-hour",
    "celery#10107",
    "A rule that fires all day long does not fire in the hour that comes again",
    check=in_autumn,
    caught_by=ORACLE,
)
def dst_skips_the_repeated_hour() -> Iterator[None]:
    with walking(_second=False):
        yield


@bug(
    "only-one-time-a-day",
    "ZUB-W01",
    "Of several times of a day only the first fires: the search goes on at the next day",
    check=in_spring,
    caught_by=ORACLE,
)
def only_one_time_a_day() -> Iterator[None]:
    def next_day(self, after):
        day = self._days.next(after // 86_400 + 1)
        return None if day is None else day * 86_400 + self._times.next(-1)

    with several(replaced(patterns.DayPattern, "next", next_day), time_forgotten()):
        yield


@bug(
    "zone-of-the-host",
    "GEN-W08, G2-W05",
    "The next slot is computed in the zone of the host instead of the schedule's",
    check=in_spring,
    caught_by=ORACLE,
)
def zone_of_the_host() -> Iterator[None]:
    wall = zones.zone_clock

    def of_the_host(where):
        from zoneinfo import ZoneInfo

        return wall(ZoneInfo("UTC"))

    with several(replaced(timetables, "zone_clock", of_the_host), time_forgotten()):
        yield


@bug(
    "interval-drifts",
    "G2-W06, kubernetes#104012, GEN-W08",
    "An interval counts from when the last slot was seen instead of from its anchor",
    check=in_spring,
    caught_by=ORACLE,
)
def interval_drifts() -> Iterator[None]:
    def from_here(self, after):
        return after + self._interval, "1"

    with several(replaced(timetables.IntervalSequence, "next", from_here), time_forgotten()):
        yield


def leap_days() -> str | None:
    """Look for the leap day that is eight years away."""
    wanted = datetime(2104, 2, 29, tzinfo=UTC)
    try:
        found = timetable(rule_builders.cron("0 0 29 2 *")).next(datetime(2096, 3, 1, tzinfo=UTC))
    except Invalid as refused:
        return f"0 0 29 2 *: {refused}"
    return None if found is not None and found.at == wanted else f"0 0 29 2 *: {found}"


@bug(
    "a-year-ahead-at-most",
    "GEN-W09",
    "The search for the next slot ends after 366 days, and a leap day is never found",
    check=leap_days,
    caught_by="properties of time",
)
def a_year_ahead_at_most() -> Iterator[None]:
    whole = patterns.DaySet.next

    def within_a_year(self, number):
        found = whole(self, number)
        return None if found is None or found > number + 366 else found

    with several(replaced(patterns.DaySet, "next", within_a_year), time_forgotten()):
        yield

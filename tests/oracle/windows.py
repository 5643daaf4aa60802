"""The clock on a zone's wall, looked at once a minute for the 49 hours around a change.

Everything is counted in minutes since 1970-01-01T00:00: instants in UTC, nominal times on the wall.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = 60
DAY = 24 * HOUR
REACH = 24 * HOUR + HOUR // 2
"""A window is 49 hours with the change in the middle."""

MARGIN = 12 * HOUR
"""What a table holds beyond its window: there slots come out that quiet hours hold back."""

NOT_ZONES = frozenset({"localtime", "Factory", "posixrules"})


class Change(NamedTuple):
    """A change of offset: its instant, and how far the wall was and is ahead of UTC."""

    at: int
    before: int
    after: int

    @property
    def year(self) -> int:
        return moment(self.at).year

    @property
    def kind(self) -> tuple[int, int]:
        """How far the wall jumped, and from what time of day."""
        return self.after - self.before, (self.at + self.before) % DAY

    def __str__(self) -> str:
        return f"{moment(self.at):%Y-%m-%dT%H:%MZ} ({self.after - self.before:+} min)"


class Minute(NamedTuple):
    """A minute of the world, what the wall shows, and which pass through that it is."""

    at: int
    wall: int
    again: bool
    twice: bool


class Gap(NamedTuple):
    """Minutes the wall never shows, and the instant it goes on."""

    walls: range
    resumed: int


def moment(minutes: int) -> datetime:
    """Return a count of minutes as a datetime; for a nominal time its UTC means nothing."""
    return EPOCH + minutes * MINUTE


def count(instant: datetime) -> int:
    return (instant - EPOCH) // MINUTE


def zone_names() -> list[str]:
    return sorted(available_timezones() - NOT_ZONES)


def ahead(zone: ZoneInfo, at: int) -> int:
    """Return how many minutes a zone's wall is ahead of UTC at an instant."""
    return _minutes(moment(at).astimezone(zone))


def _minutes(local: datetime) -> int:
    offset = local.utcoffset() or timedelta()
    minutes, rest = divmod(offset.seconds, 60)
    if rest:
        raise ValueError(f"{local} is off UTC by a part of a minute")
    return offset.days * DAY + minutes


def changes(name: str, first: datetime, last: datetime) -> list[Change]:
    """Return a zone's changes of offset; one that is undone within a day is not seen."""
    zone = ZoneInfo(name)
    days = ((day, ahead(zone, day)) for day in range(count(first), count(last) + 1, DAY))
    found = []
    for (low, before), (high, after) in pairwise(days):
        if before != after:
            at = next(m for m in range(low, high + 1) if ahead(zone, m) != before)
            found.append(Change(at, before, ahead(zone, at)))
    return found


def look(zone: ZoneInfo, change: Change) -> tuple[int, ...]:
    """Return what the wall shows at every minute around a change."""
    first, last = change.at - REACH, change.at + REACH + MARGIN
    walls, instant = [], moment(first)
    for at in range(first, last + 1):
        walls.append(at + _minutes(instant.astimezone(zone)))
        instant += MINUTE
    return tuple(walls)


class Window:
    """The 49 hours around a change; zones that show the same at every minute share one."""

    def __init__(self, change: Change, walls: tuple[int, ...]) -> None:
        self.change = change
        self.start, self.end = change.at - REACH, change.at + REACH
        times: dict[int, list[int]] = {}
        for at, wall in enumerate(walls, self.start):
            times.setdefault(wall, []).append(at)
        self.table = [
            Minute(at, wall, at != times[wall][0], len(times[wall]) > 1)
            for at, wall in enumerate(walls, self.start)
        ]
        self.shown: dict[int, list[Minute]] = {wall: [] for wall in times}
        for minute in self.table:
            self.shown[minute.wall].append(minute)

    @cached_property
    def gaps(self) -> list[Gap]:
        """What the wall leaves out when it jumps ahead."""
        return [
            Gap(range(before.wall + 1, after.wall), after.at)
            for before, after in pairwise(self.table)
            if after.wall > before.wall + 1
        ]

    @cached_property
    def days(self) -> range:
        """The days of the wall, those it leaves out too."""
        return range(self.table[0].wall // DAY, self.table[-1].wall // DAY + 1)

    def minute(self, at: int) -> Minute:
        return self.table[at - self.start]

"""From a rule to instants: one course for each kind, compiled once and shared."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rota.model.schedules import Fold, Gap, Rule, RuleKind
from rota.timing.cron import compile_cron, parse_cron
from rota.timing.durations import parse_duration
from rota.timing.expansion import compile_recurrence
from rota.timing.instants import (
    DAY,
    EARLIEST,
    EPOCH,
    LATEST,
    TICK,
    as_utc,
    instant,
    seconds,
)
from rota.timing.options import exclusions_of, quiet_of
from rota.timing.patterns import (
    EVERY_WEEKDAY,
    MOST_SKIPS,
    DayPattern,
    Days,
    Exclusions,
    ListedTimes,
    Without,
)
from rota.timing.recurrence import parse_recurrence
from rota.timing.texts import parse_clock, parse_moment, parse_weekdays
from rota.timing.walls import Pattern, Placed, Walk, Wall, wall_of
from rota.timing.zones import zone

if TYPE_CHECKING:
    from collections.abc import Callable
    from zoneinfo import ZoneInfo

REMEMBERED = 64
"""How many answers a plan keeps: enough that equal schedules catching up share their steps."""

Found: TypeAlias = tuple[datetime, str]
"""The instant of a slot and its key, less the generation."""


_KEY = re.compile(r"(?P<nominal>[0-9T:-]+)\[(?P<zone>.+)\]#(?P<fold>[01])")


class Course(Protocol):
    """The instants of a rule, ascending."""

    def next(self, after: datetime) -> Found | None:
        """Return what comes first strictly after an instant, or None when nothing is left."""

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return where to go on after the slot of a key, which once lay at `cursor`."""


class Plan:
    """A compiled rule within its bounds; remembers its latest answers."""

    __slots__ = ("_course", "_first", "_last", "next", "quiet", "resume", "rule")

    def __init__(self, rule: Rule) -> None:
        where = zone(rule.timezone)
        self.rule = rule
        self.quiet = quiet_of(rule.quiet, where)
        self._course = _COURSES[rule.kind](rule, where)
        self.resume = self._course.resume
        self._first = (rule.starts_at or EARLIEST) - TICK
        self._last = rule.ends_at or LATEST
        self.next: Callable[[datetime], Found | None] = lru_cache(REMEMBERED)(self._next)

    def _next(self, after: datetime) -> Found | None:
        if after.tzinfo is None:
            as_utc(after, "after")
        after = max(after, self._first)
        if after >= self._last:
            return None
        found = self._course.next(after)
        return None if found is None or found[0] > self._last else found


class WallCourse:
    """Nominal times of one zone: cron, calendar and rrule."""

    __slots__ = ("_elapsed", "_name", "_next", "_wall")

    def __init__(self, rule: Rule, where: ZoneInfo, pattern: Pattern, *, elapsed: bool) -> None:
        self._elapsed = elapsed
        self._wall = wall_of(where)
        exclusions = exclusions_of(rule.excluded)
        if exclusions is not None:
            pattern = Without(pattern, exclusions)
        self._name = where.key
        self._next = (
            _unshifted(pattern)
            if where.key == "UTC"
            else Walk(self._wall, pattern, elapsed=elapsed, gap=rule.gap, fold=rule.fold).next
        )

    def next(self, after: datetime) -> Found | None:
        """Return what comes first strictly after an instant, or None when nothing is left."""
        found = self._next(seconds(after))
        if found is None:
            return None
        at, nominal, fold = found
        text = (EPOCH + timedelta(0, nominal)).isoformat()
        shown = text[:19] if nominal % 60 else text[:16]
        return EPOCH + timedelta(0, at), f"{shown}[{self._name}]#{fold}"

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return where to go on after the slot of a key, which once lay at `cursor`."""
        named = _KEY.fullmatch(key or "")
        if named is None or named["zone"] != self._name:
            return cursor
        nominal = seconds(datetime.fromisoformat(f"{named['nominal']}+00:00"))
        fold = Fold.SECOND if named["fold"] == "1" else Fold.FIRST
        placed = instant(self._wall.place(nominal, Gap.SHIFT, fold) or 0)
        # What follows elapsed time has run up to the cursor, under whatever names.
        return max(cursor, placed) if self._elapsed else placed


class IntervalCourse:
    """Multiples of one length from an anchor, by division: no drift, and no cost for age."""

    __slots__ = ("_anchor", "_exclusions", "_interval", "_most", "_wall")

    def __init__(self, rule: Rule, where: ZoneInfo) -> None:
        self._anchor = rule.anchor or EPOCH
        self._interval = parse_duration(rule.expression)
        self._most = (LATEST - self._anchor) // self._interval
        self._exclusions = exclusions_of(rule.excluded)
        self._wall = wall_of(where)

    def next(self, after: datetime) -> Found | None:
        """Return what comes first strictly after an instant, or None when nothing is left."""
        index = max((after - self._anchor) // self._interval + 1, 1)
        for _ in range(MOST_SKIPS):
            if index > self._most:
                return None
            at = self._anchor + index * self._interval
            resumed = None if self._exclusions is None else self._resumed(at, self._exclusions)
            if resumed is None:
                return at, str(index)
            index = max(index + 1, -((self._anchor - resumed) // self._interval))
        return None

    def resume(self, cursor: datetime, key: str | None) -> datetime:  # noqa: ARG002
        """Return where to go on: no zone moves the instants of an interval."""
        return cursor

    def _resumed(self, at: datetime, exclusions: Exclusions) -> datetime | None:
        """Return the end of the excluded days an instant lies in, or None if it is in none."""
        if exclusions.everything:
            return LATEST
        day = self._wall.local(seconds(at))[0] // DAY
        resumed = exclusions.resume(day)
        return None if resumed == day else _midnight(self._wall, resumed)


class OnceCourse:
    """A single instant."""

    __slots__ = ("_at",)

    def __init__(self, rule: Rule, where: ZoneInfo) -> None:
        self._at = once_instant(rule, where)
        exclusions = exclusions_of(rule.excluded)
        if self._at is not None and exclusions is not None:
            day = wall_of(where).local(seconds(self._at))[0] // DAY
            if exclusions.everything or exclusions.resume(day) != day:
                self._at = None

    def next(self, after: datetime) -> Found | None:
        """Return what comes first strictly after an instant, or None when nothing is left."""
        return (self._at, "0") if self._at is not None and self._at > after else None

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return where to go on, which is before the instant as long as it has no slot."""
        return cursor if self._at is None or key is not None else min(cursor, self._at - TICK)


@lru_cache(maxsize=4096)
def plan_of(rule: Rule) -> Plan:
    """Return the compiled form of a canonical rule; equal rules share one."""
    return Plan(rule)


def once_instant(rule: Rule, where: ZoneInfo) -> datetime | None:
    """Return the instant of a once rule, or None if its wall time does not exist and gaps skip."""
    moment, absolute = parse_moment(rule.expression, "at")
    if absolute:
        return moment
    at = wall_of(where).place(seconds(moment), rule.gap, rule.fold)
    return None if at is None else instant(at) + timedelta(microseconds=moment.microsecond)


def _unshifted(pattern: Pattern) -> Callable[[int], Placed | None]:
    def following(at: int) -> Placed | None:
        nominal = pattern.next(at)
        return None if nominal is None else Placed(nominal, nominal, 0)

    return following


def _midnight(wall: Wall, day: int) -> datetime:
    return instant(wall.place(day * DAY, Gap.SHIFT, Fold.FIRST) or 0)


def _cron(rule: Rule, where: ZoneInfo) -> WallCourse:
    line = parse_cron(rule.expression)
    return WallCourse(rule, where, compile_cron(line), elapsed=line.elapsed)


def _calendar(rule: Rule, where: ZoneInfo) -> WallCourse:
    times, _, weekdays = rule.expression.partition(" ")
    listed = tuple(parse_clock(text, "times") for text in times.split(","))
    mask = parse_weekdays(weekdays, "weekdays") if weekdays else EVERY_WEEKDAY
    return WallCourse(
        rule, where, DayPattern(Days(weekdays=mask), ListedTimes(listed)), elapsed=False
    )


def _rrule(rule: Rule, where: ZoneInfo) -> WallCourse:
    recurrence = parse_recurrence(rule.expression, where)
    return WallCourse(rule, where, compile_recurrence(recurrence), elapsed=recurrence.elapsed)


_COURSES: MappingProxyType[RuleKind, Callable[[Rule, ZoneInfo], Course]] = MappingProxyType(
    {
        RuleKind.ONCE: OnceCourse,
        RuleKind.CRON: _cron,
        RuleKind.INTERVAL: IntervalCourse,
        RuleKind.CALENDAR: _calendar,
        RuleKind.RRULE: _rrule,
    }
)

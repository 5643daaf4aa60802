"""From a rule to its slots; compiled rules are cached and shared.

A timetable answers "what comes after this instant?" in bounded time for every rule that
`rota.timing.rule_builders` accepts. Its slots have these keys:

- cron, calendar, rrule: nominal local time, zone and pass, `2026-10-25T02:30[Europe/Berlin]#0`.
Seconds are written only if there are any. The pass is 1 in the second run of a repeated hour and 0
otherwise, also for a slot that a gap has moved. So a change of a zone's rules moves a slot without
renaming it, except with `fold` second, where the pass is part of the name. `resume` returns where
to continue after such a change. - interval: `g<generation>:<n>`, where slot n is at anchor + n *
interval; the first is 1. - once: `g<generation>:0`.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rota.model.schedules import Fold, Gap, QuietMode, Rule, RuleKind, Slot
from rota.timing.cron import compile_cron, parse_cron
from rota.timing.durations import parse_duration
from rota.timing.notation import parse_clock, parse_moment, parse_weekdays
from rota.timing.options import compile_exclusions, compile_quiet_windows
from rota.timing.patterns import (
    EVERY_WEEKDAY,
    MAX_SKIPS,
    DayPattern,
    DaySet,
    ExcludingPattern,
    Exclusions,
    ListedTimes,
)
from rota.timing.rrule import parse_recurrence
from rota.timing.rrule_expansion import compile_recurrence
from rota.timing.zones import (
    DAY,
    EARLIEST,
    EPOCH,
    LATEST,
    TICK,
    Pattern,
    ZoneClock,
    ZoneClockCursor,
    ZonedTime,
    as_utc,
    instant,
    seconds,
    zone,
    zone_clock,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from zoneinfo import ZoneInfo

    from rota.timing.options import QuietWindows

CACHED_SLOTS = 64
"""Slots that a source caches, so that equal schedules catching up share the work."""

Found: TypeAlias = tuple[datetime, str]
"""The instant of a slot and its key without the generation."""


_KEY = re.compile(r"(?P<nominal>[0-9T:-]+)\[(?P<zone>.+)\]#(?P<fold>[01])")


class SlotSequence(Protocol):
    """The instants of a rule, ascending."""

    def next(self, after: datetime) -> Found | None:
        """Return the first slot strictly after an instant, or None if there is none."""

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return where to continue after the slot of a key that was at `cursor` when planned."""


class SlotSource:
    """A compiled rule within its bounds, with a cache of recent slots."""

    __slots__ = ("_first", "_last", "_sequence", "next", "quiet", "resume", "rule")

    def __init__(self, rule: Rule) -> None:
        where = zone(rule.timezone)
        self.rule = rule
        self.quiet = compile_quiet_windows(rule.quiet, where)
        self._sequence = _SEQUENCES[rule.kind](rule, where)
        self.resume = self._sequence.resume
        self._first = (rule.starts_at or EARLIEST) - TICK
        self._last = rule.ends_at or LATEST
        self.next: Callable[[datetime], Found | None] = lru_cache(CACHED_SLOTS)(self._next)

    def _next(self, after: datetime) -> Found | None:
        if after.tzinfo is None:
            as_utc(after, "after")
        after = max(after, self._first)
        if after >= self._last:
            return None
        found = self._sequence.next(after)
        return None if found is None or found[0] > self._last else found


class WallClockSequence:
    """Nominal times of one zone: cron, calendar and rrule."""

    __slots__ = ("_clock", "_elapsed", "_name", "_next")

    def __init__(self, rule: Rule, where: ZoneInfo, pattern: Pattern, *, elapsed: bool) -> None:
        self._elapsed = elapsed
        self._clock = zone_clock(where)
        exclusions = compile_exclusions(rule.excluded)
        if exclusions is not None:
            pattern = ExcludingPattern(pattern, exclusions)
        self._name = where.key
        self._next = (
            _unshifted(pattern)
            if where.key == "UTC"
            else ZoneClockCursor(
                self._clock, pattern, elapsed=elapsed, gap=rule.gap, fold=rule.fold
            ).next
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
        placed = instant(self._clock.place(nominal, Gap.SHIFT, fold) or 0)
        # Patterns by elapsed time have run up to the cursor, whatever their slots were called.
        return max(cursor, placed) if self._elapsed else placed


class IntervalSequence:
    """Multiples of an interval from an anchor, by division: no drift, no cost for age."""

    __slots__ = ("_anchor", "_clock", "_exclusions", "_interval", "_last_index")

    def __init__(self, rule: Rule, where: ZoneInfo) -> None:
        self._anchor = rule.anchor or EPOCH
        self._interval = parse_duration(rule.expression)
        self._last_index = (LATEST - self._anchor) // self._interval
        self._exclusions = compile_exclusions(rule.excluded)
        self._clock = zone_clock(where)

    def next(self, after: datetime) -> Found | None:
        """Return what comes first strictly after an instant, or None when nothing is left."""
        index = max((after - self._anchor) // self._interval + 1, 1)
        for _ in range(MAX_SKIPS):
            if index > self._last_index:
                return None
            at = self._anchor + index * self._interval
            resumed = None if self._exclusions is None else self._resumed(at, self._exclusions)
            if resumed is None:
                return at, str(index)
            index = max(index + 1, -((self._anchor - resumed) // self._interval))
        return None

    def resume(self, cursor: datetime, key: str | None) -> datetime:  # noqa: ARG002
        """Return the cursor: zones do not affect intervals."""
        return cursor

    def _resumed(self, at: datetime, exclusions: Exclusions) -> datetime | None:
        """Return the end of the excluded days around an instant, or None if it is not excluded."""
        if exclusions.everything:
            return LATEST
        day = self._clock.local(seconds(at))[0] // DAY
        resumed = exclusions.resume(day)
        return None if resumed == day else _midnight(self._clock, resumed)


class OnceSequence:
    """A single instant."""

    __slots__ = ("_at",)

    def __init__(self, rule: Rule, where: ZoneInfo) -> None:
        self._at = once_instant(rule, where)
        exclusions = compile_exclusions(rule.excluded)
        if self._at is not None and exclusions is not None:
            day = zone_clock(where).local(seconds(self._at))[0] // DAY
            if exclusions.everything or exclusions.resume(day) != day:
                self._at = None

    def next(self, after: datetime) -> Found | None:
        """Return what comes first strictly after an instant, or None when nothing is left."""
        return (self._at, "0") if self._at is not None and self._at > after else None

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return where to continue: before the instant as long as it has no slot."""
        return cursor if self._at is None or key is not None else min(cursor, self._at - TICK)


@lru_cache(maxsize=4096)
def slot_source(rule: Rule) -> SlotSource:
    """Return the compiled form of a canonical rule; equal rules share one."""
    return SlotSource(rule)


def once_instant(rule: Rule, where: ZoneInfo) -> datetime | None:
    """Return the instant of a once rule, or None if its local time is in a gap that is skipped."""
    moment, absolute = parse_moment(rule.expression, "at")
    if absolute:
        return moment
    at = zone_clock(where).place(seconds(moment), rule.gap, rule.fold)
    return None if at is None else instant(at) + timedelta(microseconds=moment.microsecond)


def _unshifted(pattern: Pattern) -> Callable[[int], ZonedTime | None]:
    def following(at: int) -> ZonedTime | None:
        nominal = pattern.next(at)
        return None if nominal is None else ZonedTime(nominal, nominal, 0)

    return following


def _midnight(wall: ZoneClock, day: int) -> datetime:
    return instant(wall.place(day * DAY, Gap.SHIFT, Fold.FIRST) or 0)


def _cron(rule: Rule, where: ZoneInfo) -> WallClockSequence:
    line = parse_cron(rule.expression)
    return WallClockSequence(rule, where, compile_cron(line), elapsed=line.elapsed)


def _calendar(rule: Rule, where: ZoneInfo) -> WallClockSequence:
    times, _, weekdays = rule.expression.partition(" ")
    listed = tuple(parse_clock(text, "times") for text in times.split(","))
    mask = parse_weekdays(weekdays, "weekdays") if weekdays else EVERY_WEEKDAY
    return WallClockSequence(
        rule, where, DayPattern(DaySet(weekdays=mask), ListedTimes(listed)), elapsed=False
    )


def _rrule(rule: Rule, where: ZoneInfo) -> WallClockSequence:
    recurrence = parse_recurrence(rule.expression, where)
    return WallClockSequence(
        rule, where, compile_recurrence(recurrence), elapsed=recurrence.elapsed
    )


_SEQUENCES: MappingProxyType[RuleKind, Callable[[Rule, ZoneInfo], SlotSequence]] = MappingProxyType(
    {
        RuleKind.ONCE: OnceSequence,
        RuleKind.CRON: _cron,
        RuleKind.INTERVAL: IntervalSequence,
        RuleKind.CALENDAR: _calendar,
        RuleKind.RRULE: _rrule,
    }
)

_MILLISECOND = timedelta(milliseconds=1)
_INDEXED = frozenset({RuleKind.INTERVAL, RuleKind.ONCE})


@lru_cache(maxsize=8192)
def timetable(rule: Rule, *, generation: int = 1, stagger: str = "") -> Timetable:
    """Return the timetable of a schedule.

    `stagger` identifies the schedule, so that its jitter is always the same. Schedules with equal
    rules share the compiled rule.
    """
    return Timetable(slot_source(rule), generation, _offset(rule.jitter, stagger))


class Timetable:
    """The slots of one schedule, ascending; every instant in and out is UTC."""

    __slots__ = ("_plan", "_prefix", "_stagger")

    def __init__(self, plan: SlotSource, generation: int, stagger: timedelta) -> None:
        self._plan = plan
        self._prefix = f"g{generation}:" if plan.rule.kind in _INDEXED else ""
        self._stagger = stagger

    @property
    def rule(self) -> Rule:
        """The rule of the slots."""
        return self._plan.rule

    def next(self, after: datetime) -> Slot | None:
        """Return the first slot strictly after an instant, or None if there is none."""
        if self._plan.quiet is not None:
            return self._next_around(self._plan.quiet, after)
        found = self._plan.next(after)
        if found is None:
            return None
        at, key = found
        return Slot(key=self._prefix + key, at=at, due=at + self._stagger)

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return the instant to continue from, for a schedule whose newest slot has the key `key`.

        That slot was at `cursor` when it was planned; new zone data may have moved it.
        """
        return self._plan.resume(cursor, key)

    def take(self, after: datetime, n: int) -> list[Slot]:
        """Return the next n slots after an instant, or fewer if the rule ends."""
        slots: list[Slot] = []
        while len(slots) < n:
            slot = self.next(after)
            if slot is None:
                break
            slots.append(slot)
            after = slot.at
        return slots

    def between(self, after: datetime, until: datetime, *, limit: int = 10_000) -> list[Slot]:
        """Return the slots with after < at <= until, oldest first, at most `limit` of them."""
        slots: list[Slot] = []
        while len(slots) < limit:
            slot = self.next(after)
            if slot is None or slot.at > until:
                break
            slots.append(slot)
            after = slot.at
        return slots

    def latest(self, after: datetime, until: datetime) -> Slot | None:
        """Return the newest slot with after < at <= until.

        The cost grows with the logarithm of the span, not with the number of slots in it.
        """
        newest, slot = None, self.next(after)
        empty_from = until
        while slot is not None and slot.at <= until:
            newest = slot
            while empty_from - newest.at > TICK:
                middle = newest.at + (empty_from - newest.at) / 2
                slot = self.next(middle)
                if slot is not None and slot.at <= until:
                    newest = slot
                else:
                    empty_from = middle
            slot = self.next(newest.at)
        return newest

    def _next_around(self, quiet: QuietWindows, after: datetime) -> Slot | None:
        for _ in range(MAX_SKIPS):
            found = self._plan.next(after)
            if found is None:
                return None
            at, key = found
            due = at + self._stagger
            free = quiet.until(seconds(due))
            if free == seconds(due):
                return Slot(key=self._prefix + key, at=at, due=due)
            if self._plan.rule.quiet_mode is QuietMode.POSTPONE:
                return Slot(key=self._prefix + key, at=at, due=instant(free))
            # Continue at the end of the window: a rule per second has thousands of slots in it.
            after = max(at, instant(free) - self._stagger - TICK)
        return None


def _offset(jitter: timedelta, stagger: str) -> timedelta:
    span = jitter // _MILLISECOND
    if span == 0:
        return timedelta()
    digest = sha256(stagger.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest) % span * _MILLISECOND

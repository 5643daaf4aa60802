"""Times as people type them: ISO, words, or a length of time from now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from rota.errors import Invalid
from rota.model.schedules import RuleKind
from rota.timing.durations import parse_duration
from rota.timing.natural import read
from rota.timing.texts import instant_in, parse_clock, parse_date
from rota.timing.timetable import timetable
from rota.timing.zones import zone

EXAMPLES = '"2026-12-24T09:00", "today 9:00", "tomorrow 9am" or "2h"'

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAMED_DAY = re.compile(
    r"(today|yesterday|tomorrow)(?: (?:at )?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?))?"
)
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?")
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


def parse_instant(text: str, timezone: str, now: datetime, field: str) -> datetime:
    """Return the instant a text means in a zone.

    A bare date means its midnight, a bare time of day means today, and a bare length of time
    counts from now; `2h ago` counts back.
    """
    where = zone(timezone)
    said = " ".join(text.strip().lower().split())
    if said == "now":
        return now
    found = _on_the_wall(said, where, now, field)
    if found is not None:
        return found
    if said.endswith(" ago"):
        return now - parse_duration(said.removesuffix(" ago"), field=field)
    try:
        return now + parse_duration(said, field=field)
    except Invalid:
        return _worded(text, timezone, now, field)


def parse_day(
    text: str, timezone: str, now: datetime, field: str
) -> tuple[datetime, datetime] | None:
    """Return the first and the last instant of a day that was named without a time, or None."""
    said = " ".join(text.strip().lower().split())
    where = zone(timezone)
    if _DATE.fullmatch(said):
        day = parse_date(said, field)
        first = datetime(day.year, day.month, day.day, tzinfo=where)
    elif said in _DAYS:
        first = _midnight(now, where, _DAYS[said])
    else:
        return None
    following = _midnight(first, where, 1)
    return first.astimezone(UTC), following.astimezone(UTC) - timedelta(microseconds=1)


def _on_the_wall(said: str, where: ZoneInfo, now: datetime, field: str) -> datetime | None:
    if _DATE.fullmatch(said):
        day = parse_date(said, field)
        return datetime(day.year, day.month, day.day, tzinfo=where).astimezone(UTC)
    if _DATE.match(said):
        return instant_in(said, where, field)
    named = _NAMED_DAY.fullmatch(said)
    if named is None and not _CLOCK.fullmatch(said):
        return None
    seconds = parse_clock((named[2] if named else said) or "0:00", field)
    midnight = _midnight(now, where, _DAYS[named[1]] if named else 0)
    wall = midnight.replace(tzinfo=None) + timedelta(seconds=seconds)
    return wall.replace(tzinfo=where).astimezone(UTC)


def _midnight(moment: datetime, where: ZoneInfo, days: int) -> datetime:
    local = moment.astimezone(where).replace(tzinfo=None)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)
    return start.replace(tzinfo=where)


def _worded(text: str, timezone: str, now: datetime, field: str) -> datetime:
    advice = f"write a time such as {EXAMPLES}"
    try:
        rule = read(text, now=now, timezone=timezone)
    except Invalid as fault:
        raise Invalid(field, text, advice) from fault
    slot = timetable(rule).next(now - timedelta(seconds=1))
    if rule.kind is not RuleKind.ONCE or slot is None:
        raise Invalid(field, text, advice)
    return slot.at

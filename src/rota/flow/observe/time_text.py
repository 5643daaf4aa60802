"""Times and durations as text, and parsing of typed times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from rota.errors import Invalid
from rota.model.checks import CheckState, SuppressionReason
from rota.model.heartbeats import Heartbeat
from rota.model.schedules import RuleKind
from rota.model.text import clean
from rota.timing.durations import parse_duration
from rota.timing.natural_language import read
from rota.timing.notation import instant_in, parse_clock, parse_date
from rota.timing.timetable import timetable
from rota.timing.zones import zone


def duration_text(length: timedelta) -> str:
    """Format a duration in its two largest units: `3 ms`, `4.2 s`, `2 min 5 s`, `3 d 4 h`."""
    total = max(0.0, length.total_seconds())
    if total < 1:
        return f"{total * 1_000:.0f} ms"
    if total < 60:  # noqa: PLR2004 - a minute
        return f"{total:.1f} s".replace(".0 s", " s")
    parts: list[str] = []
    rest = round(total)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def wall_time_text(instant: datetime, zone: ZoneInfo) -> str:
    """Format an instant as date and time in a zone, with seconds only if there are any."""
    local = instant.astimezone(zone)
    return f"{local:%a %Y-%m-%d} {clock_text(instant, zone)}"


def clock_text(instant: datetime, zone: ZoneInfo) -> str:
    """Format the time of day of an instant in a zone, with seconds only if there are any."""
    local = instant.astimezone(zone)
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def last_heartbeat_text(heard: Heartbeat, now: datetime) -> str:
    """Return the time of the last heartbeat, and its problem, if any."""
    ago = f"last heartbeat {duration_text(now - heard.at)} ago"
    if heard.missed_reason is not None:
        return f"{ago}: {heard.missed_reason}"
    sign = heard.sample
    state = "" if sign.state == "running" and sign.alive else f" ({sign.state})"
    return f"{ago}{state}" + (f': "{sign.last_line}"' if sign.last_line else "")


def whole_line(text: str | None) -> str:
    """Return the complete first line of a text, such as an error."""
    return clean((text or "").strip().partition("\n")[0]).partition("\n")[0].strip()


def first_line(text: str | None, most: int = 120) -> str:
    """Return the shortened first line of a text for a table."""
    line = whole_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def count_text(count: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `3 runs`, `2 deliveries`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


EXAMPLES = '"2026-12-24T09:00", "today 9:00", "tomorrow 9am" or "2h"'

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAMED_DAY = re.compile(
    r"(today|yesterday|tomorrow)(?: (?:at )?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?))?"
)
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?")
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}


def parse_instant(text: str, timezone: str, now: datetime, field: str) -> datetime:
    """Parse an instant in a zone.

    A date means midnight, a time of day means today, and a duration counts from now; `2h ago`
    counts back.
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
    """Return the first and last instant of a day without a time, or None for other text."""
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


LONGEST = timedelta(days=400)
STEP = timedelta(days=1)


def offset_changes(where: ZoneInfo, start: datetime, end: datetime) -> list[str]:
    """Return a sentence for every change of a zone's offset in a span."""
    notes = []
    moment = start
    end = min(end, start + LONGEST)
    while moment < end:
        following = min(moment + STEP, end)
        before, after = _offset(moment, where), _offset(following, where)
        if before != after:
            at = _when(where, moment, following)
            ahead = after > before
            way = "ahead" if ahead else "back"
            what = (
                "slots in between run right after it"
                if ahead
                else "repeated times run at the first occurrence"
            )
            change = duration_text(abs(after - before))
            notes.append(f"clocks go {way} by {change} at {wall_time_text(at, where)}: {what}")
        moment = following
    return notes


def _offset(moment: datetime, where: ZoneInfo) -> timedelta:
    return moment.astimezone(where).utcoffset() or timedelta()


def _when(where: ZoneInfo, early: datetime, late: datetime) -> datetime:
    before = _offset(early, where)
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) / 2
        if _offset(middle, where) == before:
            early = middle
        else:
            late = middle
    return late.replace(microsecond=0)


CHECK_WORDS = {
    CheckState.VERIFIED: "verified: its checks hold",
    CheckState.UNVERIFIED: "unverified: no checks defined",
    CheckState.CONTRADICTED: "contradicted: a check failed",
}
SUPPRESSION_WORDS = {
    SuppressionReason.BY_GATE: "suppressed: its gate found no work",
    SuppressionReason.BY_RESULT: "suppressed: its result was not delivered",
}

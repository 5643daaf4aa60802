"""The slots a rule must yield, by a second opinion that shares no code with `rota.timing`.

It knows only the few shapes of rules that callers in a history use, and finds their instants by
arithmetic on the clock face and by looking at every minute.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND_MICROS = 1_000_000
LONGEST_GAP = timedelta(hours=3)


def slots_between(rule: str, after: int, until: int) -> list[int]:
    """Return the instants with after < instant <= until, in microseconds."""
    found = []
    for instant in _instants(rule, after):
        if instant > until:
            break
        found.append(instant)
    return found


def next_slot(rule: str, after: int) -> int | None:
    """Return the first instant after another, or None if there is none."""
    return next(iter(_instants(rule, after)), None)


def _instants(rule: str, after: int) -> Iterator[int]:
    kind, expression, zone, anchor = _read(rule)
    if kind == "interval":
        step = _seconds(expression) * SECOND_MICROS
        yield from _counted(anchor, step, after)
    elif kind == "once":
        at = _micros(datetime.fromisoformat(expression))
        if at > after:
            yield at
    elif kind == "cron" and expression.startswith("*/"):
        yield from _minutes(int(expression.split()[0][2:]), after)
    elif kind == "cron":
        minute, hour = expression.split()[:2]
        yield from _daily([time(int(hour), int(minute))], zone, after)
    else:
        yield from _daily([time.fromisoformat(t) for t in expression.split(",")], zone, after)


@lru_cache(maxsize=1_000)
def _read(rule: str) -> tuple[str, str, str, int]:
    record = json.loads(rule)
    anchor = record["anchor"]
    begun = 0 if anchor is None else _micros(datetime.fromisoformat(anchor))
    return record["kind"], record["expression"], record["timezone"], begun


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def _seconds(expression: str) -> int:
    found = re.fullmatch(r"PT(?:(\d+)M)?(?:(\d+)S)?", expression)
    if found is None:
        raise ValueError(expression)
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def _counted(anchor: int, step: int, after: int) -> Iterator[int]:
    number = max(1, (after - anchor) // step + 1)
    while True:
        yield anchor + number * step
        number += 1


def _minutes(step: int, after: int) -> Iterator[int]:
    minute = 60 * SECOND_MICROS
    at = after // minute * minute + minute
    while True:
        if at // minute % 60 % step == 0:
            yield at
        at += minute


def _daily(times: list[time], zone: str, after: int) -> Iterator[int]:
    """Every day at these times of the wall: behind a gap if left out, once if repeated."""
    where = ZoneInfo(zone)
    day = (EPOCH + timedelta(microseconds=after)).astimezone(where).date() - timedelta(days=1)
    last = after
    while True:
        for instant in sorted({_wall(day, at, where) for at in times}):
            if instant > last:
                yield instant
                last = instant
        day += timedelta(days=1)


def _wall(day: date, at: time, where: ZoneInfo) -> int:
    local = datetime.combine(day, at)
    guess = local.replace(tzinfo=where).astimezone(UTC)
    if guess.astimezone(where).replace(tzinfo=None) == local:
        return _micros(guess)
    minute = guess - LONGEST_GAP
    while minute.astimezone(where).replace(tzinfo=None) < local:
        minute += MINUTE
    return _micros(minute)

"""Cron around clock changes, against an oracle that looks at every minute of the wall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.timing.rules import cron
from rota.timing.timetable import timetable

CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Antarctica/Troll", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("America/Nuuk", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("America/Nuuk", datetime(2026, 10, 25, 1, tzinfo=UTC)),
]
MINUTE = timedelta(minutes=1)
REACH = timedelta(hours=30)

numbers = st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True)
minutes = (
    st.just("*")
    | st.integers(1, 30).map(lambda n: f"*/{n}")
    | numbers.map(lambda ns: ",".join(map(str, sorted(ns))))
)
hours = st.just("*") | st.sampled_from(
    ["*/2", "0-3", "1,2", "2", "2,3", "23", "0,23", "22-23", "2-4"]
)


def values(field: str, size: int) -> set[int]:
    if field.startswith("*"):
        return set(range(0, size, int(field[2:] or 1)))
    found = set()
    for part in field.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def oracle(line: str, zone: ZoneInfo, around: datetime, gap: str, fold: str) -> dict[datetime, str]:
    """Return the fires within reach of an instant, by looking at each minute in turn."""
    minute_field, hour_field = line.split()[:2]
    wanted = {(h, m) for h in values(hour_field, 24) for m in values(minute_field, 60)}
    elapsed = minute_field.startswith("*") or hour_field.startswith("*")
    fires: dict[datetime, str] = {}
    moment, last = around - REACH, (around - REACH - MINUTE).astimezone(zone).replace(tzinfo=None)
    while moment <= around + REACH:
        local = moment.astimezone(zone)
        wall = local.replace(tzinfo=None, fold=0)
        if not elapsed and gap == "shift":
            skipped = last + MINUTE
            while skipped < wall:
                if (skipped.hour, skipped.minute) in wanted:
                    fires.setdefault(moment, f"{skipped:%Y-%m-%dT%H:%M}#0")
                skipped += MINUTE
        if (wall.hour, wall.minute) in wanted and _runs(local, elapsed, fold):
            fires[moment] = f"{wall:%Y-%m-%dT%H:%M}#{local.fold}"
        last = max(wall, last)
        moment += MINUTE
    return fires


def _runs(local: datetime, elapsed: bool, fold: str) -> bool:
    twice = local.replace(fold=0).astimezone(UTC) != local.replace(fold=1).astimezone(UTC)
    if elapsed or fold == "both" or not twice:
        return True
    return local.fold == (0 if fold == "first" else 1)


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[f"{n} {c:%b}" for n, c in CHANGES])
@settings(max_examples=12, deadline=None)
@given(
    minute=minutes,
    hour=hours,
    gap=st.sampled_from(["shift", "skip"]),
    fold=st.sampled_from(["first", "second", "both"]),
)
def test_cron_agrees_with_the_wall(
    name: str, change: datetime, minute: str, hour: str, gap: str, fold: str
) -> None:
    line = f"{minute} {hour} * * *"
    expected = oracle(line, ZoneInfo(name), change, gap, fold)
    table = timetable(cron(line, timezone=name, gap=gap, fold=fold))
    found = table.between(change - REACH - MINUTE, change + REACH)
    assert {s.at: s.key.replace(f"[{name}]", "") for s in found} == expected

"""The changes that every run of the tests looks at: one of each kind, and those with a name."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo

from tests.oracle.windows import Change, Window, ahead, count, look

DATE_LINE = ("Pacific/Apia", "2011-12-30T10:00Z")
"""The day that Samoa left out."""

CHOSEN = [
    # ahead by half an hour, one hour, two, three, and a day
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),  # at 02:00
    ("Asia/Tehran", "2022-03-21T20:30Z"),  # at 00:00
    ("Africa/Cairo", "2025-04-24T22:00Z"),  # at 00:00
    ("Europe/London", "2026-03-29T01:00Z"),  # at 01:00
    ("Europe/Berlin", "2026-03-29T01:00Z"),  # at 02:00
    ("America/New_York", "2026-03-08T07:00Z"),  # at 02:00
    ("Pacific/Chatham", "2026-09-26T14:00Z"),  # at 02:45
    ("Pacific/Apia", "2020-09-26T14:00Z"),  # at 03:00
    ("America/Nuuk", "2023-03-26T01:00Z"),  # at 22:00, and stayed
    ("America/Nuuk", "2026-03-29T01:00Z"),  # at 23:00
    ("Antarctica/Troll", "2026-03-29T01:00Z"),  # at 01:00
    ("Antarctica/Casey", "2020-10-03T16:01Z"),  # at 00:01
    DATE_LINE,
    # back by half an hour, one hour, two, three
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),  # at 02:00
    ("Africa/Cairo", "2025-10-30T21:00Z"),  # at 00:00
    ("America/Nuuk", "2026-10-25T01:00Z"),  # at 00:00
    ("America/Havana", "2025-11-02T05:00Z"),  # at 01:00
    ("America/New_York", "2026-11-01T06:00Z"),  # at 02:00
    ("Europe/Berlin", "2026-10-25T01:00Z"),  # at 03:00
    ("Africa/Casablanca", "2025-02-23T02:00Z"),  # at 03:00, for Ramadan
    ("Pacific/Chatham", "2026-04-04T14:00Z"),  # at 03:45
    ("Pacific/Apia", "2021-04-03T14:00Z"),  # at 04:00, and for good
    ("Pacific/Easter", "2026-04-05T03:00Z"),  # at 22:00
    ("America/Nuuk", "2022-10-30T01:00Z"),  # at 23:00
    ("Antarctica/Troll", "2026-10-25T01:00Z"),  # at 03:00
    ("Antarctica/Vostok", "2023-12-17T19:00Z"),  # at 02:00, for good
    ("Antarctica/Casey", "2021-03-13T13:00Z"),  # at 00:00
    ("Antarctica/Casey", "2020-03-07T16:00Z"),  # at 03:00
]


def chosen_change(name: str, at: str) -> Change:
    """Return a chosen change as the zone data have it."""
    zone, minute = ZoneInfo(name), count(datetime.fromisoformat(at))
    found = Change(minute, ahead(zone, minute - 1), ahead(zone, minute))
    if found.before == found.after:
        raise LookupError(f"the zone data know no change of {name} at {at}")
    return found


@cache
def chosen_window(name: str, at: str) -> Window:
    """Return the window around a chosen change."""
    change = chosen_change(name, at)
    return Window(change, look(ZoneInfo(name), change))

"""Time zones by their IANA name."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from rota.errors import Invalid

LONGEST_NAME = 64

_SHAPE = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}")


def zone(name: str, *, field: str = "timezone") -> ZoneInfo:
    """Return the zone of an IANA name, letter case exact; suggest a name when there is none."""
    found = _find(name) if _SHAPE.fullmatch(name) and len(name) <= LONGEST_NAME else None
    if found is None:
        raise Invalid(field, name, _advice(name))
    return found


@lru_cache(maxsize=1024)
def _find(name: str) -> ZoneInfo | None:
    # Only names on the list: the folder of zones also holds files that are not zones, and
    # "localtime" would tie a schedule to one machine.
    return ZoneInfo(name) if name in _names() else None


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones() - {"localtime", "Factory", "posixrules"})


def _advice(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        wanted = name.strip().replace(" ", "_").casefold()
        by_fold = {known.casefold(): known for known in _names()}
        by_city = {known.rsplit("/", 1)[-1].casefold(): known for known in sorted(_names())}
        known = by_fold | {city: full for city, full in by_city.items() if city not in by_fold}
        close = get_close_matches(wanted, known, n=1, cutoff=0.7)
        if close:
            return f"did you mean {known[close[0]]}?"
    return "use an IANA name such as Europe/Berlin or UTC"

"""What the clocks of a zone do in a span, in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rota.flow.observe.telling import span, wall

LONGEST = timedelta(days=400)
STEP = timedelta(days=1)


def offset_changes(where: ZoneInfo, start: datetime, end: datetime) -> list[str]:
    """Return a sentence for every time the clocks of a zone are changed in a span."""
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
                "times in between run right after it"
                if ahead
                else "times that come twice run on the first pass"
            )
            notes.append(
                f"clocks go {way} by {span(abs(after - before))} at {wall(at, where)}: {what}"
            )
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

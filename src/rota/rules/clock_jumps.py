"""Which jumps of the store's clock are reported, and which slots they concern."""

from __future__ import annotations

from datetime import timedelta

from rota.model.clock_jumps import Leap, Leaps
from rota.rules.plans import GRACE

MICROSECOND = timedelta(microseconds=1)
REPORTED_FOR = timedelta(days=1)
"""How long a jump is reported."""


def planned_too_early(leaps: Leaps, now: int) -> Leap | None:
    """Return the span whose slots were planned while the clock was ahead; None if long ago.

    It ends where schedules are planned to. It begins where the clock jumped, or now if no jump was
    observed.
    """
    returned, planned = leaps.returned, leaps.planned
    if returned is not None and returned.end < now - REPORTED_FOR // MICROSECOND:
        returned = None
    if planned is None or planned <= now + GRACE // MICROSECOND:
        return returned
    if returned is not None and returned.end > now:
        return Leap(returned.start, max(returned.end, planned))
    forward = leaps.forward
    seen = forward is not None and forward.start <= now < forward.end
    return Leap(forward.start if forward is not None and seen else now, planned)


def recent_jump(leaps: Leaps, now: int) -> Leap | None:
    """Return the last jump forward if it was recent and not reversed."""
    leap = leaps.forward
    return (
        leap if leap is not None and now - REPORTED_FOR // MICROSECOND < leap.end <= now else None
    )

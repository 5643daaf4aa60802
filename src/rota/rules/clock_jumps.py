"""What jumps of the clock mean for slots."""

from __future__ import annotations

from datetime import timedelta

from rota.model.clock_jumps import Leap, Leaps
from rota.rules.plans import GRACE

MICROSECOND = timedelta(microseconds=1)
TOLD = timedelta(days=1)
"""For how long a leap is told."""


def planned_too_early(leaps: Leaps, now: int) -> Leap | None:
    """Return the span whose slots a clock that was ahead has planned; None if that is long ago.

    It ends where schedules stand, and begins where the clock leapt, or now if nobody saw that.
    """
    returned, planned = leaps.returned, leaps.planned
    if returned is not None and returned.end < now - TOLD // MICROSECOND:
        returned = None
    if planned is None or planned <= now + GRACE // MICROSECOND:
        return returned
    if returned is not None and returned.end > now:
        return Leap(returned.start, max(returned.end, planned))
    forward = leaps.forward
    seen = forward is not None and forward.start <= now < forward.end
    return Leap(forward.start if forward is not None and seen else now, planned)


def leapt_forward(leaps: Leaps, now: int) -> Leap | None:
    """Return the last leap forward that still holds; None if that is long ago."""
    leap = leaps.forward
    return leap if leap is not None and now - TOLD // MICROSECOND < leap.end <= now else None

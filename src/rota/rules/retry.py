"""Whether a failed run is tried again, and when."""

from __future__ import annotations

from datetime import timedelta

from rota.model.tasks import Retry

LONGEST_EXPONENT = 64


def may_retry(retry: Retry, retries: int, age: timedelta) -> bool:
    """Return whether one more try is allowed after this many retries, at this age of the run."""
    if 1 + retries >= retry.attempts:
        return False
    return retry.max_age is None or age < retry.max_age


def delay(retry: Retry, nth: int, chance: float) -> timedelta:
    """Return how long the n-th retry waits; `chance` is a random number below 1."""
    growth = retry.factor ** min(nth - 1, LONGEST_EXPONENT)
    seconds = min(retry.base.total_seconds() * growth, retry.cap.total_seconds())
    return timedelta(seconds=seconds * (1 + retry.jitter * chance))

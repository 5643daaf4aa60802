"""Jumps of the store's clock, forward and back."""

from __future__ import annotations

from typing import NamedTuple


class Leap(NamedTuple):
    """A span of store time, in microseconds, that the clock jumped over."""

    start: int
    end: int


class Leaps(NamedTuple):
    """Jumps of a store's clock.

    `forward` is the last jump forward that was not reversed. `returned` is the span whose slots
    were planned too early, recorded when the clock went back. `planned` is the time up to which any
    schedule is planned.
    """

    forward: Leap | None
    returned: Leap | None
    planned: int | None

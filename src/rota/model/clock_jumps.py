"""Jumps of the store's clock, forward and back."""

from __future__ import annotations

from typing import NamedTuple


class Leap(NamedTuple):
    """A span of the store's time, in microseconds, over which its clock has leapt."""

    start: int
    end: int


class Leaps(NamedTuple):
    """What a store knows of its clock.

    `forward` is the last leap forward that was not taken back. `returned` is the span whose slots
    were planned too early, as it was noted when the clock went back. `planned` is up to when any
    schedule is planned.
    """

    forward: Leap | None
    returned: Leap | None
    planned: int | None

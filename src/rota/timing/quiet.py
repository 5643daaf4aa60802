"""Quiet windows: times of the week in which nothing starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.timing.instants import DAY
from rota.timing.patterns import WEEK, weekday_of

if TYPE_CHECKING:
    from rota.timing.walls import Wall

_WEEK = WEEK * DAY
_ROUNDS = 64
"""More changes of offset than any week has: the search for an end always ends."""


class Quiet:
    """The union of weekly windows on one wall, each a start and a length in seconds."""

    __slots__ = ("_stretches", "_wall")

    def __init__(self, wall: Wall, windows: tuple[tuple[int, int], ...]) -> None:
        self._wall = wall
        self._stretches = _merged(windows)

    @property
    def endless(self) -> bool:
        """Whether the windows leave no time of the week free."""
        return any(end - start >= _WEEK for start, end in self._stretches)

    def until(self, at: int) -> int:
        """Return the first instant on or after one that is in no window."""
        if self.endless:
            return at
        for _ in range(_ROUNDS):
            offset = self._wall.offset(at)
            left = self._left(at + offset)
            if left == 0:
                return at
            if self._wall.offset(at + left) == offset:
                return at + left
            at = self._wall.change(at, at + left)
        return at

    def _left(self, nominal: int) -> int:
        day, second = divmod(nominal, DAY)
        moment = weekday_of(day) * DAY + second
        for start, end in self._stretches:
            for shifted in (moment, moment + _WEEK):
                if start <= shifted < end:
                    return end - shifted
        return 0


def _merged(windows: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Join windows that touch, also across the end of the week; ends may exceed one week."""
    spans = sorted((start, start + length) for start, length in windows)
    # A second copy one week on lets what crosses Sunday night meet Monday's windows.
    doubled = spans + [(start + _WEEK, end + _WEEK) for start, end in spans]
    merged: list[list[int]] = []
    for start, end in doubled:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([start, end])
    return tuple((start, end) for start, end in merged if start < _WEEK)

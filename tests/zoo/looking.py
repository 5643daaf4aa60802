"""Looking for one bug in a process of its own, which finds this by its module's name."""

from __future__ import annotations

from tests.zoo.all import BUGS
from tests.zoo.catching import Caught, catch


def caught(number: int, most_seeds: int) -> Caught | None:
    """Look for the bug of that number."""
    return catch(BUGS[number], most_seeds)

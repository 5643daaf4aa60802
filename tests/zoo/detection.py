"""Whether a planted bug is caught, by what, and after how many seeds."""

from __future__ import annotations

from typing import NamedTuple

from tests.tools.simulation.world import World
from tests.zoo.bugs import Bug
from tests.zoo.catalogue import BUGS

MOST_SEEDS = 1_000
SHORT_SEEDS = 150
"""In the short form: five times what the bugs it looks for took when they were last looked for."""


class Caught(NamedTuple):
    """What caught a bug: which promise it broke, after how many seeds."""

    by: str
    rule: str
    seeds: int


def catch(bug: Bug, most_seeds: int = MOST_SEEDS) -> Caught | None:
    """Return what catches a bug, or None if nothing does."""
    with bug.plant():
        if bug.check is not None:
            said = bug.check()
            return None if said is None else Caught(bug.caught_by, said, 0)
        for seed in range(most_seeds):
            violation = World(seed).run().violation
            if violation is not None:
                return Caught(bug.caught_by, violation.rule, seed + 1)
    return None


def caught(number: int, most_seeds: int) -> Caught | None:
    """Look for the bug of that number."""
    return catch(BUGS[number], most_seeds)

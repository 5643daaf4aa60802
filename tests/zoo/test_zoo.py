"""Every bug in the zoo is caught; `make zoo` prints who had it and after how many seeds."""

import pytest
from tests.zoo.all import BUGS
from tests.zoo.catching import catch
from tests.zoo.timekeeping import in_autumn, in_spring, leap_days

from rota.testing.simulation.world import World

SEEDS = 150
"""One history in twenty shows the rarest of them."""


@pytest.mark.parametrize("bug", [bug for bug in BUGS if not bug.rare], ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug):
    assert catch(bug, SEEDS) is not None


def test_without_a_bug_nothing_is_caught():
    assert [check() for check in (in_spring, in_autumn, leap_days)] == [None] * 3
    assert World(0).run().violation is None


def test_the_zoo_is_large_and_every_bug_has_its_name():
    assert len(BUGS) >= 25
    assert len({bug.name for bug in BUGS}) == len(BUGS)

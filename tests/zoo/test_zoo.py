"""The zoo itself; `make zoo-short` looks for its bugs, and `make zoo` for all of them."""

from tests.tools.simulation.world import World
from tests.zoo.catalogue import BUGS
from tests.zoo.timing import in_autumn, in_spring, leap_days


def test_without_a_bug_nothing_is_caught():
    assert [check() for check in (in_spring, in_autumn, leap_days)] == [None] * 3
    assert World(0).run().violation is None


def test_every_bug_can_still_be_planted():
    for bug in BUGS:
        with bug.plant():
            if bug.check is None:
                World(0).run()
    assert World(0).run().violation is None


def test_every_bug_has_its_name_and_its_sentence():
    assert len({bug.name for bug in BUGS}) == len({bug.says for bug in BUGS}) == len(BUGS)

"""Random kills, a few: every line once and in order, one ending each, no survivor."""

import os

import pytest

from rota.ports.executor import ProcessTreeMode
from tests.tools.keepers.__main__ import play
from tests.tools.keepers.attempts import python_for_everybody

BOTH = [ProcessTreeMode.PIDNS, ProcessTreeMode.GUARD]


def test_random_kills_lose_and_double_nothing():
    result = play(11, 25, BOTH, 40.0, nobody=False)
    assert result.faults == []
    assert result.kills.total() >= 15, "too few kills to say anything"
    assert result.lines


def test_random_kills_lose_and_double_nothing_for_a_plain_user():
    if os.geteuid():
        pytest.skip("this is a plain user already")
    if not python_for_everybody():
        pytest.skip("there is no Python of this version that another user may run")
    result = play(12, 15, BOTH, 30.0, nobody=True)
    assert result.faults == []
    assert result.kills.total() >= 8, "too few kills to say anything"

"""Whole histories: many seeds without a broken promise, and every one the same again."""

import subprocess
import sys

import pytest

from tests.tools.simulation.world import World

SEEDS = 1_000
SHARES = 40
TWICE = 50


def verdict(seed):
    found = World(seed).run()
    assert found.violation is None, "\n".join([*found.lines, str(found.violation)])
    return found


@pytest.mark.parametrize("share", range(SHARES))
def test_no_promise_is_broken(share):
    for seed in range(share, SEEDS, SHARES):
        verdict(seed)


@pytest.mark.parametrize("share", range(10))
def test_a_history_replays_bit_for_bit(share):
    for seed in range(share, TWICE, 10):
        assert verdict(seed).digest == verdict(seed).digest


def test_a_history_is_the_same_in_another_process_with_another_hash_seed():
    code = "from tests.tools.simulation.world import World; print(World(7).run().digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": str(number)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for number in (0, 1)
    }
    assert digests == {verdict(7).digest}

"""One pace for every way to the desk: whoever asks too fast is refused, or waits."""

from __future__ import annotations

import asyncio

import pytest

from rota.agent_api.dispatcher import MOST_KNOWN, RateLimited, RateLimiter


class Hand:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_a_burst_passes_at_once_and_the_rest_is_refused_until_there_is_more():
    hand = Hand()
    pace = RateLimiter(hand, burst=3.0, rate=2.0)
    for _ in range(3):
        pace.spend("one")
    with pytest.raises(RateLimited):
        pace.spend("one")
    pace.spend("other")
    hand.now = 0.5
    pace.spend("one")
    with pytest.raises(RateLimited):
        pace.spend("one")


async def test_who_waits_may_spend_and_pays_for_what_was_long():
    pace = RateLimiter(asyncio.get_running_loop().time, burst=3.0, rate=100.0)
    began = asyncio.get_running_loop().time()
    for _ in range(3):
        await pace.wait("one")
        pace.spend("one")
    assert asyncio.get_running_loop().time() - began < 0.01
    pace.charge("one", 2.0)
    await pace.wait("one")
    pace.spend("one")
    assert asyncio.get_running_loop().time() - began > 0.025


def test_only_who_has_rested_is_forgotten():
    hand = Hand()
    pace = RateLimiter(hand, burst=2.0, rate=1.0)
    pace.charge("deep in debt", 100.0)
    for number in range(MOST_KNOWN):
        pace.spend(str(number))
    hand.now = 50.0
    pace.spend("new")
    assert len(pace._left) == 2
    with pytest.raises(RateLimited):
        pace.spend("deep in debt")

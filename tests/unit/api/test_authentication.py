"""Who guesses keys waits longer and longer; who has one never does."""

import pytest

from rota.api.middleware import FREE_GUESSES, LONGEST_SECONDS, MAX_PLACES, LoginBackoff, place_of


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def guess(backoff, address, times):
    for _ in range(times):
        backoff.failed(address)


def test_a_few_guesses_are_free_and_then_each_costs_twice_as_much():
    time = Time()
    backoff = LoginBackoff(time)
    guess(backoff, "10.0.0.1", FREE_GUESSES - 1)
    assert backoff.waits("10.0.0.1") == 0
    waits = []
    for _ in range(10):
        backoff.failed("10.0.0.1")
        waits.append(backoff.waits("10.0.0.1"))
    assert waits[:4] == [1, 2, 4, 8]
    assert max(waits) == LONGEST_SECONDS
    assert backoff.waits("10.0.0.2") == 0
    time.now += LONGEST_SECONDS
    assert backoff.waits("10.0.0.1") == 0


def test_what_was_long_ago_is_forgotten():
    time = Time()
    backoff = LoginBackoff(time)
    guess(backoff, "10.0.0.1", FREE_GUESSES + 5)
    time.now += 3_600
    backoff.failed("10.0.0.1")
    assert backoff.waits("10.0.0.1") == 0


def test_it_remembers_a_bounded_number_of_places():
    backoff = LoginBackoff(Time())
    for n in range(MAX_PLACES + 500):
        backoff.failed(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}")
    assert len(backoff._places) == MAX_PLACES


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("unix:", "unix:", True),
    ],
)
def test_a_network_of_ipv6_is_one_place(one, other, same):
    assert (place_of(one) == place_of(other)) is same

"""Leases are judged by a clock that was watched for their length."""

import pytest

from rota.model.instants import to_micros
from rota.runtime.clock import PROPAGATION_SECONDS, LeaseClock
from rota.testing.fakes import VirtualClock

NEWS = int(PROPAGATION_SECONDS * 1_000_000)
MINUTE = 60_000_000


@pytest.fixture
def clock():
    return VirtualClock()


def watched(leases, clock):
    return leases.watched(to_micros(clock.now()))


def test_who_has_just_started_judges_no_lease(clock):
    assert watched(LeaseClock(clock), clock) < 0


def test_even_time_is_counted(clock):
    leases = LeaseClock(clock)
    watched(leases, clock)
    clock.advance(minutes=1)
    assert watched(leases, clock) == MINUTE - NEWS


@pytest.mark.parametrize("seconds", [-3600, -2, 2, 3600])
def test_a_leap_begins_the_count_again(clock, seconds):
    leases = LeaseClock(clock)
    watched(leases, clock)
    clock.advance(minutes=10)
    clock.set(clock.now().fromtimestamp(clock.now().timestamp() + seconds, clock.now().tzinfo))
    assert watched(leases, clock) < 0
    clock.advance(minutes=1)
    assert watched(leases, clock) == MINUTE - NEWS


def test_a_suspended_machine_has_watched_meanwhile(clock):
    leases = LeaseClock(clock)
    watched(leases, clock)
    clock.advance(hours=8)
    assert watched(leases, clock) > 7 * 60 * MINUTE

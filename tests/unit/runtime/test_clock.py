"""Clocks: jumps are not believed at once, and leases need one that was watched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.model.instants import to_micros
from rota.runtime.clock import (
    MAX_LEAP_SECONDS,
    PROBATION_SECONDS,
    PROPAGATION_SECONDS,
    LeaseClock,
    SteadyClock,
)
from rota.testing.fakes import VirtualClock

# a clock that jumps


class Counter:
    def __init__(self):
        self.counted = 1_000.0

    def now(self):
        return datetime(2026, 11, 15, tzinfo=UTC)

    def monotonic(self):
        return self.counted


START = to_micros(datetime(2026, 11, 15, tzinfo=UTC))


def after(counter, seconds, leap=timedelta()):
    counter.counted += seconds
    return START + int((counter.counted - 1_000.0 + leap.total_seconds()) * 1_000_000)


def test_even_time_is_trusted():
    counter = Counter()
    steady = SteadyClock(counter)
    assert steady.trusts(START)
    assert all(steady.trusts(after(counter, 15.0)) for _ in range(100))


def test_a_suspended_machine_is_no_leap():
    counter = Counter()
    steady = SteadyClock(counter)
    steady.trusts(START)
    assert steady.trusts(after(counter, 8 * 3600.0))


def test_a_leap_of_years_is_held_until_it_has_kept_still():
    counter = Counter()
    steady = SteadyClock(counter)
    steady.trusts(START)
    leap = timedelta(days=3650)
    assert not steady.trusts(after(counter, 1.0, leap))
    assert not steady.trusts(after(counter, PROBATION_SECONDS - 2, leap))
    assert steady.trusts(after(counter, 3.0, leap))
    assert steady.trusts(after(counter, 1.0, leap))


def test_a_leap_that_is_taken_back_leaves_no_trace():
    counter = Counter()
    steady = SteadyClock(counter)
    steady.trusts(START)
    assert not steady.trusts(after(counter, 1.0, timedelta(days=3650)))
    assert steady.trusts(after(counter, 1.0))


def test_a_small_correction_is_trusted():
    counter = Counter()
    steady = SteadyClock(counter)
    steady.trusts(START)
    assert steady.trusts(after(counter, 1.0, timedelta(seconds=MAX_LEAP_SECONDS - 1)))


def test_a_clock_that_goes_back_is_trusted_because_cursors_never_do():
    counter = Counter()
    steady = SteadyClock(counter)
    steady.trusts(START)
    assert steady.trusts(after(counter, 1.0, timedelta(days=-30)))


def test_a_second_leap_starts_the_wait_again():
    counter = Counter()
    steady = SteadyClock(counter)
    steady.trusts(START)
    assert not steady.trusts(after(counter, 1.0, timedelta(days=1)))
    assert not steady.trusts(after(counter, PROBATION_SECONDS, timedelta(days=400)))
    assert not steady.trusts(after(counter, PROBATION_SECONDS / 2, timedelta(days=400)))
    assert steady.trusts(after(counter, PROBATION_SECONDS, timedelta(days=400)))


# a clock for leases

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

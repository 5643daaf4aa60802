"""A clock that leaps is not believed at once."""

from datetime import UTC, datetime, timedelta

from rota.model.instants import to_micros
from rota.runtime.clock import MAX_LEAP_SECONDS, PROBATION_SECONDS, SteadyClock


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

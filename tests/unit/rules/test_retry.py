"""Whether a failed run is tried again, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.tasks import Retry
from rota.rules.settlement import delay, may_retry

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("attempts", "retries", "allowed"),
    [(1, 0, False), (2, 0, True), (2, 1, False), (5, 3, True), (5, 4, False), (5, 9, False)],
)
def test_attempts_count_every_try(attempts, retries, allowed):
    assert may_retry(Retry(attempts=attempts), retries, SECOND) is allowed


@pytest.mark.parametrize(("age", "allowed"), [(59, True), (60, False), (61, False)])
def test_a_run_older_than_its_maximum_is_not_tried_again(age, allowed):
    retry = Retry(attempts=9, max_age=timedelta(seconds=60))
    assert may_retry(retry, 0, age * SECOND) is allowed


@pytest.mark.parametrize(
    ("nth", "seconds"), [(1, 5), (2, 10), (3, 20), (4, 40), (10, 2560), (11, 3600), (999, 3600)]
)
def test_the_pause_doubles_up_to_its_cap(nth, seconds):
    assert delay(Retry(attempts=1_000, jitter=0), nth, 0.5) == seconds * SECOND


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 5), (0.5, 7.5), (0.999, 9.995)])
def test_jitter_only_adds(chance, seconds):
    assert delay(Retry(jitter=1.0), 1, chance) == timedelta(seconds=seconds)


@given(
    nth=st.integers(1, 10_000),
    factor=st.floats(1, 100),
    jitter=st.floats(0, 10),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_always_between_its_base_and_its_cap_with_jitter(nth, factor, jitter, chance):
    retry = Retry(attempts=2, base=SECOND, factor=factor, cap=timedelta(hours=1), jitter=jitter)
    pause = delay(retry, nth, chance)
    assert SECOND <= pause <= timedelta(hours=1) * (1 + jitter) + SECOND
    assert delay(retry, nth + 1, chance) >= pause

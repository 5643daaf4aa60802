"""Cron lines by chance around clock changes, against the oracle that looks at every minute."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.chosen import CHOSEN, chosen_window
from tests.oracle.compare import Comparison
from tests.oracle.expectations import Rule, expected

numbers = st.lists(st.integers(0, 59), min_size=1, max_size=3, unique=True)
minutes = (
    st.just("*")
    | st.integers(1, 30).map(lambda n: f"*/{n}")
    | numbers.map(lambda ns: ",".join(map(str, sorted(ns))))
)
hours = st.just("*") | st.sampled_from(
    ["*/2", "0-3", "1,2", "2", "2,3", "23", "0,23", "22-23", "2-4"]
)
days = st.sampled_from(["* * *", "* * sun", "* * mon-sat", "L * *", "1-7 * sun", "* * 0#2,6L"])


@pytest.mark.parametrize(("name", "at"), CHOSEN, ids=[" ".join(chosen) for chosen in CHOSEN])
@settings(max_examples=6, deadline=None)
@given(
    minute=minutes,
    hour=hours,
    day=days,
    gap=st.sampled_from(["shift", "skip"]),
    fold=st.sampled_from(["first", "second", "both"]),
)
def test_cron_agrees_with_the_wall(
    name: str, at: str, minute: str, hour: str, day: str, gap: str, fold: str
) -> None:
    window = chosen_window(name, at)
    rule = Rule(kind="cron", text=f"{minute} {hour} {day}", gap=gap, fold=fold)
    assert not Comparison(rule, window, name, expected(rule, window)).mismatches()

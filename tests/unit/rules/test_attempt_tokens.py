"""Passes are of one attempt, one home and one database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.rules.tokens import is_pass, make_pass, read_pass

SECRET = b"s" * 32


@given(st.integers(1, 2**53), st.integers(1, 2**31 - 1))
def test_a_pass_is_read_back(run_id, epoch):
    made = make_pass(SECRET, "db", run_id, epoch)
    assert is_pass(made)
    assert read_pass(SECRET, "db", made) == (run_id, epoch)
    assert read_pass(b"t" * 32, "db", made) is None
    assert read_pass(SECRET, "other", made) is None


@pytest.mark.parametrize("at", range(len(make_pass(SECRET, "db", 12, 3))))
def test_every_character_counts(at):
    made = make_pass(SECRET, "db", 12, 3)
    for other in "A1_-":
        changed = made[:at] + other + made[at + 1 :]
        assert changed == made or read_pass(SECRET, "db", changed) is None


@given(st.text())
def test_anything_else_is_no_pass(text):
    assert read_pass(SECRET, "db", text) is None

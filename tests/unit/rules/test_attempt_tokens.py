"""Passes are of one attempt, one home and one database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.rules.tokens import is_attempt_token, make_attempt_token, read_attempt_token

SECRET = b"s" * 32


@given(st.integers(1, 2**53), st.integers(1, 2**31 - 1))
def test_a_pass_is_read_back(run_id, epoch):
    made = make_attempt_token(SECRET, "db", run_id, epoch)
    assert is_attempt_token(made)
    assert read_attempt_token(SECRET, "db", made) == (run_id, epoch)
    assert read_attempt_token(b"t" * 32, "db", made) is None
    assert read_attempt_token(SECRET, "other", made) is None


@pytest.mark.parametrize("at", range(len(make_attempt_token(SECRET, "db", 12, 3))))
def test_every_character_counts(at):
    made = make_attempt_token(SECRET, "db", 12, 3)
    for other in "A1_-":
        changed = made[:at] + other + made[at + 1 :]
        assert changed == made or read_attempt_token(SECRET, "db", changed) is None


@given(st.text())
def test_anything_else_is_no_pass(text):
    assert read_attempt_token(SECRET, "db", text) is None

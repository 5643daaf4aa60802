"""Tokens: of keys, and of one attempt in one home and one database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.rules.tokens import (
    digest_of,
    digest_of_token,
    is_pass,
    make_pass,
    prefix_of,
    read_pass,
    token_of,
)

# keys

SECRETS = st.binary(min_size=32, max_size=32)


@given(SECRETS)
def test_a_token_leads_to_the_digest_of_its_secret(secret):
    token = token_of(secret)
    assert digest_of_token(token) == digest_of(secret)
    assert token.startswith(prefix_of(secret) + "_")
    assert secret.hex() not in digest_of(secret)


@given(SECRETS, st.data())
def test_a_token_with_another_letter_is_none_or_another_one(secret, data):
    token = token_of(secret)
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = token[:at] + letter + token[at + 1 :]
    assert digest_of_token(changed) in ({digest_of(secret)} if changed == token else {None})


@given(st.text(max_size=100))
def test_whatever_else_is_said_is_no_token(text):
    assert digest_of_token(text) is None


# attempts

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

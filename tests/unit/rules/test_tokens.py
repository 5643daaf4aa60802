"""Tokens: of keys, and of one attempt in one home and one database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.rules.tokens import (
    is_attempt_token,
    key_token,
    make_attempt_token,
    read_attempt_token,
    secret_digest,
    token_digest,
    token_prefix,
)

# keys

SECRETS = st.binary(min_size=32, max_size=32)


@given(SECRETS)
def test_a_token_leads_to_the_digest_of_its_secret(secret):
    token = key_token(secret)
    assert token_digest(token) == secret_digest(secret)
    assert token.startswith(token_prefix(secret) + "_")
    assert secret.hex() not in secret_digest(secret)


@given(SECRETS, st.data())
def test_a_token_with_another_letter_is_none_or_another_one(secret, data):
    token = key_token(secret)
    at = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    changed = token[:at] + letter + token[at + 1 :]
    assert token_digest(changed) in ({secret_digest(secret)} if changed == token else {None})


@given(st.text(max_size=100))
def test_whatever_else_is_said_is_no_token(text):
    assert token_digest(text) is None


# attempts

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

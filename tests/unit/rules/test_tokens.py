"""A token carries its secret, and nothing that is not exactly one is taken for it."""

from hypothesis import given
from hypothesis import strategies as st

from rota.rules.tokens import key_token, secret_digest, token_digest, token_prefix

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

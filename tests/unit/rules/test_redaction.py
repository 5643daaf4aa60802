"""C8: a secret is found however it is written, and named instead."""

from __future__ import annotations

import base64
import json
import random
import re
import string
from urllib.parse import quote, quote_plus

import pytest

from rota.errors import Invalid
from rota.rules.redaction import Redactor, check_value, encoded_forms

SECRET = 'sk-ant-"Kä/st+rel\\0815 %&?~xyz'  # noqa: S105
PLAIN = "sk-ant-Kestrel-0815-abcdefghijk"
MARK = "[secret anthropic]"


def written(secret):
    data = secret.encode()
    yield "raw", secret
    yield "json", json.dumps(secret)
    yield "json, as it is", json.dumps(secret, ensure_ascii=False)
    yield "json in json", json.dumps(json.dumps({"key": secret}))
    yield "url", quote(secret, safe="")
    yield "url, small", re.sub("%..", lambda found: found[0].lower(), quote(secret))
    yield "form", quote_plus(secret)
    yield "hex", data.hex()
    for before in range(4):
        around = b"<" * before + data + b">>"
        yield f"base64 +{before}", base64.b64encode(around).decode()
        yield f"base64url +{before}", base64.urlsafe_b64encode(around).decode()
    yield "basic", base64.b64encode(b"user:" + data).decode()


@pytest.mark.parametrize("secret", [SECRET, PLAIN])
def test_every_form_is_found_in_the_middle_of_a_text(secret):
    redactor = Redactor({"anthropic": secret})
    for form, text in written(secret):
        told = redactor.redact_text(f"before {text} after")
        assert MARK in told, form
        assert told.startswith("before ") and told.endswith(" after"), form
        for hidden in encoded_forms(secret):
            assert hidden not in told, form


def test_what_is_no_secret_stays_as_it_is():
    redactor = Redactor({"anthropic": PLAIN})
    for text in ("", "sk-ant-", PLAIN[:-1], PLAIN[1:], "[secret anthropic]"):
        assert redactor.redact_text(text) == text


def test_without_secrets_nothing_is_touched():
    redactor = Redactor()
    text = "a" * 100
    data = {"a": [text]}
    assert not redactor.active
    assert redactor.redact_text(text) is text
    assert redactor.redact_json(data) is data


def test_data_is_looked_through_to_its_leaves_and_names():
    redactor = Redactor({"anthropic": PLAIN})
    found = redactor.redact_json({"a": [1, None, {PLAIN: (PLAIN, True)}]})
    assert found == {"a": [1, None, {MARK: (MARK, True)}]}


def test_json_stays_json():
    redactor = Redactor({"anthropic": SECRET})
    line = json.dumps({"type": "text", "text": f"the key is {SECRET}!"})
    assert json.loads(redactor.redact_text(line)) == {"type": "text", "text": f"the key is {MARK}!"}


def test_lines_of_a_long_secret_are_found_alone():
    body = ["-----BEGIN KEY-----", "MIIEvQIBADANBgkqhkiG9w0", "Qf7aHGeUbkGQmcZ3Ho9Kz2c", "--"]
    redactor = Redactor({"pem": "\n".join(body)})
    assert redactor.redact_text("\n".join(body)) == "[secret pem]"
    assert redactor.redact_text(f"> {body[1]}") == "> [secret pem]"
    assert redactor.redact_text("--") == "--"


def test_of_two_secrets_the_longer_one_wins():
    redactor = Redactor({"short": "abcdefgh", "long": "abcdefghijkl"})
    assert redactor.redact_text("abcdefghijkl abcdefghi") == "[secret long] [secret short]i"


def test_fifty_secrets_are_all_found_among_noise():
    chance = random.Random(7)
    letters = string.ascii_letters + string.digits + '+/-_=%&"\\ äß'
    secrets = {f"s{n}": "".join(chance.choices(letters, k=20 + n)) for n in range(50)}
    redactor = Redactor(secrets)
    for name, value in secrets.items():
        noise = "".join(chance.choices(letters, k=50))
        assert f"[secret {name}]" in redactor.redact_text(f"{noise} {value} {noise}")
        encoded = base64.b64encode(f"{noise}{value.strip()}{noise}".encode()).decode()
        assert f"[secret {name}]" in redactor.redact_text(encoded)


@pytest.mark.parametrize("value", ["", "1234567", "        ", "with\0nul-inside", "x" * 70_000])
def test_what_cannot_be_redacted_is_refused_and_not_repeated(value):
    with pytest.raises(Invalid) as told:
        check_value(value)
    assert "secret" in str(told.value)
    assert not value.strip() or value not in str(told.value)

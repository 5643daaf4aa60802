"""Whatever secrets are known and however they are written, nothing of one stays beside its mark."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.rules.redaction import MIN_SECRET, Redactor

WRITTEN = {
    "raw": str,
    "repr": lambda value: _inside(repr(value), "'\""),
    "repr of more": lambda value: repr(f"\"'{value}")[4:-1],
    "ascii": lambda value: _inside(ascii(value), "'\""),
    "bytes": lambda value: _inside(repr(value.encode("utf-8", "surrogatepass"))[1:], "'\""),
    "json": lambda value: json.dumps(value)[1:-1],
    "json as it is": lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
    "json of repr": lambda value: json.dumps(_inside(repr(value), "'\""))[1:-1],
    "json in json": lambda value: json.dumps(json.dumps(value)[1:-1])[1:-1],
    "url": lambda value: quote(value, safe="", errors="surrogatepass"),
    "hex": lambda value: value.encode("utf-8", "surrogatepass").hex(),
}
ALONE = re.compile(r"(?:\[secret s\d+\])+")

letters = st.sampled_from("ab01-_+/=\\\"'%&\n\t\x07\x9b\u202eé€😀[]")
values = (
    st.one_of(st.text(letters, min_size=MIN_SECRET, max_size=40), st.text(min_size=MIN_SECRET, max_size=99))
    .filter(lambda value: value.strip() and "\0" not in value)
)  # fmt: skip
forms = st.sampled_from(sorted(WRITTEN))


def _inside(written: str, marks: str) -> str:
    return written.removeprefix(written[0])[:-1] if written[0] in marks else written


@settings(deadline=None)
@given(
    st.lists(values, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0), forms), min_size=1, max_size=6),
)
@example(["aaaaaaaa", "aaaaaaaab"], [(0, "raw"), (1, "raw")])
@example(["abcdefgh", "defghijklmn"], [(0, "raw"), (1, "raw")])
def test_texts_that_secrets_are_written_in_are_nothing_but_marks(secrets, parts):
    redactor = Redactor({f"s{n}": value for n, value in enumerate(secrets)})
    text = "".join(WRITTEN[form](secrets[n % len(secrets)]) for n, form in parts)
    assert ALONE.fullmatch(redactor.redact_text(text))
    assert not redactor.contains_secret(redactor.redact_text(text))


@settings(deadline=None)
@given(values, values, forms, st.text(max_size=30), st.text(max_size=30))
def test_two_secrets_that_overlap_are_both_gone(first, second, form, before, behind):
    redactor = Redactor({"s0": first + second[:MIN_SECRET], "s1": second})
    text = WRITTEN[form](first + second)
    told = redactor.redact_text(f"{before}{text}{behind}")
    for value in (first + second[:MIN_SECRET], second):
        assert value not in told
    if form == "raw":
        assert len(told) <= len(before) + len(behind) + 2 * len("[secret s0]")


@settings(deadline=None)
@given(values, st.text(max_size=50), st.text(max_size=50))
def test_what_stands_around_a_secret_stays(value, before, behind):
    redactor = Redactor({"s0": value})
    if redactor.contains_secret(before) or redactor.contains_secret(behind):
        return
    around = value[0] not in before and value[-1] not in behind
    told = redactor.redact_text(f"{before}‹{value}›{behind}")
    if around and not {"‹", "›"} & set(value):
        assert told == f"{before}‹[secret s0]›{behind}"


@settings(deadline=None)
@given(values)
def test_base64_of_a_secret_is_gone_at_each_alignment(value):
    redactor = Redactor({"s0": value})
    data = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        told = redactor.redact_text(base64.b64encode(b"<" * before + data).decode())
        assert "[secret s0]" in told
        assert len(told) <= len("[secret s0]") + 8


def test_a_secret_that_repeats_itself_costs_no_more_than_its_bound():
    redactor = Redactor({"s0": "a" * 1000, "s1": "b" * 20})
    told = redactor.redact_text("a" * 64 * 1024 + "b" * 20)
    assert told.count("a") < 1000
    assert told.endswith("[secret s1]")

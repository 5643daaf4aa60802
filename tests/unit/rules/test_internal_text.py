"""Internal text is for the record: nothing of it reaches people, however it comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.rules.notifications import InternalTextFilter, public_result, public_text

CASES = {
    "Hello.": "Hello.",
    "a <internal>secret</internal> b": "a  b",
    "<internal>secret</internal>": "",
    "a\n\n<internal>secret</internal>\n\nb": "a\n\nb",
    "<internal>one<internal>two</internal>three</internal>four": "four",
    "said <internal>and never closed": "said",
    "stray</internal> end": "stray end",
    "<INTERNAL>secret</Internal>public": "public",
    "<internal note='x'>secret</internal >public": "public",
    "< internal >secret< / internal >public": "public",
    "a < b and <internals>c</internals>": "a < b and <internals>c</internals>",
    "half a tag <internal": "half a tag",
    "half an end <internal>x</inter": "half an end",
    "<intern": "<intern",
}


@pytest.mark.parametrize(("text", "public"), CASES.items())
def test_what_is_internal_is_left_out(text, public):
    assert public_text(text) == public


@pytest.mark.parametrize(("text", "public"), CASES.items())
def test_it_does_not_matter_where_a_text_is_cut(text, public):
    for size in range(1, len(text) + 1):
        sieve = InternalTextFilter()
        parts = [sieve.feed(text[at : at + size]) for at in range(0, len(text), size)]
        assert " ".join("".join([*parts, sieve.end()]).split()) == " ".join(public.split())


PARTS = st.lists(
    st.sampled_from(["<internal>", "</internal>", "<internal ", "</int", ">", "<", "public "]),
    max_size=12,
)


@given(PARTS, st.integers(min_value=1, max_value=9))
def test_a_secret_that_is_opened_and_not_closed_never_gets_out(parts, size):
    text = "".join([*parts, "<internal>", "kestrel"])
    assert "kestrel" not in public_text(text)
    sieve = InternalTextFilter()
    shown = [sieve.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "kestrel" not in "".join([*shown, sieve.end()])


def test_a_tag_that_does_not_end_is_taken_for_one_and_costs_no_memory():
    sieve = InternalTextFilter()
    assert [sieve.feed("<internal " + "x" * 700), sieve.feed("x" * 700)] == ["", ""]
    assert sieve._held == ""
    assert sieve.feed("> kestrel </internal>public") + sieve.end() == "public"
    assert public_text("<" + " " * 200_000 + "internal>") != ""


def test_results_are_shown_without_it_and_one_that_is_nothing_else_is_none():
    assert public_result(None) is None
    assert public_result('{"paid": 3}') == '{"paid": 3}'
    assert public_result(json.dumps("<internal>x</internal>")) is None
    data = {"text": "a<internal>x</internal>", "list": ["<internal>y</internal>", 1, None]}
    assert json.loads(public_result(json.dumps(data))) == {"text": "a", "list": ["", 1, None]}
    deep = "[" * 700 + json.dumps("<internal>x</internal>") + "]" * 700
    assert "x" not in (public_result(deep) or "")

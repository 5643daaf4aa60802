"""Results as words and as data."""

from __future__ import annotations

import pytest

from rota.rules.checks import strip_fence, text_of, value_of


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ("  ```\n1\n  ```\n\n", "1"),
        ("```json\n\n\n1\n\n```", "\n\n1\n"),
        ("```\n```json\n1\n```\n```", "```json\n1\n```"),
        ("``` json \n1\n```", "1"),
    ],
)
def test_a_block_of_code_is_what_stands_between_its_fences(text, inner):
    assert strip_fence(text) == inner


@pytest.mark.parametrize(
    "text",
    ["1", "```json 1```", "see:\n```\n1\n```", "```\n1\n``` so", "```\n1", "```two words\n1\n```"],
)
def test_any_other_text_is_left_as_it_is(text):
    assert strip_fence(text) == text


def test_a_result_is_read_as_words_and_as_data():
    assert (text_of(None), text_of('"a"'), text_of("[1]")) == ("", "a", "[1]")
    assert (value_of(None), value_of('"[1]"'), value_of("[1]")) == (None, [1], [1])
    for text in ('"no JSON"', '"%s"' % ("[" * 100_000)):
        with pytest.raises(ValueError):
            value_of(text)

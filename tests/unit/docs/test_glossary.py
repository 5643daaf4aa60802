"""The glossary is short, and its words are the words of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORDS = re.findall(r"^\| ([^|`]+) \| ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)[
    1:
]
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "src" / "rota").rglob("*.py")))
MAX_ARGUMENTS = 50


def test_the_glossary_has_at_most_fifty_words_each_once():
    assert 0 < len(WORDS) <= MAX_ARGUMENTS
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_the_glossary_is_a_word_of_the_code(word):
    spelt = "[ _-]?".join(re.escape(part) for part in word.split())
    assert re.search(spelt, SOURCE, re.IGNORECASE)

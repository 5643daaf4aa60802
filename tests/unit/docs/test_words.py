"""The pages use the words of the glossary, and not those that they replaced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RETIRED = (
    "ad hoc",
    "behind walls",
    "caretaker",
    "crew",
    "deed",
    "desk",
    "door",
    "errand",
    "is told",
    "are told",
    "hears",
    "kept work",
    "lobby",
    "nobody knows",
    "outlet",
    "permit",
    "postman",
    "saying",
    "verdict",
    "walled",
    "whoever",
    "yard",
)
"""Words of an earlier vocabulary; the glossary has the words that replaced them."""
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"^`python -m rota\.cli\.reference` generates this page", re.MULTILINE)
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_no_retired_word(page):
    text = page.read_text()
    if GENERATED.search(text) or page.name == "CHANGELOG.md":
        return
    words = re.sub(r"\s+", " ", CODE.sub(" ", text))
    found = [word for word in RETIRED if re.search(rf"\b{word}s?\b", words, re.IGNORECASE)]
    assert found == []

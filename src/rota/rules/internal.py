"""Internal text: what an agent writes between `<internal>` and `</internal>` is for the record.

Nothing of it reaches people. What is opened and never closed is internal to its end, and a tag may
come in pieces: whatever is not certain to be public is held back.
"""

from __future__ import annotations

import json
import re
from typing import Any

_OPENED = r"<[ \t]{0,4}(/?)[ \t]{0,4}"
_TAG = re.compile(rf"{_OPENED}internal\b[^<>]*>", re.IGNORECASE)
_MARK = re.compile(rf"{_OPENED}internal\b", re.IGNORECASE)
_BEGUN = re.compile(
    rf"{_OPENED}(?:internal\b[^<>]*|{'(?:'.join('interna')}{')?' * 6})?\Z", re.IGNORECASE
)
MOST_HELD = 1_000
"""How much is held back at most because it may become a tag."""


class Sieve:
    """Lets the public part of a text through that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what has become public with a piece."""
        text, self._held = self._held + piece, ""
        public: list[str] = []
        at = 0
        for tag in _TAG.finditer(text):
            self._let_through(text[at : tag.start()], public)
            self._depth = max(0, self._depth - 1) if tag[1] else self._depth + 1
            at = tag.end()
        rest = text[at:]
        begun = _BEGUN.search(rest)
        if begun is not None:
            self._held = rest[begun.start() :]
            rest = rest[: begun.start()]
        self._let_through(rest, public)
        if begun is not None and len(self._held) > MOST_HELD:  # a tag that does not end is one
            self._held = ""
            self._depth += 0 if begun[1] else 1
        return "".join(public)

    def end(self) -> str:
        """Return what was held back and turns out to be no tag; half a tag is none of people's."""
        held, self._held = self._held, ""
        public: list[str] = []
        if _MARK.match(held) is None:
            self._let_through(held, public)
        return "".join(public)

    def _let_through(self, text: str, public: list[str]) -> None:
        if self._depth == 0:
            public.append(text)


def public_text(text: str) -> str:
    """Return a text without what is internal, and without the gap that it leaves."""
    if _MARK.search(text) is None:
        return text
    sieve = Sieve()
    public = sieve.feed(text) + sieve.end()
    return re.sub(r"\n{3,}", "\n\n", public).strip()


def public_result(result: str | None) -> str | None:
    """Return a result, JSON text, without what is internal in any of its texts.

    None if nothing is left of a text.
    """
    if result is None or _MARK.search(result) is None:
        return result
    try:
        found = _public(json.loads(result))
    except RecursionError:
        return None  # what cannot be looked through is not shown
    return None if found == "" else json.dumps(found, ensure_ascii=False)


def _public(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, list):
        return [_public(one) for one in value]
    if isinstance(value, dict):
        return {name: _public(one) for name, one in value.items()}
    return value

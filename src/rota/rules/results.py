"""Results: what an attempt left as its answer, as words and as data."""

from __future__ import annotations

import json

FENCE = "```"


def text_of(result: str | None) -> str:
    """Return a result as words: a text as it is, data as JSON."""
    if result is None:
        return ""
    value = json.loads(result)
    return value if isinstance(value, str) else result


def value_of(result: str | None) -> object:
    """Return a result as data; a text that is JSON, also between fences, is read. ValueError."""
    value = None if result is None else json.loads(result)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(unfenced(value))
    except RecursionError:
        raise ValueError(value[:80]) from None


def unfenced(text: str) -> str:
    """Return what stands between the fences of a text that is one block of code; else the text.

    It takes one pass: an agent's answer is as long as it likes.
    """
    head, _, rest = text.strip().partition("\n")
    inner, _, last = rest.rpartition("\n")
    language = head.removeprefix(FENCE).strip()
    opened = head.startswith(FENCE) and (not language or language.isidentifier())
    return inner if opened and last.strip() == FENCE else text

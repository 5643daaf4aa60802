"""Speaking: whether a result is for people, and when the agent wants to look again.

A result is silent if it says so: `"silent": true` in a line of Rota's or in an object, or the word
`NO_ACTION:` at its very beginning. The words of others that an agent repeats further down silence
nothing, and one that goes on with a line `ACTION:` speaks after all.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from rota.agents.kit.rota_lines import closing_result
from rota.agents.kit.text import LONGEST_NAME, encode_text
from rota.model.outcomes import Succeeded
from rota.model.said import Result

QUIETLY = "NO_ACTION:"
ALOUD = re.compile(r"^ACTION:[ \t]*", re.MULTILINE)


class _Words(NamedTuple):
    text: str
    silent: bool = False


def spoken(result: Result) -> Succeeded:
    """Return the success that a result is."""
    told = closing_result(result)
    if told.data is not None:
        aside = _aside(told.data)
        silent = told.silent or aside.get("silent") is True
        again = told.next_check or _short(aside.get("next_check"))
        return Succeeded(result=told.data, silent=silent, next_check=again)
    words = _heeded(told.text)
    kept = encode_text(words.text) if words.text else None
    silent = told.silent or words.silent
    return Succeeded(result=kept, silent=silent, next_check=told.next_check)


def _heeded(text: str) -> _Words:
    """Return a text without the word that says whether it is for people."""
    start = text.lstrip()
    quietly = start.startswith(QUIETLY)
    if ALOUD.match(start) or (quietly and ALOUD.search(start)):
        return _Words(ALOUD.sub("", start, count=1))
    if quietly:
        return _Words(start.removeprefix(QUIETLY).strip(), silent=True)
    return _Words(text)


def _aside(data: str) -> dict[str, Any]:
    found = json.loads(data)
    return found if isinstance(found, dict) else {}


def _short(words: object) -> str | None:
    return words[:LONGEST_NAME] if isinstance(words, str) and words else None

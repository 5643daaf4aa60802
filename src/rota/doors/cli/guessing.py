"""What somebody may have meant by a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

MOST_GUESSES = 3


def advice_for(name: str, space: str, known: Iterable[dict[str, Any]]) -> str | None:
    """Return what to say about a task that is not in a space, given all that may be seen."""
    tasks = list(known)
    elsewhere = sorted(task["space"] for task in tasks if task["name"] == name)
    if elsewhere:
        return f"there is one in {' and in '.join(elsewhere)}: say which with --space"
    own = [task["name"] for task in tasks if task["space"] == space]
    lower = name.lower()
    close = [one for one in own if one.lower().startswith(lower)] if name else []
    close = close or get_close_matches(name, own, MOST_GUESSES)
    if not close:
        return None
    return f"did you mean {' or '.join(close[:MOST_GUESSES])}?"

"""Addressing: whether something that is said in a thread asks for an answer."""

from __future__ import annotations

import re


def asks(trigger: str | None, text: str) -> bool:
    """Whether a text has a thread's trigger in it as a word of its own, in whatever case.

    Without a trigger everything that is said asks.
    """
    if trigger is None:
        return True
    return re.search(rf"(?<!\w){re.escape(trigger)}(?!\w)", text, re.IGNORECASE) is not None

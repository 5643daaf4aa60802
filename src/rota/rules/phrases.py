"""Phrases: an answer that asks a person in words, for tasks that want it read so.

An agent that knows Rota asks by a line or a tool, and nothing is guessed. A task may say that its
agent asks in phrases: then an answer that holds one of them waits for a person. What others said is
no question: code, cited lines and everything between quotation marks is not looked at.

A block between two marks, `[ZUBOT_CONTROL_REQUEST]`, asks for the approval of what stands in it;
some of that Rota does itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from rota.errors import Invalid
from rota.model.instants import from_micros
from rota.model.outcomes import Asked
from rota.rules.approvals import DECISIONS, DENY, action_text
from rota.rules.control import doer_of, expiry_in
from rota.rules.results import unfenced

SPEC = "phrases"
"""What a task's record says if its agent asks in phrases."""
PHRASES = (
    "I need your confirmation",
    "Please confirm",
    'Reply "yes"',
    "Reply yes or no",
    "Do you want me to proceed",
    "Should I proceed",
    "Can you confirm",
)
MARK = "ZUBOT_CONTROL_REQUEST"
MOST_BLOCKS = 20
LONGEST = 16 * 1024
"""How many characters of an answer are shown with its question."""
USUAL_WAIT, LONGEST_WAIT = timedelta(days=1), timedelta(days=30)
SIGNS = "\"'\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_ASKS = re.compile(
    r"\b(?:I need your confirmation|please confirm|reply .yes.|reply yes or no"
    r"|do you want me to proceed|should I proceed|can you confirm)(?!\w)",
    re.IGNORECASE,
)
_REPLY = re.compile(rf"\b(reply )[{SIGNS}](yes)[{SIGNS}]", re.IGNORECASE)
_CODE = re.compile(
    r"^[ \t]*(```+|~~~+).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`|^[ \t]*>[^\n]*", re.MULTILINE | re.DOTALL
)
_WITHIN = r"(?:(?!\n[ \t]*\n)[^{}])*"
_QUOTED = re.compile(
    "|".join(
        [
            f'"{_WITHIN.format(chr(34), "")}"',
            *(
                f"{first}{_WITHIN.format(first, last)}{last}"
                for first, last in (
                    "“”",
                    "„“",
                    "«»",
                    "»«",
                    "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}",
                )
            ),
            r"(?<!\w)'[^'\n]+'(?!\w)",
        ]
    )
)
_BLOCK = re.compile(rf"\[{MARK}\](.*?)\[/?{MARK}\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Who asks: an attempt, and the actions it has asked for before, by their ids."""

    run: int
    attempt: int
    task: str
    space: str
    asked: Collection[str] = ()


def question_in(answer: str, asker: Asker, now: int) -> Asked | None:
    """Return what an answer asks: for an approval before anything else, or in a phrase."""
    return next(_approvals(answer, asker, now), None) or _in_words(answer)


def own_words(text: str) -> str:
    """Return a text of the same length in which everything is blank that others said."""
    return _QUOTED.sub(_blank, _REPLY.sub(r"\1.\2.", _CODE.sub(_blank, text)))


def action_ids(actions: Collection[str | None]) -> set[str]:
    """Return the ids in actions as they were shown."""
    found = (json.loads(action).get("action") for action in actions if action)
    return {one["action_id"] for one in found if isinstance(one, dict) and "action_id" in one}


def _blank(found: re.Match[str]) -> str:
    return "\n".join(" " * len(line) for line in found[0].split("\n"))


def _emptied(block: re.Match[str]) -> str:
    start, end = block.start(1) - block.start(), block.end(1) - block.start()
    return f"{block[0][:start]}{' ' * (end - start)}{block[0][end:]}"


def _in_words(answer: str) -> Asked | None:
    # A block that asks for nothing new is not a question either.
    text = _BLOCK.sub(_blank, answer)
    found = _ASKS.search(own_words(text))
    if found is None:
        return None
    start = text.rfind("\n\n", 0, found.start()) + 1
    end = text.find("\n\n", found.end())
    paragraph = text[start : len(text) if end < 0 else end].strip()
    context = "" if paragraph == text.strip() else text.strip()[-LONGEST:]
    return Asked(question=paragraph[:LONGEST], context=context)


def _approvals(answer: str, asker: Asker, now: int) -> Iterator[Asked]:
    shown = own_words(_BLOCK.sub(_emptied, answer))
    ids = set(asker.asked)
    for block in islice(_BLOCK.finditer(answer), MOST_BLOCKS):
        said_by_others = shown[block.start()] == " "
        request = None if said_by_others else _request(block[1])
        if request is None or request["action_id"] in ids:
            continue
        ids.add(request["action_id"])
        asked = _approval(request, answer, asker, now)
        if asked is not None:
            yield asked


def _request(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(unfenced(text))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("action"), str):
        return None
    name = found.get("action_id")
    return found if isinstance(name, str) and name else None


def _approval(request: dict[str, Any], answer: str, asker: Asker, now: int) -> Asked | None:
    wait = _wait(expiry_in(request), now)
    if wait is None:
        return None
    try:
        shown = action_text(
            request,
            run=asker.run,
            attempt=asker.attempt,
            task=asker.task,
            space=asker.space,
            by=doer_of(request["action"]),
        )
    except Invalid:
        return None
    title = request.get("title")
    question = title if isinstance(title, str) and title.strip() else f"{request['action']}?"
    return Asked(
        question=question[:LONGEST],
        context=_BLOCK.sub("", answer).strip()[-LONGEST:],
        options=DECISIONS,
        expires_in=wait,
        default=DENY,
        action=shown,
    )


def _wait(until: datetime | None, now: int) -> timedelta | None:
    """Return how long a request may wait, None if it has expired already."""
    if until is None:
        return USUAL_WAIT
    left = until - from_micros(now)
    return None if left <= timedelta() else min(LONGEST_WAIT, left)

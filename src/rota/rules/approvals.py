"""Approvals of exact bytes, control requests, and questions found in text.

What is shown is one line of JSON with sorted keys. Every character that a terminal or a page would
not show as itself (controls, directions, joiners, marks on others, odd spaces, lone surrogates) is
written as an escape, so nothing can hide or change places. The hash is taken of exactly that line.

Who does an action is part of what is shown and hashed. No agent can say it: it stands beside the
action, where only Rota writes. What is asked for in any other way is done by whoever asks.

An agent that knows Rota asks by a line or a tool, and nothing is guessed. A task may say that its
agent asks in phrases: then an answer that holds one of them waits for a person. What others said is
no question: code, cited lines and everything between quotation marks is not looked at.

A block between two marks, `[ZUBOT_CONTROL_REQUEST]`, asks for the approval of what stands in it;
some of that Rota does itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple

from rota.errors import Conflict, Invalid
from rota.model.attempts import WaitingForAnswer
from rota.model.instants import from_micros, to_micros
from rota.model.runs import Question
from rota.rules.checks import unfenced

APPROVAL = "approval"
APPROVE, DENY = "approve", "deny"
DECISIONS = (APPROVE, DENY)
MAX_ACTION = 16 * 1024
"""How many bytes an action may have; a person must be able to read all of it."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Me"})
_BLANK = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and signs that are drawn as nothing."""


def action_text(
    action: object, *, run: int, attempt: int, task: str, space: str, by: str | None = None
) -> str:
    """Return an action as it is shown and hashed, with who asks for it; Invalid if too long.

    Run and attempt are part of it: the same action asked for again is another question. So is who
    does it, if that is not the program that asks.
    """
    record = {"action": action, "attempt": attempt, "run": run, "space": space, "task": task}
    if by is not None:
        record["by"] = by
    try:
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as fault:
        raise Invalid("action", action, f"must be plain JSON values ({fault})") from None
    # Nothing becomes shorter by its escapes: what is too long already is not looked through.
    if len(text) <= MAX_ACTION:
        text = "".join(_escaped(c) if _is_hidden(c) else c for c in text)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_ACTION:
        advice = f"has {size} bytes, at most {MAX_ACTION} can be approved"
        raise Invalid("action", text, advice)
    return text


def _is_hidden(character: str) -> bool:
    if character == " ":
        return False
    return character in _BLANK or unicodedata.category(character) in _UNSEEN


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"


def action_digest(text: str) -> str:
    """Return the SHA-256 of an action as it is shown."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_decision(question: Question, text: str, seen: str | None, now: int) -> None:
    """Refuse an answer to what has run out, and a decision about anything but what was shown."""
    if now >= to_micros(question.expires_at):
        message = f"question {question.id} has run out: its answer counts no more"
        raise Conflict(message)
    if question.kind != APPROVAL:
        if seen is not None:
            raise Invalid("action_hash", seen, f"question {question.id} shows no action: omit it")
        return
    if text not in DECISIONS:
        raise Invalid("answer", text, f"choose one of: {', '.join(DECISIONS)}")
    if seen is None:
        advice = f"give the hash of the action you were shown in question {question.id}"
        raise Invalid("action_hash", "", advice)
    if seen != question.digest or action_digest(question.action or "") != question.digest:
        message = (
            f"the hash is not that of the action in question {question.id}: look at it again, "
            "and decide about what it shows now"
        )
        raise Conflict(message)


def question_text(question: Question) -> str:
    """Return what was asked, as whoever goes on is told; of an approval the action, too."""
    if question.kind == APPROVAL:
        return f"{question.question}\nThe action: {question.action}"
    return question.question


def decision(question: Question) -> str:
    """Return an answer as programs are told it: a decision names the hash it is bound to.

    What came of an action that Rota did itself stands behind it.
    """
    if question.kind == APPROVAL:
        told = f"{question.answer} sha256:{question.digest}"
        return told if question.outcome is None else f"{told} {question.outcome}"
    return question.answer or ""


ROTA = "rota"
"""Who does it."""


class ControlAction(StrEnum):
    """What Rota can be asked to do."""

    ENQUEUE_TASK = "enqueue_task"
    ENQUEUE_AGENTIC_TASK = "enqueue_agentic_task"
    KILL_TASK_RUN = "kill_task_run"
    QUERY_CENTRAL_DB = "query_central_db"


_ACTIONS: frozenset[str] = frozenset(ControlAction)


class ControlRequest(NamedTuple):
    """An action of Rota's own, what it is about, and until when it may be done."""

    action: ControlAction
    payload: object
    expires_at: datetime | None


def performer_of(action: str) -> str | None:
    """Return who does an action that is asked for by name, if not whoever asks."""
    return ROTA if action in _ACTIONS else None


def is_control(action: str | None) -> bool:
    """Tell whether an action, as it was shown, is one that Rota does itself."""
    try:
        shown = json.loads(action or "null")
    except ValueError:
        return False
    return isinstance(shown, dict) and shown.get("by") == ROTA


def control_of(question: Question) -> ControlRequest | None:
    """Return what Rota does itself if a question is approved; None if it does nothing."""
    if question.kind != APPROVAL or question.action is None or not is_control(question.action):
        return None  # whoever asked does it
    request = json.loads(question.action)["action"]
    return ControlRequest(
        ControlAction(request["action"]), request.get("payload"), expiry_in(request)
    )


def expiry_in(request: Mapping[str, Any]) -> datetime | None:
    """Return until when a request may be granted, if it says so; without a zone it means UTC."""
    try:
        said = datetime.fromisoformat(str(request["expires_at"]))
        return said.replace(tzinfo=UTC) if said.tzinfo is None else said.astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def check_in_time(control: ControlRequest, question: Question, now: int) -> None:
    """Refuse what has run out by its own words, whatever its question says."""
    if control.expires_at is not None and from_micros(now) >= control.expires_at:
        message = f"the action in question {question.id} has run out: it is done no more"
        raise Conflict(message)


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
MAX_BLOCKS = 20
LONGEST = 16 * 1024
"""How many characters of an answer are shown with its question."""
DEFAULT_WAIT, LONGEST_WAIT = timedelta(days=1), timedelta(days=30)
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
class QuestionAuthor:
    """Who asks: an attempt, and the actions it has asked for before, by their ids."""

    run: int
    attempt: int
    task: str
    space: str
    asked: Collection[str] = ()


def question_in(answer: str, asker: QuestionAuthor, now: int) -> WaitingForAnswer | None:
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


def _in_words(answer: str) -> WaitingForAnswer | None:
    # A block that asks for nothing new is not a question either.
    text = _BLOCK.sub(_blank, answer)
    found = _ASKS.search(own_words(text))
    if found is None:
        return None
    start = text.rfind("\n\n", 0, found.start()) + 1
    end = text.find("\n\n", found.end())
    paragraph = text[start : len(text) if end < 0 else end].strip()
    context = "" if paragraph == text.strip() else text.strip()[-LONGEST:]
    return WaitingForAnswer(question=paragraph[:LONGEST], context=context)


def _approvals(answer: str, asker: QuestionAuthor, now: int) -> Iterator[WaitingForAnswer]:
    shown = own_words(_BLOCK.sub(_emptied, answer))
    ids = set(asker.asked)
    for block in islice(_BLOCK.finditer(answer), MAX_BLOCKS):
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


def _approval(
    request: dict[str, Any], answer: str, asker: QuestionAuthor, now: int
) -> WaitingForAnswer | None:
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
            by=performer_of(request["action"]),
        )
    except Invalid:
        return None
    title = request.get("title")
    question = title if isinstance(title, str) and title.strip() else f"{request['action']}?"
    return WaitingForAnswer(
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
        return DEFAULT_WAIT
    left = until - from_micros(now)
    return None if left <= timedelta() else min(LONGEST_WAIT, left)

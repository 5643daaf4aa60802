"""Approvals of exact bytes, control actions, and questions found in the text of an answer.

An action is shown as one line of JSON with sorted keys, and the hash is taken of exactly that line.
Every character that a terminal or a page would not show as itself (control characters, direction
marks, joiners, combining marks, unusual spaces, lone surrogates) is escaped, so that no part of an
action can be hidden or reordered. Who performs the action is part of the line, outside the part
that an agent writes. Unless it is one of Rota's control actions, the program that asks performs it.

Agents ask with a line of the protocol or a tool. If a task's spec allows it, an answer that
contains one of PHRASES is a question too, and a block between two marks `[ZUBOT_CONTROL_REQUEST]`
asks for approval of its content; Rota performs some of those actions. Text that the agent only
cites (code, quoted lines, text in quotation marks) is ignored.
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
from rota.rules.checks import strip_fence

APPROVAL = "approval"
APPROVE, DENY = "approve", "deny"
DECISIONS = (APPROVE, DENY)
MAX_ACTION = 16 * 1024
"""Bytes of an action; a person must be able to read all of it."""
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs", "Mn", "Me"})
_INVISIBLE_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Characters that are printed as blanks."""


def action_text(
    action: object, *, run: int, attempt: int, task: str, space: str, by: str | None = None
) -> str:
    """Return an action as it is shown and hashed; raise Invalid if it is too long.

    It includes the run and attempt, so that the same action requested again is another question,
    and in `by` who performs it, unless that is the program that asks.
    """
    record = {"action": action, "attempt": attempt, "run": run, "space": space, "task": task}
    if by is not None:
        record["by"] = by
    try:
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid("action", action, f"must be plain JSON values ({error})") from None
    # Escaping never shortens a text, so one that is too long already needs no scan.
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
    return character in _INVISIBLE_LETTERS or unicodedata.category(character) in _HIDDEN_CATEGORIES


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"


def action_digest(text: str) -> str:
    """Return the SHA-256 of an action as shown."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_decision(question: Question, text: str, seen: str | None, now: int) -> None:
    """Raise Conflict or Invalid for an expired question, or a decision on another action."""
    if now >= to_micros(question.expires_at):
        message = f"question {question.id} has expired and cannot be answered"
        raise Conflict(message)
    if question.kind != APPROVAL:
        if seen is not None:
            raise Invalid("action_hash", seen, f"question {question.id} has no action: omit it")
        return
    if text not in DECISIONS:
        raise Invalid("answer", text, f"choose one of: {', '.join(DECISIONS)}")
    if seen is None:
        advice = f"give the hash of the action shown with question {question.id}"
        raise Invalid("action_hash", "", advice)
    if seen != question.digest or action_digest(question.action or "") != question.digest:
        message = (
            f"the hash does not match the action of question {question.id}: look at the action "
            "again and decide on its current form"
        )
        raise Conflict(message)


def question_text(question: Question) -> str:
    """Return the text of a question for the program that continues, with its action, if any."""
    if question.kind == APPROVAL:
        return f"{question.question}\nThe action: {question.action}"
    return question.question


def decision(question: Question) -> str:
    """Return an answer for programs; a decision includes the hash of its action.

    If Rota performed the action itself, its result follows.
    """
    if question.kind == APPROVAL:
        text = f"{question.answer} sha256:{question.digest}"
        return text if question.outcome is None else f"{text} {question.outcome}"
    return question.answer or ""


ROTA = "rota"
"""The performer of control actions."""


class ControlAction(StrEnum):
    """Actions that Rota performs itself."""

    ENQUEUE_TASK = "enqueue_task"
    ENQUEUE_AGENTIC_TASK = "enqueue_agentic_task"
    KILL_TASK_RUN = "kill_task_run"
    QUERY_CENTRAL_DB = "query_central_db"


_ACTIONS: frozenset[str] = frozenset(ControlAction)


class ControlRequest(NamedTuple):
    """A request for a control action; valid until `expires_at`."""

    action: ControlAction
    payload: object
    expires_at: datetime | None


def performer_of(action: str) -> str | None:
    """Return who performs a named action, if not the program that asks."""
    return ROTA if action in _ACTIONS else None


def is_control(action: str | None) -> bool:
    """Whether Rota performs an action itself, by its shown text."""
    try:
        shown = json.loads(action or "null")
    except ValueError:
        return False
    return isinstance(shown, dict) and shown.get("by") == ROTA


def control_of(question: Question) -> ControlRequest | None:
    """Return what Rota performs if a question is approved; None if nothing."""
    if question.kind != APPROVAL or question.action is None or not is_control(question.action):
        return None  # the program that asked performs it
    request = json.loads(question.action)["action"]
    return ControlRequest(
        ControlAction(request["action"]), request.get("payload"), expiry_in(request)
    )


def expiry_in(request: Mapping[str, Any]) -> datetime | None:
    """Return when a request expires, if it says so; without a zone it means UTC."""
    try:
        expiry = datetime.fromisoformat(str(request["expires_at"]))
        return expiry.replace(tzinfo=UTC) if expiry.tzinfo is None else expiry.astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def check_in_time(control: ControlRequest, question: Question, now: int) -> None:
    """Raise Conflict if the request itself has expired, even if its question has not."""
    if control.expires_at is not None and from_micros(now) >= control.expires_at:
        message = f"the action of question {question.id} has expired and is not performed"
        raise Conflict(message)


SPEC = "phrases"
"""Field of a spec that turns on questions by phrase."""
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
MAX_SHOWN = 16 * 1024
"""Characters of an answer that are shown with its question."""
DEFAULT_WAIT, MAX_WAIT = timedelta(days=1), timedelta(days=30)
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
    """The attempt that asks, and the ids of the actions it has requested before."""

    run: int
    attempt: int
    task: str
    space: str
    asked: Collection[str] = ()


def question_in(answer: str, asker: QuestionAuthor, now: int) -> WaitingForAnswer | None:
    """Return the question in an answer: a request for approval first, else a phrase."""
    return next(_approvals(answer, asker, now), None) or _question_in_phrase(answer)


def blank_quoted_text(text: str) -> str:
    """Return a text of the same length with code, quoted lines and quotations blanked."""
    return _QUOTED.sub(_blank, _REPLY.sub(r"\1.\2.", _CODE.sub(_blank, text)))


def action_ids(actions: Collection[str | None]) -> set[str]:
    """Return the ids of actions from their shown texts."""
    found = (json.loads(action).get("action") for action in actions if action)
    return {one["action_id"] for one in found if isinstance(one, dict) and "action_id" in one}


def _blank(found: re.Match[str]) -> str:
    return "\n".join(" " * len(line) for line in found[0].split("\n"))


def _blank_block(block: re.Match[str]) -> str:
    start, end = block.start(1) - block.start(), block.end(1) - block.start()
    return f"{block[0][:start]}{' ' * (end - start)}{block[0][end:]}"


def _question_in_phrase(answer: str) -> WaitingForAnswer | None:
    # A block that repeats a request is not a question either.
    text = _BLOCK.sub(_blank, answer)
    found = _ASKS.search(blank_quoted_text(text))
    if found is None:
        return None
    start = text.rfind("\n\n", 0, found.start()) + 1
    end = text.find("\n\n", found.end())
    paragraph = text[start : len(text) if end < 0 else end].strip()
    context = "" if paragraph == text.strip() else text.strip()[-MAX_SHOWN:]
    return WaitingForAnswer(question=paragraph[:MAX_SHOWN], context=context)


def _approvals(answer: str, asker: QuestionAuthor, now: int) -> Iterator[WaitingForAnswer]:
    shown = blank_quoted_text(_BLOCK.sub(_blank_block, answer))
    ids = set(asker.asked)
    for block in islice(_BLOCK.finditer(answer), MAX_BLOCKS):
        cited = shown[block.start()] == " "
        request = None if cited else _request(block[1])
        if request is None or request["action_id"] in ids:
            continue
        ids.add(request["action_id"])
        asked = _approval(request, answer, asker, now)
        if asked is not None:
            yield asked


def _request(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(strip_fence(text))
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
        question=question[:MAX_SHOWN],
        context=_BLOCK.sub("", answer).strip()[-MAX_SHOWN:],
        options=DECISIONS,
        expires_in=wait,
        default=DENY,
        action=shown,
    )


def _wait(until: datetime | None, now: int) -> timedelta | None:
    """Return how long a request may wait; None if it has expired."""
    if until is None:
        return DEFAULT_WAIT
    left = until - from_micros(now)
    return None if left <= timedelta() else min(MAX_WAIT, left)

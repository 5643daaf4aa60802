"""Approvals: the exact bytes a person is shown, and whether a decision is about them.

What is shown is one line of JSON with sorted keys. Every character that a terminal or a page would
not show as itself (controls, directions, joiners, marks on others, odd spaces, lone surrogates) is
written as an escape, so nothing can hide or change places. The hash is taken of exactly that line.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata

from rota.errors import Conflict, Invalid
from rota.model.instants import to_micros
from rota.model.runs import Question

APPROVAL = "approval"
APPROVE, DENY = "approve", "deny"
DECISIONS = (APPROVE, DENY)
LONGEST_ACTION = 16 * 1024
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
    if len(text) <= LONGEST_ACTION:
        text = "".join(_escaped(c) if _is_hidden(c) else c for c in text)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST_ACTION:
        advice = f"has {size} bytes, at most {LONGEST_ACTION} can be approved"
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


def asked_words(question: Question) -> str:
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

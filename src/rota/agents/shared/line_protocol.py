"""Rota's JSON lines, which any program may write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.agents.shared.diagnosis import classify, classify_own, instant
from rota.agents.shared.stream import (
    MAX_NAME,
    MAX_TEXT,
    Json,
    count,
    detail,
    dollars,
    inside,
    number,
    one_line,
    parse,
    percent,
    pieces,
    string,
    words,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentMessageAccepted,
    AgentProgress,
    AgentQuestion,
    AgentSessionStarted,
    AgentText,
    AgentToolCall,
    AgentUsage,
    Said,
)
from rota.model.attempts import MAX_RESULT_BYTES
from rota.model.json import encode

TELLABLE = frozenset(kind.value for kind in AgentErrorKind) - {AgentErrorKind.CANCELLED.value}
"""What a program may say of itself; only Rota says that somebody stopped it."""
RESULT_WORDS = frozenset({"rota", "text", "data", "silent", "next_check"})
NOTHING_NEW = AgentProgress()
FIGURES = frozenset({"input_tokens", "output_tokens", "cached_tokens", "cost_usd"})
USAGE_WORDS = FIGURES | {"rota", "model"}
NO_QUESTION = "a question needs a text"
MAX_OPTIONS = 20
MAX_OPTION = 200
MIN_WAIT, MAX_WAIT = 60.0, 30 * 86_400.0
"""For how many seconds a question may be open."""


def said(record: Json, *, has_provider: bool = True) -> Sequence[Said] | None:
    """Return what a line of Rota's says; None if it is none, or lacks what its kind needs.

    A question or a result that cannot be made out is a fault besides: it must not go unnoticed.
    """
    told: Sequence[Said] | None = None
    match record.get("rota"):
        case "text" if isinstance(record.get("text"), str):
            told = [AgentText(text=piece) for piece in pieces(string(record, "text"))]
        case "progress" if (progress := _progress(record)) != NOTHING_NEW:
            told = [progress]
        case "tool" if name := string(record, "name", most=MAX_NAME):
            told = [AgentToolCall(name=name, summary=one_line(string(record, "summary")))]
        case "usage" if record.keys() & FIGURES:
            told = [_usage(record)]
        case "session" if name := string(record, "id", most=MAX_NAME):
            told = [AgentSessionStarted(id=name)]
        case "question":
            told = [
                question(record) or AgentError(kind=AgentErrorKind.BAD_RESULT, detail=NO_QUESTION)
            ]
        case "read" if (message := number(record, "id") or 0) >= 1:
            told = [AgentMessageAccepted(message=int(message))]
        case "result":
            told = [_result(record)]
        case "error":
            told = [_fault(record, has_provider=has_provider)]
    return told


def _progress(record: Json) -> AgentProgress:
    share = percent(number(record, "percent"))
    return AgentProgress(percent=share, message=one_line(string(record, "message")))


def is_partly_kept(record: Json) -> bool:
    """Whether a line tells of usage in words that nobody knows, and so is shown besides."""
    return record.get("rota") == "usage" and bool(record.keys() - USAGE_WORDS)


def question(record: Json | None) -> AgentQuestion | None:
    """Return the question a line of Rota's asks."""
    if record is None or record.get("rota") != "question":
        return None
    text = string(record, "text", most=MAX_TEXT)
    options = [option[:MAX_OPTION] for option in words(record, "options")][:MAX_OPTIONS]
    context = string(record, "context", most=MAX_TEXT)
    default = string(record, "default", most=MAX_OPTION) or None
    wait = number(record, "expires_in")
    if not text.strip():
        return None
    return AgentQuestion(
        text=text,
        options=tuple(options),
        context=context,
        default=default if not options or default in options else None,
        expires_in=None if wait is None else min(MAX_WAIT, max(MIN_WAIT, wait)),
    )


def closing_question(text: str) -> AgentQuestion | None:
    """Return the question that an answer's last line asks; what stands before is its context."""
    before, _, last = text.rstrip().rpartition("\n")
    found = question(parse(last.encode("utf-8", "replace")))
    if found is None or found.context:
        return found
    return replace(found, context=before[-MAX_TEXT:].strip())


def _usage(record: Json) -> AgentUsage:
    return AgentUsage(
        input=count(record, "input_tokens"),
        output=count(record, "output_tokens"),
        cached=count(record, "cached_tokens"),
        cost=dollars(record, "cost_usd"),
        model=string(record, "model", most=MAX_NAME) or None,
    )


def closing_result(told: AgentAnswer) -> AgentAnswer:
    """Return an answer with what its last line says of it in a line of Rota's, if it does."""
    before, _, last = told.text.rstrip().rpartition("\n")
    record = parse(last.encode("utf-8", "replace")) if '"rota"' in last else None
    if told.data is not None or record is None or record.get("rota") != "result":
        return told
    found = _result(record)
    if not isinstance(found, AgentAnswer):
        return told
    return found if found.text or found.data is not None else replace(found, text=before.strip())


def _result(record: Json) -> Said:
    text = string(record, "text")
    aside: dict[str, Any] = {
        "silent": record.get("silent") is True,
        "next_check": string(record, "next_check", most=MAX_NAME) or None,
    }
    if inside(record, "data") is None:
        strange = record.keys() - RESULT_WORDS
        if strange and AgentAnswer(text=text, **aside) == AgentAnswer(text=""):
            words_ = one_line(f"a result needs text or data, not {', '.join(sorted(strange))}")
            return AgentError(kind=AgentErrorKind.BAD_RESULT, detail=words_)
        return AgentAnswer(text=text, **aside)
    try:
        data = encode(record["data"], ensure_ascii=False)
    except ValueError as error:
        return AgentError(kind=AgentErrorKind.BAD_RESULT, detail=str(error))
    data = data.encode("utf-8", "replace").decode()
    if len(data.encode()) > MAX_RESULT_BYTES:
        return AgentError(kind=AgentErrorKind.BAD_RESULT, detail="at most 256 KiB of data are kept")
    return AgentAnswer(text=text, data=data, **aside)


def _fault(record: Json, *, has_provider: bool) -> AgentError:
    told = string(record, "class")
    words_ = detail(string(record, "message"))
    status = number(record, "status")
    if told in TELLABLE:
        kind = AgentErrorKind(told)
    elif has_provider:
        kind = classify(words_, None if status is None else int(status))
    else:
        kind = classify_own(words_)
    return AgentError(kind=kind, detail=words_, until=instant(number(record, "until")))

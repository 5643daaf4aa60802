"""Rota's line protocol: JSON lines that any program may write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rota.agents.shared.diagnosis import classify, classify_script_error, instant
from rota.agents.shared.stream import (
    MAX_NAME,
    MAX_TEXT,
    Json,
    count,
    detail,
    dollars,
    number,
    one_line,
    parse,
    percent,
    split_text,
    string,
    value_at,
    words,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentEvent,
    AgentMessageAccepted,
    AgentProgress,
    AgentQuestion,
    AgentSessionStarted,
    AgentText,
    AgentToolCall,
    AgentUsage,
)
from rota.model.attempts import MAX_RESULT_BYTES
from rota.model.json import encode

REPORTABLE = frozenset(kind.value for kind in AgentErrorKind) - {AgentErrorKind.CANCELLED.value}
"""Kinds of errors that a program may report; only Rota reports a cancellation."""
RESULT_FIELDS = frozenset({"rota", "text", "data", "silent", "next_check"})
NOTHING_NEW = AgentProgress()
USAGE_NUMBERS = frozenset({"input_tokens", "output_tokens", "cached_tokens", "cost_usd"})
USAGE_FIELDS = USAGE_NUMBERS | {"rota", "model"}
NO_QUESTION = "a question needs a text"
MAX_OPTIONS = 20
MAX_OPTION = 200
MIN_WAIT, MAX_WAIT = 60.0, 30 * 86_400.0
"""Limits on how many seconds a question may be open."""


def line_events(record: Json, *, has_provider: bool = True) -> Sequence[AgentEvent] | None:
    """Return the events of a line; None if it is invalid.

    An invalid question or result also is an error, so that it does not go unnoticed.
    """
    events: Sequence[AgentEvent] | None = None
    match record.get("rota"):
        case "text" if isinstance(record.get("text"), str):
            events = [AgentText(text=piece) for piece in split_text(string(record, "text"))]
        case "progress" if (progress := _progress(record)) != NOTHING_NEW:
            events = [progress]
        case "tool" if name := string(record, "name", limit=MAX_NAME):
            events = [AgentToolCall(name=name, summary=one_line(string(record, "summary")))]
        case "usage" if record.keys() & USAGE_NUMBERS:
            events = [_usage(record)]
        case "session" if name := string(record, "id", limit=MAX_NAME):
            events = [AgentSessionStarted(id=name)]
        case "question":
            events = [
                question(record) or AgentError(kind=AgentErrorKind.BAD_RESULT, detail=NO_QUESTION)
            ]
        case "read" if (message := number(record, "id") or 0) >= 1:
            events = [AgentMessageAccepted(message=int(message))]
        case "result":
            events = [_result(record)]
        case "error":
            events = [_error(record, has_provider=has_provider)]
    return events


def _progress(record: Json) -> AgentProgress:
    share = percent(number(record, "percent"))
    return AgentProgress(percent=share, message=one_line(string(record, "message")))


def has_unknown_fields(record: Json) -> bool:
    """Whether a usage line has unknown fields, so that it is shown as well."""
    return record.get("rota") == "usage" and bool(record.keys() - USAGE_FIELDS)


def question(record: Json | None) -> AgentQuestion | None:
    """Return the question in a line, if it is one."""
    if record is None or record.get("rota") != "question":
        return None
    text = string(record, "text", limit=MAX_TEXT)
    options = [option[:MAX_OPTION] for option in words(record, "options")][:MAX_OPTIONS]
    context = string(record, "context", limit=MAX_TEXT)
    default = string(record, "default", limit=MAX_OPTION) or None
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
    """Return the question in the last line of an answer; the text before it is its context."""
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
        model=string(record, "model", limit=MAX_NAME) or None,
    )


def closing_result(events: AgentAnswer) -> AgentAnswer:
    """Return an answer with the fields of a result line at its end, if there is one."""
    before, _, last = events.text.rstrip().rpartition("\n")
    record = parse(last.encode("utf-8", "replace")) if '"rota"' in last else None
    if events.data is not None or record is None or record.get("rota") != "result":
        return events
    found = _result(record)
    if not isinstance(found, AgentAnswer):
        return events
    return found if found.text or found.data is not None else replace(found, text=before.strip())


def _result(record: Json) -> AgentEvent:
    text = string(record, "text")
    aside: dict[str, Any] = {
        "silent": record.get("silent") is True,
        "next_check": string(record, "next_check", limit=MAX_NAME) or None,
    }
    if value_at(record, "data") is None:
        strange = record.keys() - RESULT_FIELDS
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
        return AgentError(kind=AgentErrorKind.BAD_RESULT, detail="data may have at most 256 KiB")
    return AgentAnswer(text=text, data=data, **aside)


def _error(record: Json, *, has_provider: bool) -> AgentError:
    events = string(record, "class")
    words_ = detail(string(record, "message"))
    status = number(record, "status")
    if events in REPORTABLE:
        kind = AgentErrorKind(events)
    elif has_provider:
        kind = classify(words_, None if status is None else int(status))
    else:
        kind = classify_script_error(words_)
    return AgentError(kind=kind, detail=words_, until=instant(number(record, "until")))

"""Lines of Rota's own: what any program, or an answer's last line, can say in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rota.agents.kit.diagnosis import classify, classify_own, instant
from rota.agents.kit.lines import (
    Json,
    count,
    dollars,
    inside,
    number,
    parse,
    percent,
    string,
    words,
)
from rota.agents.kit.text import LONGEST_NAME, LONGEST_TEXT, detail, one_line, pieces
from rota.model.faults import FaultKind
from rota.model.outcomes import LONGEST_RESULT
from rota.model.said import (
    Fault,
    Progress,
    Question,
    Result,
    Said,
    Session,
    Taken,
    Text,
    ToolCall,
    Usage,
)

TELLABLE = frozenset(kind.value for kind in FaultKind) - {FaultKind.CANCELLED.value}
"""What a program may say of itself; only Rota says that somebody stopped it."""
MOST_OPTIONS = 20
LONGEST_OPTION = 200
SHORTEST_WAIT, LONGEST_WAIT = 60.0, 30 * 86_400.0
"""For how many seconds a question may be open."""


def said(record: Json, *, has_provider: bool = True) -> Iterator[Said]:
    """Yield what a line of Rota's says; one of an unknown kind says nothing."""
    match record.get("rota"):
        case "text":
            yield from (Text(text=piece) for piece in pieces(string(record, "text")))
        case "progress":
            share = percent(number(record, "percent"))
            yield Progress(percent=share, message=one_line(string(record, "message")))
        case "tool":
            name = string(record, "name", most=LONGEST_NAME)
            yield ToolCall(name=name, summary=one_line(string(record, "summary")))
        case "usage":
            yield _usage(record)
        case "session" if name := string(record, "id", most=LONGEST_NAME):
            yield Session(id=name)
        case "question" if asked := question(record):
            yield asked
        case "read" if message := count(record, "id"):
            yield Taken(message=message)
        case "result":
            yield _result(record)
        case "error":
            yield _fault(record, has_provider=has_provider)


def question(record: Json | None) -> Question | None:
    """Return the question a line of Rota's asks."""
    if record is None or record.get("rota") != "question":
        return None
    text = string(record, "text", most=LONGEST_TEXT)
    options = [option[:LONGEST_OPTION] for option in words(record, "options")][:MOST_OPTIONS]
    context = string(record, "context", most=LONGEST_TEXT)
    default = string(record, "default", most=LONGEST_OPTION) or None
    wait = number(record, "expires_in")
    if not text.strip():
        return None
    return Question(
        text=text,
        options=tuple(options),
        context=context,
        default=default if not options or default in options else None,
        expires_in=None if wait is None else min(LONGEST_WAIT, max(SHORTEST_WAIT, wait)),
    )


def closing_question(text: str) -> Question | None:
    """Return the question that an answer's last line asks; what stands before is its context."""
    before, _, last = text.rstrip().rpartition("\n")
    found = question(parse(last.encode("utf-8", "replace")))
    if found is None or found.context:
        return found
    return replace(found, context=before[-LONGEST_TEXT:].strip())


def _usage(record: Json) -> Usage:
    return Usage(
        input=count(record, "input_tokens"),
        output=count(record, "output_tokens"),
        cached=count(record, "cached_tokens"),
        cost=dollars(record, "cost_usd"),
        model=string(record, "model", most=LONGEST_NAME) or None,
    )


def closing_result(told: Result) -> Result:
    """Return an answer with what its last line says of it in a line of Rota's, if it does."""
    before, _, last = told.text.rstrip().rpartition("\n")
    record = parse(last.encode("utf-8", "replace")) if '"rota"' in last else None
    if told.data is not None or record is None or record.get("rota") != "result":
        return told
    found = _result(record)
    if not isinstance(found, Result):
        return told
    return found if found.text or found.data is not None else replace(found, text=before.strip())


def _result(record: Json) -> Said:
    text = string(record, "text")
    aside: dict[str, Any] = {
        "silent": record.get("silent") is True,
        "next_check": string(record, "next_check", most=LONGEST_NAME) or None,
    }
    if inside(record, "data") is None:
        return Result(text=text, **aside)
    try:
        data = json.dumps(record["data"], ensure_ascii=False)
    except (ValueError, RecursionError):
        return Fault(kind=FaultKind.BAD_RESULT, detail="the data are nested too deeply")
    data = data.encode("utf-8", "replace").decode()
    if len(data.encode()) > LONGEST_RESULT:
        return Fault(kind=FaultKind.BAD_RESULT, detail="at most 256 KiB of data are kept")
    return Result(text=text, data=data, **aside)


def _fault(record: Json, *, has_provider: bool) -> Fault:
    told = string(record, "class")
    words_ = detail(string(record, "message"))
    status = number(record, "status")
    if told in TELLABLE:
        kind = FaultKind(told)
    elif has_provider:
        kind = classify(words_, None if status is None else int(status))
    else:
        kind = classify_own(words_)
    return Fault(kind=kind, detail=words_, until=instant(number(record, "until")))

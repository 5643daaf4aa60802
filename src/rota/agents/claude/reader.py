"""Reads Claude Code's stream-json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rota.agents.claude.todos import TodoCalls
from rota.agents.kit.answers import Answers
from rota.agents.kit.diagnosis import instant
from rota.agents.kit.judging import told
from rota.agents.kit.lines import (
    TOO_LONG,
    Json,
    count,
    dollars,
    inside,
    items,
    mapping,
    number,
    string,
    words,
)
from rota.agents.kit.reading import JsonReader, gist, texts
from rota.agents.kit.text import LONGEST_NAME, detail, one_line
from rota.model.faults import FaultKind
from rota.model.said import Fault, Progress, Said, Session, Taken, ToolCall, Usage
from rota.model.verdicts import Exit, Verdict
from rota.ports.agent import Redaction

SYNTHETIC = "<synthetic>"
TELLING = ("command", "file_path", "path", "pattern", "url", "query", "description", "prompt")
BY_NAME = {
    "authentication_failed": FaultKind.AUTHENTICATION,
    "billing_error": FaultKind.BILLING,
    "max_turns": FaultKind.TURNS,
    "error_max_turns": FaultKind.TURNS,
    "model_not_found": FaultKind.UNKNOWN_MODEL,
    "prompt_too_long": FaultKind.CONTEXT_TOO_LONG,
    "rate_limit": FaultKind.RATE_LIMIT,
    "overloaded": FaultKind.OVERLOAD,
    "server_error": FaultKind.OVERLOAD,
    "refusal": FaultKind.REFUSED,
}
"""What Claude Code itself calls a failure, wherever it says so."""


TOLD = re.compile(r"00000000-0000-4000-8000-([0-9a-f]{12})")
"""What the messages are called that come while it works: they have a number in Rota."""


def name_of(message: int) -> str:
    """Return what a message is called in the stream."""
    return f"00000000-0000-4000-8000-{message:012x}"


def message_of(record: Json) -> int | None:
    """Return the number of the message that a record of the stream is about."""
    found = TOLD.fullmatch(string(record, "uuid", most=LONGEST_NAME))
    return None if found is None else int(found[1], 16)


class ClaudeReader(JsonReader):
    """Reads one attempt of Claude Code."""

    marks = re.compile(rb'"type": ?"result"')  # in a text its quotation marks would be escaped

    def __init__(self, redactor: Redaction | None = None, *, resumed: bool = False) -> None:
        super().__init__(redactor)
        self._resumed = resumed
        self._named = ""
        self._lifted: float | None = None
        self._unbilled = Usage()
        self._message = ""
        self._answers = Answers()
        self._total = 0.0
        self._todos = TodoCalls()

    def read(self, record: Json) -> Iterator[Said]:
        """Yield what one message says."""
        session = string(record, "session_id", most=LONGEST_NAME)
        if session:
            yield Session(id=session)
        match record.get("type"):
            case "assistant":
                yield from self._assistant(record)
            case "system":
                yield from self._system(record)
            case "user" if record.get("isReplay") is True:
                yield from self._replayed(record)
            case "user":
                yield from self._todos.results(record)
            case "rate_limit_event":
                self._lifted = number(record, "rate_limit_info", "resetsAt")
            case "result":
                yield from self._result(record)

    def read_mark(self, _mark: bytes, /) -> Iterator[Said]:
        """Yield that a result was there: it has done what it was told, and waits for more."""
        yield Fault(kind=FaultKind.NO_RESULT, detail=TOO_LONG)

    def end(self, end: Exit) -> Verdict:
        """Return what the attempt came to, counting also a turn that was never summed up."""
        verdict = super().end(end)
        return replace(verdict, usage=verdict.usage + self._unbilled)

    def pending(self) -> Usage:
        """Return what was used in the turn that goes on."""
        return self._unbilled

    def _replayed(self, record: Json) -> Iterator[Said]:
        """Yield a message that it takes in; it is repeated when that is done, and not before."""
        message = message_of(record)
        if message is not None:
            self._answers.go_on()
            yield Taken(message=message)

    def _assistant(self, record: Json) -> Iterator[Said]:
        message = mapping(record, "message")
        if record.get("is_api_error_message") is True or message.get("model") == SYNTHETIC:
            self._named = string(record, "error", most=LONGEST_NAME)
            return
        self._named = ""
        self._count(message)
        inner = record.get("parent_tool_use_id") is not None
        for block in items(message, "content"):
            if block.get("type") == "tool_use":
                if inner or not self._todos.note(block):
                    yield _tool(block)
            elif block.get("type") == "text" and not inner:
                yield from texts(string(block, "text"))

    def _count(self, message: Json) -> None:
        """Count a message's tokens once, though it comes once for each of its blocks."""
        if (name := string(message, "id", most=LONGEST_NAME)) == self._message:
            return
        self._message = name
        self._unbilled += _usage(mapping(message, "usage"), string(message, "model", most=80))

    def _system(self, record: Json) -> Iterator[Said]:
        match record.get("subtype"):
            case "api_retry":
                yield Progress(message=_retry(record))
            case "permission_denied":
                yield Progress(message=one_line(f"not allowed: {string(record, 'tool_name')}"))

    def _result(self, record: Json) -> Iterator[Said]:
        yield self._billed(record)
        text = string(record, "result")
        erred = record.get("is_error") is True or self._named
        if not erred and record.get("subtype") == "success":
            refused = record.get("stop_reason") == "refusal"
            yield (
                Fault(kind=FaultKind.REFUSED, detail=detail(text))
                if refused
                else self._answers.result(text)
            )
            return
        explained = text or "\n".join(words(record, "errors")) or string(record, "subtype")
        status = number(record, "api_error_status")
        fault = told(explained, None if status is None else int(status))
        kind = self._kind(record) or fault.kind
        limited = kind is FaultKind.RATE_LIMIT
        until = fault.until or (instant(self._lifted) if limited else None)
        yield Fault(kind=kind, detail=fault.detail, until=until)

    def _kind(self, record: Json) -> FaultKind | None:
        names = (self._named, record.get("terminal_reason"), record.get("subtype"))
        found = (BY_NAME.get(name) for name in names if isinstance(name, str))
        return next((kind for kind in found if kind is not None), None)

    def _billed(self, record: Json) -> Usage:
        """Return the turn's usage; the total it tells would count a resumed session again."""
        self._unbilled, self._message = Usage(), ""
        usage = _usage(mapping(record, "usage"), "")
        models = mapping(record, "model_usage_since_last_result")
        known = [dollars(model, "costUSD") or 0.0 for model in models.values()]
        cost = sum(known) if known else None
        if inside(record, "model_usage_since_last_result") is None and not self._resumed:
            cost = self._since(dollars(record, "total_cost_usd"))
        most_used = max(models, key=lambda name: count(models, name, "outputTokens"), default="")
        return Usage(
            input=usage.input,
            output=usage.output,
            cached=usage.cached,
            cost=cost,
            model=one_line(most_used) or None,
        )

    def _since(self, total: float | None) -> float | None:
        """Return what a total says of the turn alone: it grows from turn to turn."""
        if total is None:
            return None
        before, self._total = self._total, total
        return max(0.0, total - before)


def _retry(record: Json) -> str:
    status = number(record, "error_status")
    answer = "gave no answer" if status is None else f"answered {status:.0f}"
    nth, most = count(record, "attempt"), count(record, "max_retries")
    return f"the provider {answer}: retry {nth} of {most}"


def _usage(usage: Json, model: str) -> Usage:
    read, written = (
        count(usage, "cache_read_input_tokens"),
        count(usage, "cache_creation_input_tokens"),
    )
    return Usage(
        input=count(usage, "input_tokens") + read + written,
        output=count(usage, "output_tokens"),
        cached=read,
        model=model or None,
    )


def _tool(block: Json) -> ToolCall:
    name = string(block, "name", most=LONGEST_NAME)
    return ToolCall(name=name, summary=gist(mapping(block, "input"), TELLING))

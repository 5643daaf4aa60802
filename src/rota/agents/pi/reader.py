"""Reads what `pi --mode json` prints."""

from __future__ import annotations

from collections.abc import Iterator

from rota.agents.kit.judging import told
from rota.agents.kit.lines import Json, count, dollars, items, mapping, string
from rota.agents.kit.reading import JsonReader, gist, texts
from rota.agents.kit.text import LONGEST_NAME, detail
from rota.agents.pi import todos
from rota.model.faults import FaultKind
from rota.model.said import Fault, Progress, Result, Said, Session, ToolCall, Usage
from rota.ports.agent import Redaction

TELLING = ("command", "path", "pattern")


class PiReader(JsonReader):
    """Reads one attempt of pi.

    It ends with exit code 0 whatever happened, so only its last message tells how it went. The
    parts of a message, each of which repeats the message so far, are not read.
    """

    unread = (b'{"type":"message_update"', b'{"type":"tool_execution_update"')

    def __init__(self, redactor: Redaction | None = None) -> None:
        super().__init__(redactor)
        self._todos = todos.ToolTodos()

    def read(self, record: Json) -> Iterator[Said]:
        """Yield what one event says."""
        match record.get("type"):
            case "session":
                yield Session(id=string(record, "id", most=LONGEST_NAME))
            case "message_end":
                yield from message_of(mapping(record, "message"))
            case "tool_execution_start" if record.get("toolName") != todos.TOOL:
                name = string(record, "toolName", most=LONGEST_NAME)
                yield ToolCall(name=name, summary=gist(mapping(record, "args"), TELLING))
            case "tool_execution_end":
                yield from self._todos.result(record)
            case "auto_retry_start":
                nth, most = count(record, "attempt"), count(record, "maxAttempts")
                why = told(string(record, "errorMessage")).kind.sentence
                yield Progress(message=f"retry {nth} of {most}: {why}")
            case "auto_retry_end" if record.get("success") is False:
                yield told(string(record, "finalError"))


def message_of(message: Json) -> Iterator[Said]:
    """Yield what a message says that is whole."""
    if message.get("role") != "assistant":
        return
    yield _usage(mapping(message, "usage"), string(message, "model", most=LONGEST_NAME))
    blocks = items(message, "content")
    text = "\n".join(string(block, "text") for block in blocks if block.get("type") == "text")
    yield from texts(text)
    match message.get("stopReason"):
        case "stop":
            yield Result(text=text)
        case "length":
            yield Fault(kind=FaultKind.CONTEXT_TOO_LONG, detail=detail(text[-500:]))
        case "error" | "aborted":
            yield told(string(message, "errorMessage") or "it was aborted")


def _usage(usage: Json, model: str) -> Usage:
    read, written = count(usage, "cacheRead"), count(usage, "cacheWrite")
    return Usage(
        input=count(usage, "input") + read + written,
        output=count(usage, "output"),
        cached=read,
        cost=dollars(usage, "cost", "total"),
        model=model or None,
    )

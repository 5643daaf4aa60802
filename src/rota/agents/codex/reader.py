"""The output of `codex exec --json`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rota.agents.shared.reader import JsonReader, text_events
from rota.agents.shared.result import exit_sentence
from rota.agents.shared.stream import (
    MAX_NAME,
    TOO_LONG,
    Json,
    count,
    items,
    mapping,
    one_line,
    string,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentEvent,
    AgentProgress,
    AgentSessionStarted,
    AgentToolCall,
    AgentUsage,
)
from rota.ports.agent import Redaction


class CodexReader(JsonReader):
    """Reads one attempt of Codex.

    Its answer is the last message before the end of a turn. It reports the tokens of the whole
    session, from which those of earlier attempts are subtracted, but neither model nor cost.
    """

    marks = re.compile(
        rb'\A\{"type":"item\.completed","item":\{"id":"[^"]{0,99}","type":"agent_message"'
    )

    def __init__(
        self,
        redactor: Redaction | None = None,
        *,
        resumed: bool = False,
        used: AgentUsage | None = None,
    ) -> None:
        super().__init__(redactor)
        self._of_session = resumed and used is None
        self._answer: str | None = ""
        self._counted = used or AgentUsage()

    def read(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the events of one record."""
        match record.get("type"):
            case "thread.started":
                yield AgentSessionStarted(id=string(record, "thread_id", limit=MAX_NAME))
            case "turn.started":
                self._answer = ""
            case "item.started" | "item.updated" | "item.completed" as stage:
                yield from self._item(str(stage), mapping(record, "item"))
            case "turn.completed":
                yield self._used(mapping(record, "usage"))
                yield self._ended()
            case "turn.failed":
                yield exit_sentence(string(record, "error", "message"))
            case "error":
                yield exit_sentence(string(record, "message"))

    def read_mark(self, _mark: bytes, /) -> Iterator[AgentEvent]:
        """Note that its answer is too long; earlier messages are not its answer."""
        self._answer = None
        return iter(())

    def _ended(self) -> AgentEvent:
        if self._answer is None:
            return AgentError(kind=AgentErrorKind.NO_RESULT, detail=TOO_LONG)
        return AgentAnswer(text=self._answer)

    def _item(self, stage: str, item: Json) -> Iterator[AgentEvent]:
        begun, ended = stage == "item.started", stage == "item.completed"
        match item.get("type"):
            case "agent_message" if ended:
                answer = self._answer = string(item, "text")
                yield from text_events(answer)
            case "todo_list":
                yield from _todo(item)
            case "command_execution" if begun:
                yield AgentToolCall(name="shell", summary=one_line(string(item, "command")))
            case "mcp_tool_call" if begun:
                name = f"{string(item, 'server')}.{string(item, 'tool')}"
                yield AgentToolCall(name=name[:MAX_NAME], summary=_arguments(item))
            case "file_change" if ended:
                paths = (string(change, "path") for change in items(item, "changes"))
                yield AgentToolCall(name="file_change", summary=one_line(", ".join(paths)))
            case "web_search" if ended:
                yield AgentToolCall(name="web_search", summary=one_line(string(item, "query")))
            case "error":
                yield AgentProgress(message=one_line(string(item, "message")))

    def _used(self, usage: Json) -> AgentUsage:
        counted = AgentUsage(
            input=count(usage, "input_tokens"),
            output=count(usage, "output_tokens"),
            cached=count(usage, "cached_input_tokens"),
        )
        before, self._counted = self._counted, counted
        return AgentUsage(
            input=max(0, counted.input - before.input),
            output=max(0, counted.output - before.output),
            cached=max(0, counted.cached - before.cached),
            of_session=self._of_session,
        )


def _arguments(item: Json) -> str:
    given = mapping(item, "arguments")
    return one_line(", ".join(f"{name}={value}" for name, value in list(given.items())[:8]))


def _todo(item: Json) -> Iterator[AgentEvent]:
    listed = list(items(item, "items"))
    done = sum(one.get("completed") is True for one in listed)
    todo = next((one for one in listed if one.get("completed") is not True), {})
    if listed:
        yield AgentProgress(
            percent=100.0 * done / len(listed), message=one_line(string(todo, "text"))
        )

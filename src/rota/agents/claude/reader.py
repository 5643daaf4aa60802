"""The stream-json output of Claude Code, and the todo lists in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from rota.agents.shared.diagnosis import instant
from rota.agents.shared.reader import (
    MAX_TODOS,
    AnswerLog,
    JsonReader,
    TodoItem,
    TodoTracker,
    summarize,
    text_events,
    todo_item,
)
from rota.agents.shared.result import exit_sentence
from rota.agents.shared.stream import (
    MAX_NAME,
    TOO_LONG,
    Json,
    count,
    detail,
    dollars,
    items,
    mapping,
    number,
    one_line,
    string,
    value_at,
    words,
)
from rota.model.agents import (
    AgentError,
    AgentErrorKind,
    AgentEvent,
    AgentMessageAccepted,
    AgentProgress,
    AgentResult,
    AgentSessionStarted,
    AgentToolCall,
    AgentUsage,
    ProcessExit,
)
from rota.ports.agent import Redaction

SYNTHETIC = "<synthetic>"
SUMMARY_FIELDS = (
    "command",
    "file_path",
    "path",
    "pattern",
    "url",
    "query",
    "description",
    "prompt",
)
ERROR_KINDS = {
    "authentication_failed": AgentErrorKind.AUTHENTICATION,
    "billing_error": AgentErrorKind.BILLING,
    "max_turns": AgentErrorKind.TURNS,
    "error_max_turns": AgentErrorKind.TURNS,
    "model_not_found": AgentErrorKind.UNKNOWN_MODEL,
    "prompt_too_long": AgentErrorKind.CONTEXT_TOO_LONG,
    "rate_limit": AgentErrorKind.RATE_LIMIT,
    "overloaded": AgentErrorKind.OVERLOAD,
    "server_error": AgentErrorKind.OVERLOAD,
    "refusal": AgentErrorKind.REFUSED,
}
"""Kinds of Claude Code's own names of errors."""


MESSAGE_UUID = re.compile(r"00000000-0000-4000-8000-([0-9a-f]{12})")
"""UUIDs of the messages written to it, which contain Rota's message id."""


def message_uuid(message: int) -> str:
    """Return the UUID of a message."""
    return f"00000000-0000-4000-8000-{message:012x}"


def message_id_in(record: Json) -> int | None:
    """Return the message id in the UUID of a record."""
    found = MESSAGE_UUID.fullmatch(string(record, "uuid", limit=MAX_NAME))
    return None if found is None else int(found[1], 16)


class ClaudeReader(JsonReader):
    """Reads one attempt of Claude Code."""

    marks = re.compile(rb'"type": ?"result"')  # inside a string its quotes would be escaped

    def __init__(self, redactor: Redaction | None = None, *, resumed: bool = False) -> None:
        super().__init__(redactor)
        self._resumed = resumed
        self._named = ""
        self._lifted: float | None = None
        self._unbilled = AgentUsage()
        self._message = ""
        self._answers = AnswerLog()
        self._total = 0.0
        self._todos = ClaudeTodoTracker()

    def read(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the events of one message."""
        session = string(record, "session_id", limit=MAX_NAME)
        if session:
            yield AgentSessionStarted(id=session)
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

    def read_mark(self, _mark: bytes, /) -> Iterator[AgentEvent]:
        """Yield an error for a result that is too long: its turn has ended."""
        yield AgentError(kind=AgentErrorKind.NO_RESULT, detail=TOO_LONG)

    def end(self, end: ProcessExit) -> AgentResult:
        """Return the result of the attempt, with the usage of an unfinished turn."""
        result = super().end(end)
        return replace(result, usage=result.usage + self._unbilled)

    def unreported_usage(self) -> AgentUsage:
        """Return the usage of the current turn."""
        return self._unbilled

    def _replayed(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the acceptance of a message, which Claude Code replays once it has read it."""
        message = message_id_in(record)
        if message is not None:
            self._answers.go_on()
            yield AgentMessageAccepted(message=message)

    def _assistant(self, record: Json) -> Iterator[AgentEvent]:
        message = mapping(record, "message")
        if record.get("is_api_error_message") is True or message.get("model") == SYNTHETIC:
            self._named = string(record, "error", limit=MAX_NAME)
            return
        self._named = ""
        self._count(message)
        inner = record.get("parent_tool_use_id") is not None
        for block in items(message, "content"):
            if block.get("type") == "tool_use":
                if inner or not self._todos.note(block):
                    yield _tool(block)
            elif block.get("type") == "text" and not inner:
                yield from text_events(string(block, "text"))

    def _count(self, message: Json) -> None:
        """Count the tokens of a message once; it is repeated for each of its blocks."""
        if (name := string(message, "id", limit=MAX_NAME)) == self._message:
            return
        self._message = name
        self._unbilled += _usage(mapping(message, "usage"), string(message, "model", limit=80))

    def _system(self, record: Json) -> Iterator[AgentEvent]:
        match record.get("subtype"):
            case "api_retry":
                yield AgentProgress(message=_retry(record))
            case "permission_denied":
                yield AgentProgress(message=one_line(f"not allowed: {string(record, 'tool_name')}"))

    def _result(self, record: Json) -> Iterator[AgentEvent]:
        yield self._billed(record)
        text = string(record, "result")
        erred = record.get("is_error") is True or self._named
        if not erred and record.get("subtype") == "success":
            refused = record.get("stop_reason") == "refusal"
            yield (
                AgentError(kind=AgentErrorKind.REFUSED, detail=detail(text))
                if refused
                else self._answers.result(text)
            )
            return
        explained = text or "\n".join(words(record, "errors")) or string(record, "subtype")
        status = number(record, "api_error_status")
        error = exit_sentence(explained, None if status is None else int(status))
        kind = self._kind(record) or error.kind
        limited = kind is AgentErrorKind.RATE_LIMIT
        until = error.until or (instant(self._lifted) if limited else None)
        yield AgentError(kind=kind, detail=error.detail, until=until)

    def _kind(self, record: Json) -> AgentErrorKind | None:
        names = (self._named, record.get("terminal_reason"), record.get("subtype"))
        found = (ERROR_KINDS.get(name) for name in names if isinstance(name, str))
        return next((kind for kind in found if kind is not None), None)

    def _billed(self, record: Json) -> AgentUsage:
        """Return the usage of the turn; the reported total includes a resumed session."""
        self._unbilled, self._message = AgentUsage(), ""
        usage = _usage(mapping(record, "usage"), "")
        models = mapping(record, "model_usage_since_last_result")
        known = [dollars(model, "costUSD") or 0.0 for model in models.values()]
        cost = sum(known) if known else None
        if value_at(record, "model_usage_since_last_result") is None and not self._resumed:
            cost = self._since(dollars(record, "total_cost_usd"))
        most_used = max(models, key=lambda name: count(models, name, "outputTokens"), default="")
        return AgentUsage(
            input=usage.input,
            output=usage.output,
            cached=usage.cached,
            cost=cost,
            model=one_line(most_used) or None,
        )

    def _since(self, total: float | None) -> float | None:
        """Return the part of a growing total that belongs to this turn."""
        if total is None:
            return None
        before, self._total = self._total, total
        return max(0.0, total - before)


def _retry(record: Json) -> str:
    status = number(record, "error_status")
    answer = "gave no answer" if status is None else f"answered {status:.0f}"
    nth, most = count(record, "attempt"), count(record, "max_retries")
    return f"the provider {answer}: retry {nth} of {most}"


def _usage(usage: Json, model: str) -> AgentUsage:
    read, written = (
        count(usage, "cache_read_input_tokens"),
        count(usage, "cache_creation_input_tokens"),
    )
    return AgentUsage(
        input=count(usage, "input_tokens") + read + written,
        output=count(usage, "output_tokens"),
        cached=read,
        model=model or None,
    )


def _tool(block: Json) -> AgentToolCall:
    name = string(block, "name", limit=MAX_NAME)
    return AgentToolCall(name=name, summary=summarize(mapping(block, "input"), SUMMARY_FIELDS))


TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList"})
"""Tools for todo lists: the first writes the whole list, the others one task."""
MAX_CALLS = 64


class _Call(NamedTuple):
    name: str
    task: str
    todos: tuple[TodoItem, ...]


class ClaudeTodoTracker:
    """Tracks the todo list from successful tool calls."""

    def __init__(self) -> None:
        self._pending_calls: dict[str, _Call] = {}
        self._todos = TodoTracker()

    def note(self, block: Json) -> bool:
        """Remember a call until its result arrives; return whether it is about the list."""
        name, given = _name(block, "name"), mapping(block, "input")
        if name not in TOOLS:
            return False
        todos = items(given, "todos") if name == "TodoWrite" else [given]
        call = _Call(name, _name(given, "taskId"), tuple(map(todo_item, islice(todos, MAX_TODOS))))
        if len(self._pending_calls) < MAX_CALLS:
            self._pending_calls[_name(block, "id")] = call
        return True

    def results(self, record: Json) -> Iterator[AgentProgress]:
        """Yield progress if the results in a record have changed it."""
        for block in items(record, "message", "content"):
            call = self._pending_calls.pop(_name(block, "tool_use_id"), None)
            if call is not None and block.get("is_error") is not True:
                self._change(call, mapping(record, "tool_use_result"))
                yield from self._todos.progress()

    def _change(self, call: _Call, result: Json) -> None:
        """Apply a call to the list; tasks of earlier attempts count once they change."""
        match call.name:
            case "TodoWrite":
                self._todos.put_all((str(nth), one) for nth, one in enumerate(call.todos))
            case "TaskCreate":
                self._todos.put(_name(result, "task", "id"), *call.todos)
            case "TaskUpdate" if result.get("success") is True:
                self._todos.put(call.task, *call.todos)
            case "TaskList":
                tasks = items(result, "tasks")
                self._todos.put_all((_name(task, "id"), todo_item(task)) for task in tasks)


def _name(record: Json, *path: str) -> str:
    return string(record, *path, limit=MAX_NAME)

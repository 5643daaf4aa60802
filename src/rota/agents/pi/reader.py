"""The output of pi in its JSON and RPC modes, and the todo lists in it.

In RPC mode it reads one command per line. A message is a `steer` command: pi adds it before its
next request to the model. One that arrives too late stays in its queue unread, so pi's work is over
when its turn ends, and its input is closed, which makes it exit. Only after an error pi may retry
by itself after a moment; to find out, its state is requested once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from rota.agents.shared.reader import (
    AnswerLog,
    JsonReader,
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
    parse,
    string,
    value_at,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentEvent,
    AgentInputClosed,
    AgentInputRequested,
    AgentMessageAccepted,
    AgentProgress,
    AgentSessionStarted,
    AgentToolCall,
    AgentTurnAnswer,
    AgentUsage,
)
from rota.model.threads import ThreadMessage
from rota.ports.agent import Redaction
from rota.rules.prompts import sender_line

SUMMARY_FIELDS = ("command", "path", "pattern")


class PiReader(JsonReader):
    """Reads one attempt of pi.

    Its exit code is always 0, so the result comes from its last message. Updates of a message,
    which repeat the message so far, are skipped.
    """

    unread = (b'{"type":"message_update"', b'{"type":"tool_execution_update"')

    def __init__(self, redactor: Redaction | None = None) -> None:
        super().__init__(redactor)
        self._todos = PiTodoTracker()

    def read(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the events of one record."""
        match record.get("type"):
            case "session":
                yield AgentSessionStarted(id=string(record, "id", limit=MAX_NAME))
            case "message_end":
                yield from message_events(mapping(record, "message"))
            case "tool_execution_start" if record.get("toolName") != TOOL:
                name = string(record, "toolName", limit=MAX_NAME)
                yield AgentToolCall(
                    name=name, summary=summarize(mapping(record, "args"), SUMMARY_FIELDS)
                )
            case "tool_execution_end":
                yield from self._todos.result(record)
            case "auto_retry_start":
                nth, most = count(record, "attempt"), count(record, "maxAttempts")
                why = exit_sentence(string(record, "errorMessage")).kind.sentence
                yield AgentProgress(message=f"retry {nth} of {most}: {why}")
            case "auto_retry_end" if record.get("success") is False:
                yield exit_sentence(string(record, "finalError"))


def message_events(message: Json) -> Iterator[AgentEvent]:
    """Yield the events of a complete message."""
    if message.get("role") != "assistant":
        return
    yield _usage(mapping(message, "usage"), string(message, "model", limit=MAX_NAME))
    blocks = items(message, "content")
    text = "\n".join(string(block, "text") for block in blocks if block.get("type") == "text")
    yield from text_events(text)
    match message.get("stopReason"):
        case "stop":
            yield AgentAnswer(text=text)
        case "length":
            yield AgentError(kind=AgentErrorKind.CONTEXT_TOO_LONG, detail=detail(text[-500:]))
        case "error" | "aborted":
            yield exit_sentence(string(message, "errorMessage") or "it was aborted")


def _usage(usage: Json, model: str) -> AgentUsage:
    read, written = count(usage, "cacheRead"), count(usage, "cacheWrite")
    return AgentUsage(
        input=count(usage, "input") + read + written,
        output=count(usage, "output"),
        cached=read,
        cost=dollars(usage, "cost", "total"),
        model=model or None,
    )


SESSION, PROMPT = "session", "prompt"
"""Ids of the first commands."""
COMMAND_ID = re.compile(r"message-(\d{1,15})")
MESSAGE_TAG = re.compile(r'<message id="(\d{1,15})" ')
ANSWER = b'{"type":"message_end","message":{"role":"assistant"'
END = b'{"type":"agent_end"'
BROKEN = frozenset({"error", "aborted"})
DIALOGS = frozenset({"select", "confirm", "input", "editor"})
"""Dialogs with which an extension of pi waits for a person."""


def first_input(prompt: str) -> bytes:
    """Return the first commands: request the session id, and send the prompt."""
    return _command("get_state", SESSION) + _command("prompt", PROMPT, message=prompt)


def steer_line(message: ThreadMessage, files: str | None = None) -> bytes:
    """Return a message as a steer command, escaped as in a prompt and with its id."""
    event = sender_line(message, files, numbered=True)
    return _command("steer", f"message-{message.id}", message=event)


def steered_message_id(line: bytes) -> int | None:
    """Return the message id of a steer command."""
    record = parse(line) or {}
    found = COMMAND_ID.fullmatch(string(record, "id", limit=MAX_NAME))
    return int(found[1]) if found is not None and record.get("type") == "steer" else None


def _command(kind: str, name: str, **more: str) -> bytes:
    return json.dumps({"id": name, "type": kind, **more}).encode() + b"\n"


def _cancel_dialog(asking: str) -> str:
    """Return the response that cancels a dialog, as in pi's other mode."""
    return json.dumps({"type": "extension_ui_response", "id": asking, "cancelled": True}) + "\n"


class PiRpcReader(PiReader):
    """Reads one attempt of pi in RPC mode, or in JSON mode if it answers no commands.

    A message counts as accepted when the model has answered with it in view; messages still queued
    when pi is closed are left to the next run.
    """

    marks = re.compile(rb"\A(?:%b|%b)" % (re.escape(END), re.escape(ANSWER)))

    def __init__(self, redactor: Redaction | None = None) -> None:
        super().__init__(redactor)
        self._answers = AnswerLog()
        self._last: AgentAnswer | AgentError | None = None
        self._commanded = False
        self._prompted = False
        self._in_view = 0
        self._working = False
        self._questions = 0

    def read(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the events of one record."""
        if record.get("type") == "response":
            self._commanded = True
            yield from self._response(record)
        elif self._commanded:
            yield from self._event(record)
        else:
            yield from super().read(record)

    def _event(self, record: Json) -> Iterator[AgentEvent]:
        match record.get("type"):
            case "agent_start":
                self._working, self._last = True, None
            case "message_end":
                yield from self._message(mapping(record, "message"))
            case "agent_end":
                yield from self._ended(record)
            case "agent_settled":
                yield from self._over()
            case "extension_ui_request" if string(record, "method") in DIALOGS:
                yield AgentInputRequested(line=_cancel_dialog(string(record, "id", limit=MAX_NAME)))
            case "auto_retry_start":
                self._working = True
                yield from super().read(record)
            case "auto_retry_end" if record.get("success") is False:
                self._last = exit_sentence(string(record, "finalError"))
                yield from self._over()
            case _:
                yield from super().read(record)

    def read_mark(self, mark: bytes, /) -> Iterator[AgentEvent]:
        """Yield the events of a line that is too long: an answer, or the end."""
        if not self._commanded:
            return
        if mark == ANSWER:
            self._last = AgentError(kind=AgentErrorKind.NO_RESULT, detail=TOO_LONG)
            yield from self._taken()
        else:
            yield from self._ended({})

    def _response(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the events of a response to a command; a prompt may be rejected."""
        match record.get("id"):
            case str(name) if name == SESSION:
                yield AgentSessionStarted(id=string(record, "data", "sessionId", limit=MAX_NAME))
            case str(name) if name == PROMPT and record.get("success") is True:
                yield self._question()
            case str(name) if name == PROMPT:
                self._last = exit_sentence(string(record, "error"))
                yield from self._over()
            case str(name) if name == self._asked and not self._working:
                if value_at(record, "data", "isStreaming") is not True:
                    yield from self._over()

    def _message(self, message: Json) -> Iterator[AgentEvent]:
        if message.get("role") == "user":
            yield from self._user(message)
        elif message.get("role") == "assistant" and string(message, "stopReason") not in BROKEN:
            yield from self._taken()
        for event in message_events(message):
            if isinstance(event, AgentAnswer):
                self._last = self._answers.result(event.text)
            elif isinstance(event, AgentError):
                self._last = event
            else:
                yield event

    def _user(self, message: Json) -> Iterator[AgentEvent]:
        """Note a message that the model sees from now on; the first one is the prompt.

        Earlier answers are returned as interim answers, because pi's result comes at its end.
        """
        text = "".join(string(block, "text") for block in items(message, "content"))
        found = MESSAGE_TAG.match(text)
        if found is not None and self._prompted:
            before = self._answers.overtaken()
            told = None if before is None else self.transcript.public_part(before)
            if told is not None:
                yield AgentTurnAnswer(result=told)
            if isinstance(self._last, AgentAnswer):
                self._last = replace(self._last, own="")
            self._answers.go_on()
            self._in_view = int(found[1])
        self._prompted = True

    def _taken(self) -> Iterator[AgentEvent]:
        if self._in_view:
            yield AgentMessageAccepted(message=self._in_view)
        self._in_view = 0

    def _ended(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the end of its work, or after an error a request for its state.

        Versions that report `willRetry` send `agent_settled` when they have finished.
        """
        self._working = False
        *_, last = ({}, *items(record, "messages"))
        if self._last is None and string(last, "stopReason") in BROKEN:
            self._last = exit_sentence(string(last, "errorMessage") or "it was aborted")
        if "willRetry" in record:
            return
        if isinstance(self._last, AgentError):
            yield self._question()
        else:
            yield from self._over()

    @property
    def _asked(self) -> str:
        return f"rest-{self._questions}"

    def _question(self) -> AgentInputRequested:
        self._questions += 1
        return AgentInputRequested(line=_command("get_state", self._asked).decode())

    def _over(self) -> Iterator[AgentEvent]:
        if self._last is not None:
            yield self._last
        yield AgentInputClosed()


TOOL = "rota_todos"
EXTENSION = "todos.js"
"""File with the extension."""
STATUSES = ("pending", "in_progress", "completed")
MOST, LONGEST = 100, 200
"""Limits of entries, and of characters per entry: each line of pi's stream repeats the list."""
DECLARED = {
    "name": TOOL,
    "label": "Todos",
    "description": "Write down what there is to do, and how each of it stands. Call it at the "
    "beginning of work that has several steps, and again with the whole list whenever a step "
    "begins or is done: by this list people see how far you are.",
    "promptSnippet": "Keep the list of steps by which people see how far you are",
    "parameters": {
        "type": "object",
        "required": ["todos"],
        "properties": {
            "todos": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST,
                "items": {
                    "type": "object",
                    "required": ["content", "status"],
                    "properties": {
                        "content": {"type": "string", "minLength": 1, "maxLength": LONGEST},
                        "status": {"type": "string", "enum": STATUSES},
                    },
                },
            }
        },
    },
}


def extension() -> bytes:
    """Return the extension that registers the tool; it only returns the list."""
    return f"""\
export default (pi) => pi.registerTool({{
  ...{json.dumps(DECLARED)},
  execute: async (_call, given) => ({{
    content: [{{ type: "text", text: "Noted." }}],
    details: given,
  }}),
}});
""".encode()


class PiTodoTracker:
    """Tracks the todo list from successful calls of the tool."""

    def __init__(self) -> None:
        self._todos = TodoTracker()

    def result(self, record: Json) -> Iterator[AgentProgress]:
        """Yield progress if the end of a tool call has changed it."""
        if record.get("toolName") == TOOL and record.get("isError") is not True:
            listed = items(record, "result", "details", "todos")
            self._todos.put_all((str(nth), todo_item(one)) for nth, one in enumerate(listed))
            yield from self._todos.progress()

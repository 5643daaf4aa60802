"""The output of pi in its JSON and RPC modes, and the todo lists in it.

It is told by commands, one a line. A message is a `steer`: it comes before the next request to the
model, and begins no turn of its own. One that comes too late lies in a queue that nobody looks at,
so pi is over when its work ends, and its input is closed, by which it ends. Only after an error it
may go on by itself, a little later, and says so at once: whether it does is known when it has
answered one more question.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

from rota.agents.shared.reader import AnswerLog, JsonReader, TodoTracker, gist, texts, todo
from rota.agents.shared.result import exit_sentence
from rota.agents.shared.stream import (
    MAX_NAME,
    TOO_LONG,
    Json,
    count,
    detail,
    dollars,
    inside,
    items,
    mapping,
    parse,
    string,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentInputClosed,
    AgentInputRequested,
    AgentMessageAccepted,
    AgentProgress,
    AgentSessionStarted,
    AgentToolCall,
    AgentTurnAnswer,
    AgentUsage,
    Said,
)
from rota.model.threads import ThreadMessage
from rota.ports.agent import Redaction
from rota.rules.prompts import sender_line

TELLING = ("command", "path", "pattern")


class PiReader(JsonReader):
    """Reads one attempt of pi.

    It ends with exit code 0 whatever happened, so only its last message tells how it went. The
    parts of a message, each of which repeats the message so far, are not read.
    """

    unread = (b'{"type":"message_update"', b'{"type":"tool_execution_update"')

    def __init__(self, redactor: Redaction | None = None) -> None:
        super().__init__(redactor)
        self._todos = PiTodoTracker()

    def read(self, record: Json) -> Iterator[Said]:
        """Yield what one event says."""
        match record.get("type"):
            case "session":
                yield AgentSessionStarted(id=string(record, "id", most=MAX_NAME))
            case "message_end":
                yield from message_of(mapping(record, "message"))
            case "tool_execution_start" if record.get("toolName") != TOOL:
                name = string(record, "toolName", most=MAX_NAME)
                yield AgentToolCall(name=name, summary=gist(mapping(record, "args"), TELLING))
            case "tool_execution_end":
                yield from self._todos.result(record)
            case "auto_retry_start":
                nth, most = count(record, "attempt"), count(record, "maxAttempts")
                why = exit_sentence(string(record, "errorMessage")).kind.sentence
                yield AgentProgress(message=f"retry {nth} of {most}: {why}")
            case "auto_retry_end" if record.get("success") is False:
                yield exit_sentence(string(record, "finalError"))


def message_of(message: Json) -> Iterator[Said]:
    """Yield what a message says that is whole."""
    if message.get("role") != "assistant":
        return
    yield _usage(mapping(message, "usage"), string(message, "model", most=MAX_NAME))
    blocks = items(message, "content")
    text = "\n".join(string(block, "text") for block in blocks if block.get("type") == "text")
    yield from texts(text)
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
"""What the first commands are called."""
NAMED = re.compile(r"message-(\d{1,15})")
SAID = re.compile(r'<message id="(\d{1,15})" ')
ANSWER = b'{"type":"message_end","message":{"role":"assistant"'
END = b'{"type":"agent_end"'
BROKEN = frozenset({"error", "aborted"})
DIALOGS = frozenset({"select", "confirm", "input", "editor"})
"""What an extension of pi asks a person for, and waits."""


def opening(prompt: str) -> bytes:
    """Return the first lines of its input: what its session is called, and what it shall do."""
    return _command("get_state", SESSION) + _command("prompt", PROMPT, message=prompt)


def line(message: ThreadMessage, files: str | None = None) -> bytes:
    """Return a message as a line of its input, escaped as in a prompt; it has its number in it."""
    said = sender_line(message, files, numbered=True)
    return _command("steer", f"message-{message.id}", message=said)


def message_in(line: bytes) -> int | None:
    """Return the id of the message that a line of its input is."""
    record = parse(line) or {}
    found = NAMED.fullmatch(string(record, "id", most=MAX_NAME))
    return int(found[1]) if found is not None and record.get("type") == "steer" else None


def _command(kind: str, name: str, **more: str) -> bytes:
    return json.dumps({"id": name, "type": kind, **more}).encode() + b"\n"


def _nobody(asking: str) -> str:
    """Return the answer to a dialog where there is nobody, as in its other mode."""
    return json.dumps({"type": "extension_ui_response", "id": asking, "cancelled": True}) + "\n"


class PiRpcReader(PiReader):
    """Reads one attempt of pi, which is told more while it works if it answers commands.

    A message counts as taken when the model has answered with it in view: what pi has in hand when
    it is closed is the next run's.
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

    def read(self, record: Json) -> Iterator[Said]:
        """Yield what one line says."""
        if record.get("type") == "response":
            self._commanded = True
            yield from self._response(record)
        elif self._commanded:
            yield from self._event(record)
        else:
            yield from super().read(record)

    def _event(self, record: Json) -> Iterator[Said]:
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
                yield AgentInputRequested(line=_nobody(string(record, "id", most=MAX_NAME)))
            case "auto_retry_start":
                self._working = True
                yield from super().read(record)
            case "auto_retry_end" if record.get("success") is False:
                self._last = exit_sentence(string(record, "finalError"))
                yield from self._over()
            case _:
                yield from super().read(record)

    def read_mark(self, mark: bytes, /) -> Iterator[Said]:
        """Yield what a line that is too long says: it has answered, or it has ended."""
        if not self._commanded:
            return
        if mark == ANSWER:
            self._last = AgentError(kind=AgentErrorKind.NO_RESULT, detail=TOO_LONG)
            yield from self._taken()
        else:
            yield from self._ended({})

    def _response(self, record: Json) -> Iterator[Said]:
        """Yield what an answer to a command says; the prompt may turn out to begin nothing."""
        match record.get("id"):
            case str(name) if name == SESSION:
                yield AgentSessionStarted(id=string(record, "data", "sessionId", most=MAX_NAME))
            case str(name) if name == PROMPT and record.get("success") is True:
                yield self._question()
            case str(name) if name == PROMPT:
                self._last = exit_sentence(string(record, "error"))
                yield from self._over()
            case str(name) if name == self._asked and not self._working:
                if inside(record, "data", "isStreaming") is not True:
                    yield from self._over()

    def _message(self, message: Json) -> Iterator[Said]:
        if message.get("role") == "user":
            yield from self._user(message)
        elif message.get("role") == "assistant" and string(message, "stopReason") not in BROKEN:
            yield from self._taken()
        for said in message_of(message):
            if isinstance(said, AgentAnswer):
                self._last = self._answers.result(said.text)
            elif isinstance(said, AgentError):
                self._last = said
            else:
                yield said

    def _user(self, message: Json) -> Iterator[Said]:
        """Note a message that it has in view from now on; the first one is its prompt.

        What it has answered before is told, for it says no result until it is over.
        """
        text = "".join(string(block, "text") for block in items(message, "content"))
        found = SAID.match(text)
        if found is not None and self._prompted:
            before = self._answers.overtaken()
            told = None if before is None else self.heard.for_people(before)
            if told is not None:
                yield AgentTurnAnswer(result=told)
            if isinstance(self._last, AgentAnswer):
                self._last = replace(self._last, own="")
            self._answers.go_on()
            self._in_view = int(found[1])
        self._prompted = True

    def _taken(self) -> Iterator[Said]:
        if self._in_view:
            yield AgentMessageAccepted(message=self._in_view)
        self._in_view = 0

    def _ended(self, record: Json) -> Iterator[Said]:
        """Yield that it is over, unless it may try again after an error: that is asked for.

        A newer one that tells of its retries here tells later by itself when it has settled.
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

    def _over(self) -> Iterator[Said]:
        if self._last is not None:
            yield self._last
        yield AgentInputClosed()


TOOL = "rota_todos"
EXTENSION = "todos.js"
"""The file of the attempt in which pi finds the tool."""
STATUSES = ("pending", "in_progress", "completed")
MOST, LONGEST = 100, 200
"""Entries, and characters of one: a line of pi's stream repeats all of them."""
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
    """Return the program by which pi learns of the tool; all it does is to say the list again."""
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
    """What there is to do, from uses of the tool that were carried out."""

    def __init__(self) -> None:
        self._todos = TodoTracker()

    def result(self, record: Json) -> Iterator[AgentProgress]:
        """Yield how far it is, if the end of a tool's use has changed that."""
        if record.get("toolName") == TOOL and record.get("isError") is not True:
            listed = items(record, "result", "details", "todos")
            self._todos.put_all((str(nth), todo(one)) for nth, one in enumerate(listed))
            yield from self._todos.progress()

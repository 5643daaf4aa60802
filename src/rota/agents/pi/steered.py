"""Steered: what `pi --mode rpc` reads and prints, while it is told more.

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

from rota.agents.kit.answers import Answers
from rota.agents.kit.judging import told
from rota.agents.kit.lines import TOO_LONG, Json, inside, items, mapping, parse, string
from rota.agents.kit.text import LONGEST_NAME
from rota.agents.pi.reader import PiReader, message_of
from rota.model.faults import FaultKind
from rota.model.messages import ThreadMessage
from rota.model.said import Answer, Fault, Over, Result, Said, Session, Taken, Wanted
from rota.ports.agent import Redaction
from rota.rules.prompts import said_by

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
    said = said_by(message, files, numbered=True)
    return _command("steer", f"message-{message.id}", message=said)


def message_in(line: bytes) -> int | None:
    """Return the id of the message that a line of its input is."""
    record = parse(line) or {}
    found = NAMED.fullmatch(string(record, "id", most=LONGEST_NAME))
    return int(found[1]) if found is not None and record.get("type") == "steer" else None


def _command(kind: str, name: str, **more: str) -> bytes:
    return json.dumps({"id": name, "type": kind, **more}).encode() + b"\n"


def _nobody(asking: str) -> str:
    """Return the answer to a dialog where there is nobody, as in its other mode."""
    return json.dumps({"type": "extension_ui_response", "id": asking, "cancelled": True}) + "\n"


class SteeredPiReader(PiReader):
    """Reads one attempt of pi, which is told more while it works if it answers commands.

    A message counts as taken when the model has answered with it in view: what pi has in hand when
    it is closed is the next run's.
    """

    marks = re.compile(rb"\A(?:%b|%b)" % (re.escape(END), re.escape(ANSWER)))

    def __init__(self, redactor: Redaction | None = None) -> None:
        super().__init__(redactor)
        self._answers = Answers()
        self._last: Result | Fault | None = None
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
                yield Wanted(line=_nobody(string(record, "id", most=LONGEST_NAME)))
            case "auto_retry_start":
                self._working = True
                yield from super().read(record)
            case "auto_retry_end" if record.get("success") is False:
                self._last = told(string(record, "finalError"))
                yield from self._over()
            case _:
                yield from super().read(record)

    def read_mark(self, mark: bytes, /) -> Iterator[Said]:
        """Yield what a line that is too long says: it has answered, or it has ended."""
        if not self._commanded:
            return
        if mark == ANSWER:
            self._last = Fault(kind=FaultKind.NO_RESULT, detail=TOO_LONG)
            yield from self._taken()
        else:
            yield from self._ended({})

    def _response(self, record: Json) -> Iterator[Said]:
        """Yield what an answer to a command says; the prompt may turn out to begin nothing."""
        match record.get("id"):
            case str(name) if name == SESSION:
                yield Session(id=string(record, "data", "sessionId", most=LONGEST_NAME))
            case str(name) if name == PROMPT and record.get("success") is True:
                yield self._question()
            case str(name) if name == PROMPT:
                self._last = told(string(record, "error"))
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
            if isinstance(said, Result):
                self._last = self._answers.result(said.text)
            elif isinstance(said, Fault):
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
                yield Answer(result=told)
            if isinstance(self._last, Result):
                self._last = replace(self._last, own="")
            self._answers.go_on()
            self._in_view = int(found[1])
        self._prompted = True

    def _taken(self) -> Iterator[Said]:
        if self._in_view:
            yield Taken(message=self._in_view)
        self._in_view = 0

    def _ended(self, record: Json) -> Iterator[Said]:
        """Yield that it is over, unless it may try again after an error: that is asked for.

        A newer one that tells of its retries here tells later by itself when it has settled.
        """
        self._working = False
        *_, last = ({}, *items(record, "messages"))
        if self._last is None and string(last, "stopReason") in BROKEN:
            self._last = told(string(last, "errorMessage") or "it was aborted")
        if "willRetry" in record:
            return
        if isinstance(self._last, Fault):
            yield self._question()
        else:
            yield from self._over()

    @property
    def _asked(self) -> str:
        return f"rest-{self._questions}"

    def _question(self) -> Wanted:
        self._questions += 1
        return Wanted(line=_command("get_state", self._asked).decode())

    def _over(self) -> Iterator[Said]:
        if self._last is not None:
            yield self._last
        yield Over()

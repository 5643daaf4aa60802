"""Base of readers of JSON lines; todo lists; answers by turn."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar, NamedTuple

from rota.agents.shared.result import AgentTranscript, agent_result, public_answer
from rota.agents.shared.stream import (
    MAX_NAME,
    Json,
    LineSplitter,
    StreamLine,
    decode_text,
    detail,
    one_line,
    parse,
    split_text,
    string,
)
from rota.model.agents import (
    AgentAnswer,
    AgentEvent,
    AgentProgress,
    AgentResult,
    AgentSessionStarted,
    AgentText,
    AgentUsage,
    ProcessExit,
)
from rota.model.attempts import MAX_RESULT_BYTES
from rota.ports.agent import Redaction
from rota.rules.redaction import NO_SECRETS

NOTHING = AgentUsage()
MAX_STRAY = 64 * 1024
MAX_EVENTS = 256
"""Events of one line."""


class JsonReader(ABC):
    """Reads one JSON object per line; other lines only serve to explain a failure."""

    plain: ClassVar[bool] = False
    unread: ClassVar[tuple[bytes, ...]] = ()
    """Starts of lines without events, which are not parsed."""
    marks: ClassVar[re.Pattern[bytes] | None] = None
    """Pattern searched for in lines that are too long to be parsed."""

    def __init__(self, redactor: Redaction | None = None) -> None:
        self.transcript = AgentTranscript()
        self._redactor = redactor or NO_SECRETS
        self._lines = LineSplitter(self.marks)
        self._other_output = ""

    @abstractmethod
    def read(self, record: Json) -> Iterator[AgentEvent]:
        """Yield the events of one object."""

    def read_mark(self, _mark: bytes, /) -> Iterator[AgentEvent]:
        """Yield the events of a line that is too long, by the mark found in it."""
        return iter(())

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[AgentEvent]:
        """Return the events of a line."""
        return [event for whole in self._lines.take(line, cut=cut) for event in self._take(whole)]

    def end(self, end: ProcessExit) -> AgentResult:
        """Return the result of the attempt."""
        for line in self._lines.rest():
            self._take(line)
        return agent_result(
            self.transcript, redact_stderr(end, self._redactor), self._explanation()
        )

    def _take(self, line: StreamLine) -> Sequence[AgentEvent]:
        if line.bytes.startswith(self.unread):
            return ()
        record = parse(line.bytes, self._redactor) if line.whole else None
        if record is None and line.mark is None:
            self._other_output = (
                detail(self._redactor.redact_text(decode_text(line.bytes[:MAX_STRAY])))
                or self._other_output
            )
            return ()
        events = []
        found_events = self.read(record) if record is not None else self.read_mark(line.mark or b"")
        for event in islice(found_events, MAX_EVENTS):
            if event == AgentSessionStarted(id=self.transcript.session or "") or event == NOTHING:
                continue
            for each in (*self.transcript.interim_answers(event), event):
                self.transcript.add(each)
                events.append(each)
        return events

    def _explanation(self) -> str:
        if self._lines.spilled:
            return f"{self._lines.spilled} of its lines were longer than 1 MiB and not read"
        return self._other_output


def redact_stderr(end: ProcessExit, redactor: Redaction) -> ProcessExit:
    """Return the exit of a program without known secrets in its standard error.

    They are removed before it is shortened, because a part of a secret would not be recognized.
    """
    words = decode_text(end.stderr_tail)
    if not redactor.contains_secret(words):
        return end
    return replace(end, stderr_tail=redactor.redact_text(words).encode("utf-8", "replace"))


def summarize(given: Json, telling: Sequence[str]) -> str:
    """Return a tool call's arguments in one line: the most telling one, or all of them."""
    found = next((text for key in telling if (text := string(given, key))), "")
    try:
        return one_line(found or (json.dumps(given)[:1000] if given else ""))
    except RecursionError:
        return ""


def text_events(text: str) -> Iterator[AgentText]:
    """Yield a text as events."""
    return (AgentText(text=piece) for piece in split_text(text) if piece.strip())


MAX_TODOS = 1_000


class TodoItem(NamedTuple):
    """An entry of a todo list, with the agent's own status."""

    subject: str
    status: str


def todo_item(record: Json) -> TodoItem:
    """Parse an entry of a todo list."""
    subject = one_line(string(record, "subject") or string(record, "content"))
    return TodoItem(subject, string(record, "status", limit=MAX_NAME))


class TodoTracker:
    """A todo list; reports progress only when it has changed."""

    def __init__(self) -> None:
        self._entries: dict[str, TodoItem] = {}
        self._reported: AgentProgress | None = None

    def put(self, name: str, now: TodoItem) -> None:
        """Add or update an entry; missing fields keep their values."""
        before = self._entries.get(name, TodoItem("", ""))
        if now.status == "deleted":
            self._entries.pop(name, None)
        elif name in self._entries or len(self._entries) < MAX_TODOS:
            self._entries[name] = TodoItem(
                now.subject or before.subject, now.status or before.status
            )

    def put_all(self, named: Iterable[tuple[str, TodoItem]]) -> None:
        """Replace the list."""
        self._entries = dict(islice(named, MAX_TODOS))

    def progress(self) -> Iterator[AgentProgress]:
        """Yield progress, unless it is unchanged or the list is empty."""
        todos = self._entries.values()
        done = sum(one.status == "completed" for one in todos)
        now = next((one.subject for one in todos if one.status == "in_progress"), "")
        progress = AgentProgress(percent=100.0 * done / max(1, len(todos)), message=now)
        if todos and progress != self._reported:
            self._reported = progress
            yield progress


class AnswerLog:
    """The answers of an agent turn by turn, all of which are for people."""

    def __init__(self) -> None:
        self._before = ""
        self._last = ""
        self._own = ""

    def go_on(self) -> None:
        """Note that the agent got another message, so its last answer was not final."""
        if self._last:
            self._before, self._last = self._last, ""

    def result(self, answer: str) -> AgentAnswer:
        """Return an answer as the result, after the earlier ones."""
        self._own = answer
        whole = self.all_with(answer)
        return AgentAnswer(text=whole, own=None if whole == answer else answer)

    def overtaken(self) -> AgentAnswer | None:
        """Return the last answer once, if another message came after it."""
        own, self._own = self._own, ""
        return AgentAnswer(text=own) if own else None

    def all_with(self, answer: str) -> str:
        """Return all answers with this one; a silent one adds nothing."""
        if not self._before:
            self._last = answer
        elif not answer or _is_silent(answer):
            self._last = self._before
        elif _is_silent(self._before):
            self._last = answer
        else:
            self._last = f"{self._before}\n\n{answer}"[-MAX_RESULT_BYTES:]
        return self._last


def _is_silent(answer: str) -> bool:
    return public_answer(AgentAnswer(text=answer)).silent

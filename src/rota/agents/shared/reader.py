"""What readers of agents have in common: JSON lines, todo lists, answers by turn."""

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
    decoded,
    detail,
    one_line,
    parse,
    pieces,
    string,
)
from rota.model.agents import (
    AgentAnswer,
    AgentProgress,
    AgentResult,
    AgentSessionStarted,
    AgentText,
    AgentUsage,
    ProcessExit,
    Said,
)
from rota.model.attempts import MAX_RESULT_BYTES
from rota.ports.agent import Redaction
from rota.rules.redaction import NO_SECRETS

NOTHING = AgentUsage()
MAX_STRAY = 64 * 1024
MAX_EVENTS = 256
"""How many things one line can say."""


class JsonReader(ABC):
    """Reads one object a line; other lines are kept only to explain a failure."""

    plain: ClassVar[bool] = False
    unread: ClassVar[tuple[bytes, ...]] = ()
    """How lines begin that say nothing, so that they need not be parsed."""
    marks: ClassVar[re.Pattern[bytes] | None] = None
    """What is looked for in lines that are too long to be read."""

    def __init__(self, redactor: Redaction | None = None) -> None:
        self.heard = AgentTranscript()
        self._redactor = redactor or NO_SECRETS
        self._lines = LineSplitter(self.marks)
        self._stray = ""

    @abstractmethod
    def read(self, record: Json) -> Iterator[Said]:
        """Yield what one object of the stream says."""

    def read_mark(self, _mark: bytes, /) -> Iterator[Said]:
        """Yield what a line says that is too long to be read, by the mark that is in it."""
        return iter(())

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[Said]:
        """Return what a line says."""
        return [said for whole in self._lines.take(line, cut=cut) for said in self._take(whole)]

    def end(self, end: ProcessExit) -> AgentResult:
        """Return what the attempt came to."""
        for line in self._lines.rest():
            self._take(line)
        return agent_result(self.heard, without_known(end, self._redactor), self._explanation())

    def _take(self, line: StreamLine) -> Sequence[Said]:
        if line.bytes.startswith(self.unread):
            return ()
        record = parse(line.bytes, self._redactor) if line.whole else None
        if record is None and line.mark is None:
            self._stray = (
                detail(self._redactor.text(decoded(line.bytes[:MAX_STRAY]))) or self._stray
            )
            return ()
        sayings = []
        told = self.read(record) if record is not None else self.read_mark(line.mark or b"")
        for said in islice(told, MAX_EVENTS):
            if said == AgentSessionStarted(id=self.heard.session or "") or said == NOTHING:
                continue
            for each in (*self.heard.overtaken(said), said):
                self.heard.note(each)
                sayings.append(each)
        return sayings

    def _explanation(self) -> str:
        if self._lines.spilled:
            return f"{self._lines.spilled} of its lines were longer than 1 MiB and not read"
        return self._stray


def without_known(end: ProcessExit, redactor: Redaction) -> ProcessExit:
    """Return how a program ended without known secrets in its standard error.

    They are found before a part of it is taken: what is left of one would not be known.
    """
    words = decoded(end.stderr_tail)
    if not redactor.holds(words):
        return end
    return replace(end, stderr_tail=redactor.text(words).encode("utf-8", "replace"))


def gist(given: Json, telling: Sequence[str]) -> str:
    """Return what a tool is used for in one line: the first word of it that tells, or all of it."""
    found = next((text for key in telling if (text := string(given, key))), "")
    try:
        return one_line(found or (json.dumps(given)[:1000] if given else ""))
    except RecursionError:
        return ""


def texts(text: str) -> Iterator[AgentText]:
    """Yield a text as sayings."""
    return (AgentText(text=piece) for piece in pieces(text) if piece.strip())


MAX_TODOS = 1_000


class TodoItem(NamedTuple):
    """One thing to do, and how it stands, by the agent's word for it."""

    subject: str
    status: str


def todo(record: Json) -> TodoItem:
    """Return what an entry of a list says."""
    subject = one_line(string(record, "subject") or string(record, "content"))
    return TodoItem(subject, string(record, "status", most=MAX_NAME))


class TodoTracker:
    """What there is to do; tells how far that is only when it has changed."""

    def __init__(self) -> None:
        self._listed: dict[str, TodoItem] = {}
        self._told: AgentProgress | None = None

    def put(self, name: str, now: TodoItem) -> None:
        """Put an entry into the list; what it does not say stays as it was."""
        before = self._listed.get(name, TodoItem("", ""))
        if now.status == "deleted":
            self._listed.pop(name, None)
        elif name in self._listed or len(self._listed) < MAX_TODOS:
            self._listed[name] = TodoItem(
                now.subject or before.subject, now.status or before.status
            )

    def put_all(self, named: Iterable[tuple[str, TodoItem]]) -> None:
        """Put a whole list in the place of this one."""
        self._listed = dict(islice(named, MAX_TODOS))

    def progress(self) -> Iterator[AgentProgress]:
        """Yield how far it is, unless that is told already or nothing is listed."""
        todos = self._listed.values()
        done = sum(one.status == "completed" for one in todos)
        now = next((one.subject for one in todos if one.status == "in_progress"), "")
        progress = AgentProgress(percent=100.0 * done / max(1, len(todos)), message=now)
        if todos and progress != self._told:
            self._told = progress
            yield progress


class AnswerLog:
    """What an agent has answered, turn by turn: what was for people stays for people."""

    def __init__(self) -> None:
        self._before = ""
        self._last = ""
        self._own = ""

    def go_on(self) -> None:
        """Note that more was said: what was answered so far is not the last word."""
        if self._last:
            self._before, self._last = self._last, ""

    def result(self, answer: str) -> AgentAnswer:
        """Return an answer as the result, behind those before it."""
        self._own = answer
        whole = self.all_with(answer)
        return AgentAnswer(text=whole, own=None if whole == answer else answer)

    def overtaken(self) -> AgentAnswer | None:
        """Return the answer that more was said after, once; None if there is none."""
        own, self._own = self._own, ""
        return AgentAnswer(text=own) if own else None

    def all_with(self, answer: str) -> str:
        """Return an answer behind those before it; a silent one adds nothing."""
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

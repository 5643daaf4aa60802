"""The output of any program: Rota's JSON lines where it writes them, text otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from rota.agents.shared import line_protocol
from rota.agents.shared.reader import MAX_EVENTS, texts, without_known
from rota.agents.shared.result import AgentTranscript, agent_result
from rota.agents.shared.stream import (
    MAX_TEXT,
    TOO_LONG,
    Json,
    LineSplitter,
    StreamLine,
    TextExcerpt,
    decoded,
    parse,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentResult,
    AgentStyledText,
    OutputFormat,
    ProcessExit,
    Said,
)
from rota.model.text import clean, coloured
from rota.ports.agent import Redaction
from rota.rules.redaction import NO_SECRETS

MARK = b'"rota"'
LAST = re.compile(rb'"rota"\s{0,9}:\s{0,9}"(?:result|error|question)"')
"""What is in a line after which a program has nothing more to say."""


class CommandReader:
    """Reads a program's output.

    A `result` line is the result. Without one it is the whole text, the last line, or, where lines
    of Rota's were agreed on, nothing: then the attempt has failed. A program that prints nothing
    and ends well has succeeded without a result, unless such lines were agreed on. A line is text
    if it is too long or not understood; one that is `told` more line by line has failed if that was
    its result. What is said by one that has no provider is never taken for the words of one.
    """

    plain = True

    def __init__(
        self,
        output: OutputFormat,
        redactor: Redaction | None = None,
        *,
        told: bool = False,
        has_provider: bool = True,
    ) -> None:
        self._redactor = redactor or NO_SECRETS
        self._output = output
        self._heard = AgentTranscript(
            may_be_silent=True, has_provider=has_provider, own_errors=True
        )
        self._lines = LineSplitter(LAST if told else None)
        self._text = TextExcerpt()

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[Said]:
        """Return what a line says."""
        told = (said for whole in self._lines.take(line, cut=cut) for said in self._said(whole))
        sayings = []
        for said in islice(told, MAX_EVENTS):
            for each in (*self._heard.overtaken(said), said):
                self._heard.note(each)
                sayings.append(each)
        return sayings

    def end(self, end: ProcessExit) -> AgentResult:
        """Return what the attempt came to."""
        for line in self._lines.rest():
            for said in self._said(line):
                self._heard.note(said)
        if self._heard.last is None and not self._heard.question:
            self._conclude()
        return agent_result(self._heard, without_known(end, self._redactor), self._text.last_line)

    def _said(self, line: StreamLine) -> Iterator[Said]:
        record = parse(line.bytes, self._redactor) if line.whole and MARK in line.bytes else None
        told = None
        if record is not None and "rota" in record:
            told = line_protocol.said(record, has_provider=self._heard.has_provider)
        if told is None or _is_unkept(told, record):
            yield from self._shown(line)
        yield from told or ()

    def _shown(self, line: StreamLine) -> Iterator[Said]:
        raw = self._redactor.text(decoded(line.bytes))
        text = clean(raw)
        self._text.add(text)
        ansi = coloured(raw) if len(raw) <= MAX_TEXT else None
        if ansi is not None and text.strip():
            yield AgentStyledText(text=text, ansi=ansi)
        else:
            yield from texts(text)
        if line.mark is not None:
            yield AgentError(kind=AgentErrorKind.NO_RESULT, detail=TOO_LONG)

    def _conclude(self) -> None:
        if self._output is OutputFormat.LINES:
            return
        text = self._text.last_line if self._output is OutputFormat.LAST_LINE else self._text.text()
        self._heard.note(AgentAnswer(text=text))


def _is_unkept(told: Sequence[Said], record: Json | None) -> bool:
    """Whether a line has more than is kept of it: then people may look at it.

    It is told to be a fault and was not meant as one, or has words that nobody knows.
    """
    if record is not None and line_protocol.is_partly_kept(record):
        return True
    meant = record is not None and record.get("rota") == "error"
    return not meant and any(isinstance(said, AgentError) for said in told)

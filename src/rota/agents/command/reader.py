"""The output of any program: JSON lines of Rota's protocol, and text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from rota.agents.shared import line_protocol
from rota.agents.shared.reader import MAX_EVENTS, redact_stderr, text_events
from rota.agents.shared.result import AgentTranscript, agent_result
from rota.agents.shared.stream import (
    MAX_TEXT,
    TOO_LONG,
    Json,
    LineSplitter,
    StreamLine,
    TextExcerpt,
    decode_text,
    parse,
)
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentEvent,
    AgentResult,
    AgentStyledText,
    OutputFormat,
    ProcessExit,
)
from rota.model.text import clean, coloured
from rota.ports.agent import Redaction
from rota.rules.redaction import NO_SECRETS

MARK = b'"rota"'
FINAL_LINE = re.compile(rb'"rota"\s{0,9}:\s{0,9}"(?:result|error|question)"')
"""Marks a line with which a program ends its work."""


class CommandReader:
    """Reads a program's output.

    A `result` line is the result. Without one it is, depending on `output`, the whole text, the
    last line, or nothing: then the attempt failed. A program without output that exits with 0 has
    succeeded without a result, unless lines are required. Lines that are too long or invalid are
    text; if a program that reads lines (`told`) writes its result in such a line, the attempt
    failed. Without a provider, text is never taken for an error of one.
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
        self._transcript = AgentTranscript(
            may_be_silent=True, has_provider=has_provider, own_errors=True
        )
        self._lines = LineSplitter(FINAL_LINE if told else None)
        self._text = TextExcerpt()

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[AgentEvent]:
        """Return the events of a line."""
        told = (
            event for whole in self._lines.take(line, cut=cut) for event in self._line_events(whole)
        )
        events = []
        for event in islice(told, MAX_EVENTS):
            for each in (*self._transcript.interim_answers(event), event):
                self._transcript.add(each)
                events.append(each)
        return events

    def end(self, end: ProcessExit) -> AgentResult:
        """Return the result of the attempt."""
        for line in self._lines.rest():
            for event in self._line_events(line):
                self._transcript.add(event)
        if self._transcript.last is None and not self._transcript.question:
            self._conclude()
        return agent_result(
            self._transcript, redact_stderr(end, self._redactor), self._text.last_line
        )

    def _line_events(self, line: StreamLine) -> Iterator[AgentEvent]:
        record = parse(line.bytes, self._redactor) if line.whole and MARK in line.bytes else None
        told = None
        if record is not None and "rota" in record:
            told = line_protocol.line_events(record, has_provider=self._transcript.has_provider)
        if told is None or _is_shown_too(told, record):
            yield from self._text_events(line)
        yield from told or ()

    def _text_events(self, line: StreamLine) -> Iterator[AgentEvent]:
        raw = self._redactor.redact_text(decode_text(line.bytes))
        text = clean(raw)
        self._text.add(text)
        ansi = coloured(raw) if len(raw) <= MAX_TEXT else None
        if ansi is not None and text.strip():
            yield AgentStyledText(text=text, ansi=ansi)
        else:
            yield from text_events(text)
        if line.mark is not None:
            yield AgentError(kind=AgentErrorKind.NO_RESULT, detail=TOO_LONG)

    def _conclude(self) -> None:
        if self._output is OutputFormat.LINES:
            return
        text = self._text.last_line if self._output is OutputFormat.LAST_LINE else self._text.text()
        self._transcript.add(AgentAnswer(text=text))


def _is_shown_too(told: Sequence[AgentEvent], record: Json | None) -> bool:
    """Whether a line is shown to people as well, because part of it is not recorded.

    That is a line with unknown fields, or one that is invalid although it was not meant as an
    error.
    """
    if record is not None and line_protocol.has_unknown_fields(record):
        return True
    meant = record is not None and record.get("rota") == "error"
    return not meant and any(isinstance(event, AgentError) for event in told)

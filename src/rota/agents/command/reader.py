"""Reads any program: lines of Rota's where it writes them, text everywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from rota.agents.kit import rota_lines
from rota.agents.kit.judging import Heard, judge
from rota.agents.kit.lines import TOO_LONG, Json, Line, Lines, parse
from rota.agents.kit.reading import MOST_SAYINGS, texts, without_known
from rota.agents.kit.text import LONGEST_TEXT, Gathered, decoded
from rota.model.faults import FaultKind
from rota.model.said import ColouredText, Fault, Result, Said
from rota.model.texts import clean, coloured
from rota.model.verdicts import Exit, Verdict
from rota.model.wishes import Output
from rota.ports.agent import Redaction
from rota.rules.redaction import NOTHING_KNOWN

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
        output: Output,
        redactor: Redaction | None = None,
        *,
        told: bool = False,
        has_provider: bool = True,
    ) -> None:
        self._redactor = redactor or NOTHING_KNOWN
        self._output = output
        self._heard = Heard(may_be_silent=True, has_provider=has_provider, own_errors=True)
        self._lines = Lines(LAST if told else None)
        self._text = Gathered()

    def feed(self, line: bytes, *, cut: bool = False) -> Sequence[Said]:
        """Return what a line says."""
        told = (said for whole in self._lines.take(line, cut=cut) for said in self._said(whole))
        sayings = []
        for said in islice(told, MOST_SAYINGS):
            for each in (*self._heard.overtaken(said), said):
                self._heard.note(each)
                sayings.append(each)
        return sayings

    def end(self, end: Exit) -> Verdict:
        """Return what the attempt came to."""
        for line in self._lines.rest():
            for said in self._said(line):
                self._heard.note(said)
        if self._heard.last is None and not self._heard.question:
            self._conclude()
        return judge(self._heard, without_known(end, self._redactor), self._text.last_line)

    def _said(self, line: Line) -> Iterator[Said]:
        record = parse(line.bytes, self._redactor) if line.whole and MARK in line.bytes else None
        told = None
        if record is not None and "rota" in record:
            told = rota_lines.said(record, has_provider=self._heard.has_provider)
        if told is None or _is_unkept(told, record):
            yield from self._shown(line)
        yield from told or ()

    def _shown(self, line: Line) -> Iterator[Said]:
        raw = self._redactor.text(decoded(line.bytes))
        text = clean(raw)
        self._text.add(text)
        ansi = coloured(raw) if len(raw) <= LONGEST_TEXT else None
        if ansi is not None and text.strip():
            yield ColouredText(text=text, ansi=ansi)
        else:
            yield from texts(text)
        if line.mark is not None:
            yield Fault(kind=FaultKind.NO_RESULT, detail=TOO_LONG)

    def _conclude(self) -> None:
        if self._output is Output.LINES:
            return
        text = self._text.last_line if self._output is Output.LAST_LINE else self._text.text()
        self._heard.note(Result(text=text))


def _is_unkept(told: Sequence[Said], record: Json | None) -> bool:
    """Whether a line has more than is kept of it: then people may look at it.

    It is told to be a fault and was not meant as one, or has words that nobody knows.
    """
    if record is not None and rota_lines.is_partly_kept(record):
        return True
    meant = record is not None and record.get("rota") == "error"
    return not meant and any(isinstance(said, Fault) for said in told)

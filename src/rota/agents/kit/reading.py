"""The reader that agents with a stream of JSON share."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar

from rota.agents.kit.judging import Heard, judge
from rota.agents.kit.lines import Json, Line, Lines, parse, string
from rota.agents.kit.text import decoded, detail, one_line, pieces
from rota.model.said import Said, Session, Text, Usage
from rota.model.verdicts import Exit, Verdict
from rota.ports.agent import Redaction
from rota.rules.redaction import NOTHING_KNOWN

NOTHING = Usage()
LONGEST_STRAY = 64 * 1024
MOST_SAYINGS = 256
"""How many things one line can say."""


class JsonReader(ABC):
    """Reads one object a line; other lines are kept only to explain a failure."""

    plain: ClassVar[bool] = False
    unread: ClassVar[tuple[bytes, ...]] = ()
    """How lines begin that say nothing, so that they need not be parsed."""
    marks: ClassVar[re.Pattern[bytes] | None] = None
    """What is looked for in lines that are too long to be read."""

    def __init__(self, redactor: Redaction | None = None) -> None:
        self.heard = Heard()
        self._redactor = redactor or NOTHING_KNOWN
        self._lines = Lines(self.marks)
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

    def end(self, end: Exit) -> Verdict:
        """Return what the attempt came to."""
        for line in self._lines.rest():
            self._take(line)
        return judge(self.heard, without_known(end, self._redactor), self._explanation())

    def _take(self, line: Line) -> Sequence[Said]:
        if line.bytes.startswith(self.unread):
            return ()
        record = parse(line.bytes, self._redactor) if line.whole else None
        if record is None and line.mark is None:
            self._stray = (
                detail(self._redactor.text(decoded(line.bytes[:LONGEST_STRAY]))) or self._stray
            )
            return ()
        sayings = []
        told = self.read(record) if record is not None else self.read_mark(line.mark or b"")
        for said in islice(told, MOST_SAYINGS):
            if said == Session(id=self.heard.session or "") or said == NOTHING:
                continue
            for each in (*self.heard.overtaken(said), said):
                self.heard.note(each)
                sayings.append(each)
        return sayings

    def _explanation(self) -> str:
        if self._lines.spilled:
            return f"{self._lines.spilled} of its lines were longer than 1 MiB and not read"
        return self._stray


def without_known(end: Exit, redactor: Redaction) -> Exit:
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


def texts(text: str) -> Iterator[Text]:
    """Yield a text as sayings."""
    return (Text(text=piece) for piece in pieces(text) if piece.strip())

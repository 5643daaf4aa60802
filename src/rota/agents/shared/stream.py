"""Bounded lines and safe text from the output of a program."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

from rota.model.attempts import MAX_RESULT_BYTES
from rota.model.text import clean
from rota.ports.agent import Redaction
from rota.rules.redaction import NO_SECRETS

MAX_TEXT = 16_000
"""Characters of one event; longer texts become several events."""
MAX_DETAIL = 2_000
MAX_SUMMARY = 200
MAX_NAME = 200
MAX_EXCERPT = 96 * 1024
"""Characters kept of each end of a long output."""

SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|xox[abp])[-_][\w-][\w.~+/=-]{11,}|(?i:\bbearer\s+)[\w.~+/=-]{8,}"
)
"""Strings that look like keys; known secrets are redacted before, by value."""


def decode_text(line: bytes) -> str:
    """Decode bytes as UTF-8, replacing invalid ones."""
    return line.decode("utf-8", "replace")


def clip(text: str, limit: int) -> str:
    """Shorten a text, and mark the cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def one_line(text: str, limit: int = MAX_SUMMARY) -> str:
    """Return a text as one short line, without what looks like a key."""
    return clip(" ".join(mask_secrets(clean(text[: limit * 4])).split()), limit)


def detail(text: str) -> str:
    """Return the text of an error, shortened and without what looks like a key."""
    return clip(mask_secrets(clean(text[: MAX_DETAIL * 4])).strip(), MAX_DETAIL)


def mask_secrets(text: str) -> str:
    """Replace what looks like a key."""
    return SECRET.sub("[secret]", text)


def split_text(text: str) -> Iterator[str]:
    """Split a text into parts for one event each."""
    for start in range(0, len(text), MAX_TEXT):
        yield text[start : start + MAX_TEXT]


class TextExcerpt:
    """Start and end of a text of any length."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_size = self._tail_size = self._lost = 0
        self.last_line = ""

    def add(self, line: str) -> None:
        """Add a line."""
        line = clip(line, MAX_EXCERPT)
        if line.strip():
            self.last_line = line
        if self._head_size + len(line) <= MAX_EXCERPT and not self._tail:
            self._head.append(line)
            self._head_size += len(line) + 1
            return
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > MAX_EXCERPT and len(self._tail) > 1:
            gone = len(self._tail.popleft()) + 1
            self._tail_size -= gone
            self._lost += gone

    def text(self) -> str:
        """Return the text; a note in its middle says how much was left out."""
        missing = [f"[{self._lost} characters left out]"] if self._lost else []
        return "\n".join([*self._head, *missing, *self._tail]).strip("\n")


def encode_text(text: str) -> str:
    """Return a text as JSON, shortened in its middle if it is too long for a result."""
    encoded = json.dumps(text, ensure_ascii=False)
    half = len(text) // 2
    while len(encoded.encode()) > MAX_RESULT_BYTES:
        half = half * 9 // 10
        left = len(text) - 2 * half
        shorter = f"{text[:half]}\n[{left} characters left out]\n{text[-half:]}"
        encoded = json.dumps(shorter, ensure_ascii=False)
    return encoded


MAX_LINE = 1024 * 1024
"""Bytes of a line that are joined; longer lines are text."""
TOO_LONG = "its result is longer than 1 MiB and was not read"
MAX_MARK = 200
"""Bytes kept of a part of a long line, to find a mark across two parts."""
MAX_TOKENS = 10**9
MAX_DOLLARS = 10_000.0
"""Upper bounds of one line's usage, so that daily sums fit their columns."""
MAX_NUMBER = 2**53

Json: TypeAlias = dict[str, object]
Mark: TypeAlias = bytes


class StreamLine(NamedTuple):
    """A line, or a part of one that is too long to be `whole`.

    The last part has the `mark` found in such a line.
    """

    bytes: bytes
    whole: bool
    mark: Mark | None = None


class LineSplitter:
    """Joins the pieces of lines; in lines that are too long it searches for a mark."""

    def __init__(self, marks: re.Pattern[bytes] | None = None) -> None:
        self._marks = marks
        self._buffer = bytearray()
        self._spilling = False
        self._seam = b""
        self._mark: bytes | None = None
        self.spilled = 0

    def take(self, piece: bytes, *, cut: bool) -> Sequence[StreamLine]:
        """Return the lines completed by a piece; too long ones are returned in parts."""
        if self._spilling:
            return (self._spill(piece, cut=cut),)
        if len(self._buffer) + len(piece) > MAX_LINE:
            self.spilled += 1
            buffered, self._buffer = bytes(self._buffer), bytearray()
            first = (self._spill(buffered, cut=True),) if buffered else ()
            return (*first, self._spill(piece, cut=cut))
        if not cut and not self._buffer:
            return (StreamLine(piece.rstrip(b"\r\n"), whole=True),)
        self._buffer += piece
        return () if cut else self.rest()

    def rest(self) -> Sequence[StreamLine]:
        """Return an incomplete last line."""
        buffered, self._buffer = bytes(self._buffer), bytearray()
        return (StreamLine(buffered.rstrip(b"\r\n"), whole=True),) if buffered else ()

    def _spill(self, piece: bytes, *, cut: bool) -> StreamLine:
        """Return a part of a line that is too long."""
        if self._marks is not None and self._mark is None:
            seam = self._seam + piece
            found = self._marks.search(seam)
            self._mark = None if found is None else found[0]
            self._seam = seam[-MAX_MARK:]
        self._spilling = cut
        if cut:
            return StreamLine(piece, whole=False)
        mark, self._mark, self._seam = self._mark, None, b""
        return StreamLine(piece, whole=False, mark=mark)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def parse(line: bytes, redactor: Redaction = NO_SECRETS) -> Json | None:
    """Return a line's JSON object without known secrets; None if it is none."""
    text = decode_text(line).strip()
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text, parse_constant=_refuse)
        if redactor.contains_secret(text):
            found = redactor.redact_json(found)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def value_at(record: object, *path: str) -> object:
    """Return the value at a path, or None."""
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def mapping(record: object, *path: str) -> Json:
    """Return the object at a path, or an empty one."""
    found = value_at(record, *path)
    return found if isinstance(found, dict) else {}


def items(record: object, *path: str) -> Iterator[Json]:
    """Yield the objects of the list at a path."""
    found = value_at(record, *path)
    return (
        (item for item in found if isinstance(item, dict)) if isinstance(found, list) else iter(())
    )


def words(record: object, *path: str) -> Iterator[str]:
    """Yield the cleaned strings of the list at a path."""
    found = value_at(record, *path)
    listed = found if isinstance(found, list) else []
    return (clean(item) for item in listed if isinstance(item, str))


def string(record: object, *path: str, limit: int | None = None) -> str:
    """Return the cleaned string at a path, or an empty one."""
    found = value_at(record, *path)
    text = clean(found) if isinstance(found, str) else ""
    return text if limit is None else clip(text, limit)


def count(record: object, *path: str) -> int:
    """Return the number at a path as a count; 0 if it is invalid."""
    found = number(record, *path)
    return int(min(found, MAX_TOKENS)) if found is not None and found > 0 else 0


def number(record: object, *path: str) -> float | None:
    """Return the finite number at a path, or None."""
    found = value_at(record, *path)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if isinstance(found, int) and abs(found) > MAX_NUMBER:
        return float(math.copysign(MAX_NUMBER, found))
    return float(found) if math.isfinite(found) else None


def dollars(record: object, *path: str) -> float | None:
    """Return the cost at a path, limited to a plausible range."""
    found = number(record, *path)
    return None if found is None else min(MAX_DOLLARS, max(0.0, found))


def percent(found: float | None) -> float | None:
    """Limit a number to 0 to 100."""
    return None if found is None else min(100.0, max(0.0, found))

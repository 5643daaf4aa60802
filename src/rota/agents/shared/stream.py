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
"""How many characters one saying may have; a longer text is said in several."""
MAX_DETAIL = 2_000
MAX_SUMMARY = 200
MAX_NAME = 200
KEPT = 96 * 1024
"""How many characters of each end of a long output are kept."""

SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|xox[abp])[-_][\w-][\w.~+/=-]{11,}|(?i:\bbearer\s+)[\w.~+/=-]{8,}"
)
"""What looks like a key. Keys that are known were taken out before, by their value."""


def decoded(line: bytes) -> str:
    """Return bytes as text, whatever they are."""
    return line.decode("utf-8", "replace")


def clip(text: str, most: int) -> str:
    """Return text that is not longer than that, and shows where it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: str, most: int = MAX_SUMMARY) -> str:
    """Return the text as one short line, with what looks like a key left out."""
    return clip(" ".join(without_secrets(clean(text[: most * 4])).split()), most)


def detail(text: str) -> str:
    """Return an error's own words, bounded, with what looks like a key left out."""
    return clip(without_secrets(clean(text[: MAX_DETAIL * 4])).strip(), MAX_DETAIL)


def without_secrets(text: str) -> str:
    """Return text in which what looks like a key is replaced."""
    return SECRET.sub("[secret]", text)


def pieces(text: str) -> Iterator[str]:
    """Yield a text in parts that fit one saying each."""
    for start in range(0, len(text), MAX_TEXT):
        yield text[start : start + MAX_TEXT]


class TextExcerpt:
    """Both ends of a text that may be endless."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_size = self._tail_size = self._lost = 0
        self.last_line = ""

    def add(self, line: str) -> None:
        """Add a line."""
        line = clip(line, KEPT)
        if line.strip():
            self.last_line = line
        if self._head_size + len(line) <= KEPT and not self._tail:
            self._head.append(line)
            self._head_size += len(line) + 1
            return
        self._tail.append(line)
        self._tail_size += len(line) + 1
        while self._tail_size > KEPT and len(self._tail) > 1:
            gone = len(self._tail.popleft()) + 1
            self._tail_size -= gone
            self._lost += gone

    def text(self) -> str:
        """Return what was gathered, saying in the middle how much is missing."""
        missing = [f"[{self._lost} characters left out]"] if self._lost else []
        return "\n".join([*self._head, *missing, *self._tail]).strip("\n")


def encode_text(text: str) -> str:
    """Return a text as the JSON of a result, cut in its middle if it is too long to be kept."""
    encoded = json.dumps(text, ensure_ascii=False)
    half = len(text) // 2
    while len(encoded.encode()) > MAX_RESULT_BYTES:
        half = half * 9 // 10
        left = len(text) - 2 * half
        shorter = f"{text[:half]}\n[{left} characters left out]\n{text[-half:]}"
        encoded = json.dumps(shorter, ensure_ascii=False)
    return encoded


MAX_LINE = 1024 * 1024
"""How many bytes of a line are put together again; a longer one is only text."""
TOO_LONG = "its result is longer than 1 MiB and was not read"
MAX_MARK = 200
"""How many bytes of a line that is too long are kept, to find what is at the seam of two parts."""
MAX_TOKENS = 10**9
MAX_DOLLARS = 10_000.0
"""What one line may tell of what was used: the sum of a day's lines has room in a column."""
LARGEST = 2**53

Json: TypeAlias = dict[str, object]
Mark: TypeAlias = bytes


class StreamLine(NamedTuple):
    """A line, or a part of one that is too long to be `whole`.

    The last part has the `mark` that was found anywhere in such a line.
    """

    bytes: bytes
    whole: bool
    mark: Mark | None = None


class LineSplitter:
    """Puts the pieces of cut lines together; of those that are too long it looks for a mark."""

    def __init__(self, marks: re.Pattern[bytes] | None = None) -> None:
        self._marks = marks
        self._held = bytearray()
        self._spilling = False
        self._seam = b""
        self._mark: bytes | None = None
        self.spilled = 0

    def take(self, piece: bytes, *, cut: bool) -> Sequence[StreamLine]:
        """Return the lines that end with a piece; a line that grows too long comes in parts."""
        if self._spilling:
            return (self._spill(piece, cut=cut),)
        if len(self._held) + len(piece) > MAX_LINE:
            self.spilled += 1
            held, self._held = bytes(self._held), bytearray()
            first = (self._spill(held, cut=True),) if held else ()
            return (*first, self._spill(piece, cut=cut))
        if not cut and not self._held:
            return (StreamLine(piece.rstrip(b"\r\n"), whole=True),)
        self._held += piece
        return () if cut else self.rest()

    def rest(self) -> Sequence[StreamLine]:
        """Return what a stream ended with in the middle of a line."""
        held, self._held = bytes(self._held), bytearray()
        return (StreamLine(held.rstrip(b"\r\n"), whole=True),) if held else ()

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
    """Return the object a line is, without known secrets in it, or None for everything else."""
    text = decoded(line).strip()
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text, parse_constant=_refuse)
        if redactor.holds(text):
            found = redactor.data(found)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def inside(record: object, *path: str) -> object:
    """Return what stands at a path of an object, or None."""
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def mapping(record: object, *path: str) -> Json:
    """Return the object at a path, or an empty one."""
    found = inside(record, *path)
    return found if isinstance(found, dict) else {}


def items(record: object, *path: str) -> Iterator[Json]:
    """Yield the objects of the list at a path."""
    found = inside(record, *path)
    return (
        (item for item in found if isinstance(item, dict)) if isinstance(found, list) else iter(())
    )


def words(record: object, *path: str) -> Iterator[str]:
    """Yield the strings of the list at a path, made safe."""
    found = inside(record, *path)
    listed = found if isinstance(found, list) else []
    return (clean(item) for item in listed if isinstance(item, str))


def string(record: object, *path: str, most: int | None = None) -> str:
    """Return the string at a path, made safe, or an empty one."""
    found = inside(record, *path)
    text = clean(found) if isinstance(found, str) else ""
    return text if most is None else clip(text, most)


def count(record: object, *path: str) -> int:
    """Return the number of tokens at a path; nonsense is none."""
    found = number(record, *path)
    return int(min(found, MAX_TOKENS)) if found is not None and found > 0 else 0


def number(record: object, *path: str) -> float | None:
    """Return the finite number at a path, or None."""
    found = inside(record, *path)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if isinstance(found, int) and abs(found) > LARGEST:
        return float(math.copysign(LARGEST, found))
    return float(found) if math.isfinite(found) else None


def dollars(record: object, *path: str) -> float | None:
    """Return the cost at a path; nonsense is brought into range."""
    found = number(record, *path)
    return None if found is None else min(MAX_DOLLARS, max(0.0, found))


def percent(found: float | None) -> float | None:
    """Return a number as a share between 0 and 100."""
    return None if found is None else min(100.0, max(0.0, found))

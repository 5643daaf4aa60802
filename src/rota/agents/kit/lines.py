"""Lines of a stream: put together from their pieces, bounded, and read as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn, TypeAlias

from rota.agents.kit.text import clip, decoded
from rota.model.texts import clean
from rota.ports.agent import Redaction
from rota.rules.redaction import NOTHING_KNOWN

LONGEST_LINE = 1024 * 1024
"""How many bytes of a line are put together again; a longer one is only text."""
TOO_LONG = "its result is longer than 1 MiB and was not read"
LONGEST_MARK = 200
"""How many bytes of a line that is too long are kept, to find what is at the seam of two parts."""
MOST_TOKENS = 10**9
MOST_DOLLARS = 10_000.0
"""What one line may tell of what was used: the sum of a day's lines has room in a column."""
LARGEST = 2**53

Json: TypeAlias = dict[str, object]
Mark: TypeAlias = bytes


class Line(NamedTuple):
    """A line, or a part of one that is too long to be `whole`.

    The last part has the `mark` that was found anywhere in such a line.
    """

    bytes: bytes
    whole: bool
    mark: Mark | None = None


class Lines:
    """Puts the pieces of cut lines together; of those that are too long it looks for a mark."""

    def __init__(self, marks: re.Pattern[bytes] | None = None) -> None:
        self._marks = marks
        self._held = bytearray()
        self._spilling = False
        self._seam = b""
        self._mark: bytes | None = None
        self.spilled = 0

    def take(self, piece: bytes, *, cut: bool) -> Sequence[Line]:
        """Return the lines that end with a piece; a line that grows too long comes in parts."""
        if self._spilling:
            return (self._spill(piece, cut=cut),)
        if len(self._held) + len(piece) > LONGEST_LINE:
            self.spilled += 1
            held, self._held = bytes(self._held), bytearray()
            first = (self._spill(held, cut=True),) if held else ()
            return (*first, self._spill(piece, cut=cut))
        if not cut and not self._held:
            return (Line(piece.rstrip(b"\r\n"), whole=True),)
        self._held += piece
        return () if cut else self.rest()

    def rest(self) -> Sequence[Line]:
        """Return what a stream ended with in the middle of a line."""
        held, self._held = bytes(self._held), bytearray()
        return (Line(held.rstrip(b"\r\n"), whole=True),) if held else ()

    def _spill(self, piece: bytes, *, cut: bool) -> Line:
        """Return a part of a line that is too long."""
        if self._marks is not None and self._mark is None:
            seam = self._seam + piece
            found = self._marks.search(seam)
            self._mark = None if found is None else found[0]
            self._seam = seam[-LONGEST_MARK:]
        self._spilling = cut
        if cut:
            return Line(piece, whole=False)
        mark, self._mark, self._seam = self._mark, None, b""
        return Line(piece, whole=False, mark=mark)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def parse(line: bytes, redactor: Redaction = NOTHING_KNOWN) -> Json | None:
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
    return int(min(found, MOST_TOKENS)) if found is not None and found > 0 else 0


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
    return None if found is None else min(MOST_DOLLARS, max(0.0, found))


def percent(found: float | None) -> float | None:
    """Return a number as a share between 0 and 100."""
    return None if found is None else min(100.0, max(0.0, found))

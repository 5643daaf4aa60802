"""Making text of programs safe: to show, to store, and in its size."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator

from rota.model.outcomes import LONGEST_RESULT
from rota.model.texts import clean

LONGEST_TEXT = 16_000
"""How many characters one saying may have; a longer text is said in several."""
LONGEST_DETAIL = 2_000
LONGEST_SUMMARY = 200
LONGEST_NAME = 200
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


def one_line(text: str, most: int = LONGEST_SUMMARY) -> str:
    """Return the text as one short line, with what looks like a key left out."""
    return clip(" ".join(without_secrets(clean(text[: most * 4])).split()), most)


def detail(text: str) -> str:
    """Return an error's own words, bounded, with what looks like a key left out."""
    return clip(without_secrets(clean(text[: LONGEST_DETAIL * 4])).strip(), LONGEST_DETAIL)


def without_secrets(text: str) -> str:
    """Return text in which what looks like a key is replaced."""
    return SECRET.sub("[secret]", text)


def pieces(text: str) -> Iterator[str]:
    """Yield a text in parts that fit one saying each."""
    for start in range(0, len(text), LONGEST_TEXT):
        yield text[start : start + LONGEST_TEXT]


class Gathered:
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
    while len(encoded.encode()) > LONGEST_RESULT:
        half = half * 9 // 10
        left = len(text) - 2 * half
        shorter = f"{text[:half]}\n[{left} characters left out]\n{text[-half:]}"
        encoded = json.dumps(shorter, ensure_ascii=False)
    return encoded

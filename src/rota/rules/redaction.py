"""Known secrets are found by value, however they are written, and replaced.

It guards against accidents. Whoever has a secret and wants it read can always write it in a way
that nobody knows.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from rota.errors import Invalid

SHORTEST = 8
"""How many characters a secret has at least: what is shorter stands in ordinary text, too."""
LONGEST = 64 * 1024
MIN_FORM = 8
OVERLAPS = 4
"""How many times its own length of a text is compared again for secrets that overlap."""
MIN_LINE = 16
"""From which length one line of a secret of several lines is looked for alone."""


def check_value(value: str) -> None:
    """Refuse what cannot be told from ordinary text, without repeating it."""
    if len(value) < SHORTEST:
        advice = f"a secret has at least {SHORTEST} characters: a shorter one cannot be redacted"
        raise Invalid("value", "…", advice)
    if len(value) > LONGEST:
        raise Invalid("value", "…", f"a secret has at most {LONGEST} characters")
    if "\0" in value or not value.strip():
        raise Invalid("value", "…", "a secret is text, and no NUL is in it")


def forms_of(value: str) -> set[str]:
    """Return the ways in which a secret may be written."""
    forms = {value, value.strip()}
    lines = [line.strip() for line in value.splitlines()]
    forms |= {line for line in lines if len(lines) > 1 and len(line) >= MIN_LINE}
    for plain in tuple(forms):
        forms |= set(_escaped(plain))
        forms |= set(_in_base64(plain.encode("utf-8", "surrogatepass")))
    return {form for form in forms if len(form) >= MIN_FORM}


def _escaped(plain: str) -> Iterator[str]:
    for once in (*_in_json(plain), *_in_repr(plain)):
        yield once
        yield json.dumps(once)[1:-1]
    for escaped in (quote(plain, safe=""), quote(plain), quote_plus(plain)):
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)
    in_hex = plain.encode("utf-8", "surrogatepass").hex()
    yield in_hex
    yield in_hex.upper()


def _in_json(plain: str) -> Iterator[str]:
    for ascii_only in (True, False):
        once = json.dumps(plain, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield once.replace("/", "\\/")
    yield "".join(map(_in_capitals, plain))


def _in_capitals(sign: str) -> str:
    once = json.dumps(sign)[1:-1]
    return once if sign.isascii() else once.upper().replace("\\U", "\\u")


def _in_repr(plain: str) -> Iterator[str]:
    """Yield what Python's `repr` and `ascii` make of it, as text and as bytes.

    What stands around it decides whether a single quotation mark is escaped.
    """
    parts = plain.split("'")
    written = (
        [repr(f'"{part}')[2:-1] for part in parts],
        [ascii(f'"{part}')[2:-1] for part in parts],
        [repr(f'"{part}'.encode("utf-8", "surrogatepass"))[3:-1] for part in parts],
    )
    for told in written:
        yield "'".join(told)
        yield "\\'".join(told)


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield the part of each alignment that does not depend on what stands around it."""
    for before in range(3):
        bits = before * 8
        text = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        first, last = -(-bits // 6), (bits + len(data) * 8) // 6
        inner = text[first:last]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


class Redactor:
    """Puts `[secret NAME]` where a secret stands; does nothing, and costs nothing, without any."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self.know(secrets or {})

    @property
    def active(self) -> bool:
        """Whether it knows any secret."""
        return self._pattern is not None

    def know(self, secrets: Mapping[str, str]) -> None:
        """Look for these from now on, and for nothing else."""
        names: dict[str, str] = {}
        for name, value in secrets.items():
            for form in forms_of(value):
                names.setdefault(form, name)
        self._names = names
        self._pattern = re.compile(_tree(names)) if names else None

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        pattern = self._pattern
        found = None if pattern is None else pattern.search(text)
        return text if pattern is None or found is None else self._named(text, pattern, found)

    def _named(self, text: str, pattern: re.Pattern[str], first: re.Match[str]) -> str:
        """Return a text with one name for all that overlaps, so that no part of it stays."""
        found: re.Match[str] | None = first
        parts, told, left = [], 0, LONGEST + OVERLAPS * len(text)
        while found is not None:
            start, end = found.span()
            parts += [text[told:start], f"[secret {self._names[found[0]]}]"]
            while found is not None and found.start() < end:
                end = max(end, found.end())
                left -= found.end() - found.start()
                # A secret that repeats itself overlaps at each character: the work has a bound.
                found = pattern.search(text, found.start() + 1 if left > 0 else end)
            told = end
        return "".join([*parts, text[told:]])

    def holds(self, text: str) -> bool:
        """Whether a secret stands in a text."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def data(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return what JSON can hold without secrets in any text or name of it."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(name): self.data(inner) for name, inner in value.items()}
        if type(value) in {list, tuple}:
            return type(value)(self.data(inner) for inner in value)
        return value


NOTHING_KNOWN = Redactor()


def _tree(words: Mapping[str, str]) -> str:
    """Return a pattern that tries at most one word for each beginning, the longest first."""
    ordered = sorted(words)
    return _branch(ordered, 0)


def _branch(words: list[str], at: int) -> str:
    """Return the pattern of what follows the first `at` characters, which all words share."""
    if len(words) == 1:
        return re.escape(words[0][at:])
    ends = len(words[0]) == at
    groups: dict[str, list[str]] = {}
    for word in words[1:] if ends else words:
        groups.setdefault(word[at], []).append(word)
    branches = []
    for letter, group in groups.items():
        shared = at + 1
        while all(len(word) > shared and word[shared] == group[0][shared] for word in group):
            if len(group) == 1:
                shared = len(group[0])
                break
            shared += 1
        rest = "" if len(group) == 1 else _branch(group, shared)
        branches.append(re.escape(letter + group[0][at + 1 : shared]) + rest)
    joined = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{joined}?" if ends else joined

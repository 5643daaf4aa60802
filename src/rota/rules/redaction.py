"""Redaction: known secrets are found by value, in the usual encodings, and replaced.

It protects against accidents. A program that has a secret and wants to publish it can always find
an encoding that is not recognized.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from rota.errors import Invalid

MIN_SECRET = 8
"""Characters a secret needs: shorter values occur in ordinary text."""
MAX_SECRET = 64 * 1024
MIN_FORM = 8
OVERLAPS = 4
"""How often, in lengths of the text, overlapping secrets are searched again."""
MIN_LINE = 16
"""Length from which single lines of a multi-line secret are searched for."""


def check_value(value: str) -> None:
    """Raise Invalid for values that cannot be redacted; the error does not repeat the value."""
    if len(value) < MIN_SECRET:
        advice = f"use at least {MIN_SECRET} characters: shorter secrets cannot be redacted"
        raise Invalid("value", "…", advice)
    if len(value) > MAX_SECRET:
        raise Invalid("value", "…", f"a secret may have at most {MAX_SECRET} characters")
    if "\0" in value or not value.strip():
        raise Invalid("value", "…", "a secret must be text without NUL characters")


def encoded_forms(value: str) -> set[str]:
    """Return the forms in which a secret may appear in text."""
    forms = {value, value.strip()}
    lines = [line.strip() for line in value.splitlines()]
    forms |= {line for line in lines if len(lines) > 1 and len(line) >= MIN_LINE}
    for plain in tuple(forms):
        forms |= set(_escaped_forms(plain))
        forms |= set(_base64_forms(plain.encode("utf-8", "surrogatepass")))
    return {form for form in forms if len(form) >= MIN_FORM}


def _escaped_forms(plain: str) -> Iterator[str]:
    for once in (*_json_forms(plain), *_repr_forms(plain)):
        yield once
        yield json.dumps(once)[1:-1]
    for escaped in (quote(plain, safe=""), quote(plain), quote_plus(plain)):
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)
    in_hex = plain.encode("utf-8", "surrogatepass").hex()
    yield in_hex
    yield in_hex.upper()


def _json_forms(plain: str) -> Iterator[str]:
    for ascii_only in (True, False):
        once = json.dumps(plain, ensure_ascii=ascii_only)[1:-1]
        yield once
        yield once.replace("/", "\\/")
    yield "".join(map(_uppercase_escape, plain))


def _uppercase_escape(sign: str) -> str:
    once = json.dumps(sign)[1:-1]
    return once if sign.isascii() else once.upper().replace("\\U", "\\u")


def _repr_forms(plain: str) -> Iterator[str]:
    """Yield the results of Python's `repr` and `ascii`, as text and as bytes.

    The text around a value decides whether its single quotes are escaped, so both forms are needed.
    """
    parts = plain.split("'")
    written = (
        [repr(f'"{part}')[2:-1] for part in parts],
        [ascii(f'"{part}')[2:-1] for part in parts],
        [repr(f'"{part}'.encode("utf-8", "surrogatepass"))[3:-1] for part in parts],
    )
    for forms in written:
        yield "'".join(forms)
        yield "\\'".join(forms)


def _base64_forms(data: bytes) -> Iterator[str]:
    """Yield, for each alignment, the part that does not depend on the bytes around it."""
    for before in range(3):
        bits = before * 8
        text = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        first, last = -(-bits // 6), (bits + len(data) * 8) // 6
        inner = text[first:last]
        yield inner
        yield inner.replace("+", "-").replace("/", "_")


class Redactor:
    """Replaces secrets by `[secret NAME]`; costs nothing if there are none."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self.set_secrets(secrets or {})

    @property
    def active(self) -> bool:
        """Whether it knows any secret."""
        return self._pattern is not None

    def set_secrets(self, secrets: Mapping[str, str]) -> None:
        """Replace the set of known secrets."""
        names: dict[str, str] = {}
        for name, value in secrets.items():
            for form in encoded_forms(value):
                names.setdefault(form, name)
        self._names = names
        self._pattern = re.compile(_prefix_tree(names)) if names else None

    def redact_text(self, text: str) -> str:
        """Return a text without secrets."""
        pattern = self._pattern
        found = None if pattern is None else pattern.search(text)
        return text if pattern is None or found is None else self._named(text, pattern, found)

    def _named(self, text: str, pattern: re.Pattern[str], first: re.Match[str]) -> str:
        """Replace overlapping secrets together, so that no part of them remains."""
        found: re.Match[str] | None = first
        parts, done, left = [], 0, MAX_SECRET + OVERLAPS * len(text)
        while found is not None:
            start, end = found.span()
            parts += [text[done:start], f"[secret {self._names[found[0]]}]"]
            while found is not None and found.start() < end:
                end = max(end, found.end())
                left -= found.end() - found.start()
                # A periodic secret overlaps itself at every character: bound the work.
                found = pattern.search(text, found.start() + 1 if left > 0 else end)
            done = end
        return "".join([*parts, text[done:]])

    def contains_secret(self, text: str) -> bool:
        """Whether a text contains a secret."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def redact_json(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return a JSON value without secrets in its strings and keys."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            return {
                self.redact_json(name): self.redact_json(inner) for name, inner in value.items()
            }
        if type(value) in {list, tuple}:
            return type(value)(self.redact_json(inner) for inner in value)
        return value


NO_SECRETS = Redactor()


def _prefix_tree(words: Mapping[str, str]) -> str:
    """Return a pattern as a prefix tree, so that each position is compared with few words."""
    ordered = sorted(words)
    return _branch(ordered, 0)


def _branch(words: list[str], at: int) -> str:
    """Return the pattern for the rest of words that share their first `at` characters."""
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
    pattern = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{pattern}?" if ends else pattern

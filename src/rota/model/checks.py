"""Checks: what must be true for a run to count as done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class CheckKind(StrEnum):
    """What a check looks at; the word is the field that names it."""

    FILE_NEWER = "file_newer"
    COMMAND = "command"
    URL = "url"
    JSON_SCHEMA = "json_schema"
    MIN_LENGTH = "min_length"
    TOOL_CALLED = "tool_called"
    NOT_LIKE = "not_like"


class CheckState(StrEnum):
    """What is known of a run that ended: whether its checks hold, or that it has none."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    CONTRADICTED = "contradicted"


class SuppressionReason(StrEnum):
    """Why a success was told to nobody: its gate woke nobody, or its result said so."""

    BY_GATE = "by_gate"
    BY_RESULT = "by_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that must be true.

    `wanted` is what its kind asks for: a path, words, an address, a schema, a number, a name or a
    text. `contains` goes with an address, `regex` with `not_like`.
    """

    kind: CheckKind
    wanted: Any
    contains: str | None = None
    regex: bool = False
    seconds: float | None = None


class CheckResult(NamedTuple):
    """What a check found, in words that a person can hold against the world."""

    check: str
    passed: bool
    evidence: str

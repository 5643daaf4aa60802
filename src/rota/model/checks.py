"""Checks: conditions a run must meet to count as done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class CheckKind(StrEnum):
    """What a check examines; the value is the name of its field in a spec."""

    FILE_NEWER = "file_newer"
    COMMAND = "command"
    URL = "url"
    JSON_SCHEMA = "json_schema"
    MIN_LENGTH = "min_length"
    TOOL_CALLED = "tool_called"
    NOT_LIKE = "not_like"


class CheckState(StrEnum):
    """Whether the checks of an ended run passed; `unverified` if it has none."""

    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    CONTRADICTED = "contradicted"


class SuppressionReason(StrEnum):
    """Why a success was sent to nobody: its gate found nothing to do, or its result was silent."""

    BY_GATE = "by_gate"
    BY_RESULT = "by_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition.

    `wanted` is the argument of its kind: a path, an argv, a URL, a schema, a number, a name or a
    text. `contains` is for URLs, `regex` for `not_like`.
    """

    kind: CheckKind
    wanted: Any
    contains: str | None = None
    regex: bool = False
    seconds: float | None = None


class CheckResult(NamedTuple):
    """Whether a check passed, with evidence that a person can verify."""

    check: str
    passed: bool
    evidence: str

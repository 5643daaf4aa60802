"""Checks: what a task's record asks for, and what the pure ones find in a result."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rota.errors import Invalid, shown
from rota.model.checks import Check, CheckKind, Finding
from rota.model.tasks import TaskKind
from rota.rules.json_schema import check_schema
from rota.rules.programs import check_program
from rota.rules.results import text_of
from rota.timing.durations import parse_duration

FIELD = "checks"
MOST_CHECKS = 20
MOST_WORDS = 1_000
LONGEST_TEXT = 10_000
LONGEST_PATTERN = 1_000
LONGEST_ADDRESS = 2_000
LARGEST_LENGTH = 256 * 1024
USUAL_SECONDS = 60.0
MOST_SECONDS = 600.0
BESIDE = {
    CheckKind.COMMAND: {"timeout"},
    CheckKind.URL: {"contains", "timeout"},
    CheckKind.NOT_LIKE: {"regex"},
}
"""What may be said beside the word that names a check."""


class Outcome(NamedTuple):
    """What an attempt is checked by: its result, as JSON text, and the tools it has called."""

    result: str | None
    tools: Collection[str] = ()


def checks_in(spec: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks of a record; Invalid, naming the first one that is wrong."""
    told = spec.get(FIELD)
    if told is None:
        return ()
    if not isinstance(told, list) or len(told) > MOST_CHECKS:
        raise Invalid(FIELD, told, f"give a list of at most {MOST_CHECKS} checks")
    return tuple(_check(one, f"{FIELD}[{n}]") for n, one in enumerate(told))


def patterns_in(spec: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the regular expressions of a record's checks, each with its field.

    Whether they are any is found out where they are matched: to compile one may take for ever.
    """
    found = enumerate(checks_in(spec))
    return [(f"{FIELD}[{n}].{check.kind}", check.wanted) for n, check in found if check.regex]


def check_checks(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Refuse checks that are wrong, or that a task of its kind cannot have."""
    checks = checks_in(spec)
    if checks and kind is TaskKind.PYTHON:
        raise Invalid(
            FIELD, checks[0].kind.value, "a callable raises what is wrong: leave them out"
        )
    for check in checks:
        if check.kind is CheckKind.TOOL_CALLED and kind is not TaskKind.AGENT:
            raise Invalid(FIELD, check.kind.value, "only agents call tools: leave it out")


def _check(told: object, field: str) -> Check:
    if not isinstance(told, dict):
        raise Invalid(field, told, 'write an object, like {"min_length": 200}')
    kinds = [kind for kind in CheckKind if kind.value in told]
    if len(kinds) != 1:
        raise Invalid(field, list(told), f"name exactly one of {', '.join(CheckKind)}")
    kind = kinds[0]
    stray = next((name for name in told if name != kind and name not in BESIDE.get(kind, ())), None)
    if stray is not None:
        raise Invalid(f"{field}.{stray}", told[stray], f"does not go with {kind}: leave it out")
    made = Check(
        kind=kind,
        wanted=told[kind],
        contains=told.get("contains"),
        regex=told.get("regex") is True,
        seconds=_seconds(told.get("timeout"), field),
    )
    CHECKERS[kind](made, f"{field}.{kind}", told)
    return made


def _seconds(told: object, field: str) -> float | None:
    if told is None:
        return None
    length = parse_duration(str(told), field=f"{field}.timeout").total_seconds()
    if not 0 < length <= MOST_SECONDS:
        raise Invalid(f"{field}.timeout", told, "give at most 10 minutes")
    return length


def _path(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    path = check.wanted
    if not isinstance(path, str) or not 0 < len(path) <= LONGEST_TEXT or "\0" in path:
        raise Invalid(field, path, "name a file inside the task's folder")
    if {"", ".", ".."} & set(path.split("/")):
        raise Invalid(field, path, "name a file inside the task's folder, without . and .. in it")


def _words(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    words = check.wanted
    fits = isinstance(words, list) and 0 < len(words) <= MOST_WORDS
    if not fits or not all(isinstance(word, str) for word in words):
        raise Invalid(field, words, "give the words of a program as a list")
    try:
        check_program(words)
    except Invalid as fault:
        raise Invalid(field, fault.value, fault.advice) from None


def _address(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    url = check.wanted
    if not isinstance(url, str) or not 0 < len(url) <= LONGEST_ADDRESS or not url.isprintable():
        raise Invalid(field, url, "write an address, like https://example.org/status")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid(field, url, "this cannot be read as an address") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or " " in url:
        raise Invalid(field, url, "begin with http:// or https:// and a host")
    if parts.username is not None or port == 0:
        raise Invalid(field, url, "leave out names and passwords: a check has none to give")
    if check.contains is not None:
        _text(check.contains, f"{field}.contains")


def _schema(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    check_schema(check.wanted, field)


def _length(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    number = check.wanted
    whole = isinstance(number, int) and not isinstance(number, bool)
    if not whole or not 0 < number <= LARGEST_LENGTH:
        raise Invalid(field, number, f"give a number of characters from 1 to {LARGEST_LENGTH}")


def _tool(check: Check, field: str, _told: Mapping[str, Any]) -> None:
    _text(check.wanted, field)


def _unwanted(check: Check, field: str, told: Mapping[str, Any]) -> None:
    _text(check.wanted, field)
    if not isinstance(told.get("regex", False), bool):
        raise Invalid(f"{field}.regex", told["regex"], "say true or false")
    if check.regex and len(check.wanted) > LONGEST_PATTERN:
        raise Invalid(field, check.wanted, f"write at most {LONGEST_PATTERN} characters")


def _text(text: object, field: str) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_TEXT or not text.strip():
        raise Invalid(field, text, f"write a text of at most {LONGEST_TEXT} characters")


CHECKERS = {
    CheckKind.FILE_NEWER: _path,
    CheckKind.COMMAND: _words,
    CheckKind.URL: _address,
    CheckKind.JSON_SCHEMA: _schema,
    CheckKind.MIN_LENGTH: _length,
    CheckKind.TOOL_CALLED: _tool,
    CheckKind.NOT_LIKE: _unwanted,
}


def name_of(check: Check) -> str:
    """Return a check as people name it."""
    wanted = check.wanted
    if check.kind is CheckKind.JSON_SCHEMA:
        return check.kind.value
    if check.kind is CheckKind.COMMAND:
        wanted = " ".join(wanted)
    if check.regex:
        wanted = f"/{wanted}/"
    return f"{check.kind} {shown(str(wanted))}"


def examined(check: Check, outcome: Outcome) -> Finding | None:
    """Return what a check finds in a result; None if it looks at the world or may take long."""
    name = name_of(check)
    match check.kind:
        case CheckKind.MIN_LENGTH:
            length = len(text_of(outcome.result).strip())
            return Finding(name, length >= check.wanted, f"the result has {length} characters")
        case CheckKind.TOOL_CALLED:
            called = check.wanted in outcome.tools
            others = ", ".join(sorted(outcome.tools)[:10]) or "none"
            told = "it was called" if called else f"it was not called; called were: {others}"
            return Finding(name, called, told)
        case CheckKind.NOT_LIKE if not check.regex:
            found = check.wanted.casefold() in text_of(outcome.result).casefold()
            return Finding(name, not found, "the result has it" if found else "it is not there")
        case _:
            return None


def failing(findings: Sequence[Finding]) -> str | None:
    """Return in one sentence, and the rest below it, what speaks against a success.

    How many there are stands before the first one, because the end of a long line is cut off.
    """
    against = [finding for finding in findings if not finding.passed]
    if not against:
        return None
    sentences = [f"{finding.check}: {finding.evidence}" for finding in against]
    who = "a check says" if len(against) == 1 else f"{len(against)} checks say"
    return "\n".join([f"It says it is done, and {who} it is not: {sentences[0]}", *sentences[1:]])


def told(findings: Sequence[Finding]) -> str:
    """Return findings as they are recorded."""
    return json.dumps([finding._asdict() for finding in findings], ensure_ascii=False)

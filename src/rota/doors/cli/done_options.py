"""The options of a task about when its work counts, and whether it begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rota.doors.cli.desk import NO_MORE, Record
from rota.doors.cli.task_options import NONE, words_of
from rota.doors.cli.values import whole
from rota.errors import Invalid
from rota.rules.checks import LARGEST_LENGTH

Text = str | None

Checks = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="KIND=VALUE",
        help="Done means: file_newer=PATH, command=WORDS, 'url=ADDRESS TEXT', json_schema=JSON, "
        "min_length=N, tool_called=NAME, not_like=TEXT or =/REGEX/; none takes them away.",
    ),
]
Gate = Annotated[
    Text,
    typer.Option("--gate", metavar="WORDS", help="A program that decides whether to begin."),
]
GateTimeout = Annotated[
    Text, typer.Option("--gate-timeout", metavar="LENGTH", help="With --gate: its longest [1m].")
]
NoGate = Annotated[bool, typer.Option("--no-gate", help="Take its gate away.")]
NextCheck = Annotated[
    Text,
    typer.Option(
        "--next-check",
        metavar="MIN..MAX",
        help="It may choose when it looks again: '10m..1d'.",
    ),
]
NoNextCheck = Annotated[
    bool, typer.Option("--no-next-check", help="It may no longer choose when it looks again.")
]


def done_of(given: Mapping[str, Any]) -> Record:
    """Return what the options say; what they leave out is not in it."""
    said: Record = {}
    checks = given.get("check")
    if checks:
        said["checks"] = [] if checks == [NONE] else [check_of(line) for line in checks]
    gate, timeout = given.get("gate"), given.get("gate_timeout")
    if gate is None and timeout is not None:
        raise Invalid("gate-timeout", timeout, "goes with --gate")
    if given.get("no_gate"):
        if gate is not None:
            raise Invalid("no-gate", gate, "give either --gate or --no-gate")
        said["gate"] = NO_MORE
    if gate is not None:
        told = {"command": words_of(gate), "timeout": timeout}
        said["gate"] = {name: value for name, value in told.items() if value is not None}
    bounds = given.get("next_check")
    if given.get("no_next_check"):
        if bounds is not None:
            raise Invalid("no-next-check", bounds, "give either --next-check or --no-next-check")
        said["next_check"] = NO_MORE
    if bounds is not None:
        least, dots, most = bounds.partition("..")
        if not dots:
            raise Invalid("next-check", bounds, "write the least and the most, like 10m..1d")
        said["next_check"] = {"min": least.strip(), "max": most.strip()}
    return said


def check_of(line: str) -> Record:
    """Return one check: `kind=value`, or the same in JSON."""
    if line.lstrip().startswith("{"):
        try:
            read: Record = json.loads(line)
        except (ValueError, RecursionError) as fault:
            raise Invalid("check", line, f"this is no JSON: {fault}") from None
        return read
    kind, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not value:
        raise Invalid("check", line, "write KIND=VALUE, like min_length=200")
    match kind:
        case "command":
            return {kind: words_of(value)}
        case "min_length":
            return {kind: whole("check", value, 1, LARGEST_LENGTH)}
        case "url":
            url, _, text = value.partition(" ")
            return {kind: url, **({"contains": text.strip()} if text.strip() else {})}
        case "json_schema":
            return check_of(f'{{"json_schema": {value}}}')
        case "not_like" if len(value) > 2 and value[0] == value[-1] == "/":  # noqa: PLR2004
            return {kind: value[1:-1], "regex": True}
        case _:
            return {kind: value}

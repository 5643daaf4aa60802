"""Numbers, JSON and texts as people type them."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from rota.errors import Invalid, NotFound
from rota.runtime.clock import SystemClock

LARGEST = 2**62
FILE = "@"
"""Begins the name of a file in the place of JSON; a text for people may begin like that itself."""

SpaceName = Annotated[
    str | None, typer.Option("--space", metavar="NAME", help="Whose it is [your own].")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Try it, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
TaskName = Annotated[str, typer.Argument(metavar="TASK", help="The task's name or id.")]


def maybe_run(text: str) -> int | None:
    """Return the number of a run, or None if a text is no number."""
    digits = text.removeprefix("#")
    return int(digits) if digits.isascii() and digits.isdigit() else None


def whole(field: str, text: str, least: int, most: int) -> int:
    """Return a whole number between two bounds, or refuse the text."""
    advice = f"give a whole number from {least} to {most}"
    try:
        number = int(text)
    except ValueError:
        raise Invalid(field, text, advice) from None
    if not least <= number <= most:
        raise Invalid(field, text, advice)
    return number


def maybe_whole(field: str, text: str | None, least: int, most: int) -> int | None:
    """Return whole() of a text, or None."""
    return None if text is None else whole(field, text, least, most)


def maybe_number(field: str, text: str | None, least: float, most: float) -> float | None:
    """Return a number between two bounds, or None; refuse any other text."""
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise Invalid(field, text, f"give a number from {least:g} to {most:g}")
    return number


def run_number(text: str, field: str = "run") -> int:
    """Return the number of a run, a question or a key."""
    if field == "run" and maybe_run(text) is None:
        advice = "give its number; `rota runs --task TASK` lists those of a task"
        raise NotFound("run", text, advice)
    return whole(field, text.removeprefix("#"), 1, LARGEST)


def json_value(field: str, text: str | None) -> object:
    """Return the value of a JSON text, which may be on standard input or in a file; or None."""
    if text is None:
        return None
    text = _file_text(field, text) if text.startswith(FILE) else text_or_input(text)
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Invalid(field, text, f"must be JSON ({fault})") from None
    return value


def _file_text(field: str, text: str) -> str:
    try:
        return Path(text.removeprefix(FILE)).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no text"
        raise Invalid(field, text, f"the file cannot be read: {reason}") from None


def text_or_input(text: str) -> str:
    """Return a text, or all of standard input for `-`."""
    return sys.stdin.read().strip() if text == "-" else text


@cache
def _clock() -> SystemClock:
    return SystemClock()


def now() -> datetime:
    """Return the current instant."""
    return _clock().now()

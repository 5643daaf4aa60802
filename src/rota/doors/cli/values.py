"""Numbers and JSON as people type them."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache

from rota.errors import Invalid
from rota.runtime.clock import SystemClock


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


def run_number(text: str, field: str = "run") -> int:
    """Return the number of a run, a question or a delivery."""
    return whole(field, text.removeprefix("#"), 1, 2**62)


def json_value(field: str, text: str | None) -> object:
    """Return the value of a JSON text, None without one."""
    if text is None:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Invalid(field, text, f"must be JSON ({fault})") from None
    return value


@cache
def _clock() -> SystemClock:
    return SystemClock()


def now() -> datetime:
    """Return the current instant."""
    return _clock().now()

"""JSON from strangers: small, plain and said once, or refused; whatever it is, it costs little."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from rota.doors.kit.json_size import MOST_VALUES, has_too_many_values

DEEPEST = 16
LARGEST_INTEGER = 2**63 - 1
LONGEST_INTEGER = len(str(-LARGEST_INTEGER))
REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
VERB = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class Rejected(Exception):
    """A file that is no command; `code` is stable, the message says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Command(NamedTuple):
    """What a file asks for."""

    request_id: str
    verb: str
    fields: Mapping[str, Any]


def read_command(data: bytes) -> Command:
    """Return the command that bytes hold; raise Rejected if they hold anything else."""
    found = read_object(data)
    request_id, verb = found.pop("request_id", None), found.pop("type", None)
    if not isinstance(request_id, str) or REQUEST_ID.fullmatch(request_id) is None:
        message = "request_id: give 1 to 64 of A-Z, a-z, 0-9, - and _, unlike any other of this run"
        raise Rejected("bad_request_id", message)
    if not isinstance(verb, str) or VERB.fullmatch(verb) is None:
        raise Rejected("bad_type", "type: name one command, like list_tasks")
    return Command(request_id, verb, found)


def read_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object that bytes hold; raise Rejected if they hold anything else."""
    if has_too_many_values(data):
        raise _too_many()
    try:
        found = json.loads(
            data.decode(),
            object_pairs_hook=_said_once,
            parse_int=_whole,
            parse_constant=_no_number,
        )
    except RecursionError:
        raise Rejected("too_deep", f"nest at most {DEEPEST} levels") from None
    except ValueError as fault:  # UnicodeDecodeError is one, too
        raise Rejected("not_json", f"write one JSON object in UTF-8: {_short(fault)}") from None
    if not isinstance(found, dict):
        raise Rejected("not_json", "write one JSON object, in braces")
    _check(found)
    return found


def _whole(digits: str) -> int:
    """Return a whole number; one that is too long is never computed."""
    if len(digits) > LONGEST_INTEGER or abs(number := int(digits)) > LARGEST_INTEGER:
        raise Rejected("bad_number", "give whole numbers of at most 63 bits")
    return number


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise Rejected("duplicate_key", "say every name once in an object")
    return made


def _check(found: dict[str, Any]) -> None:
    """Refuse what is too deep, too much, or no value that a database and a wire can hold."""
    left = MOST_VALUES
    level: list[Any] = [found]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            left -= len(value)
            if left < 0:
                raise _too_many()
            if isinstance(value, dict):
                for name in value:
                    _check_text(name)
                value = value.values()  # noqa: PLW2901
            for inner in value:
                if isinstance(inner, dict | list):
                    below.append(inner)
                else:
                    _check_plain(inner)
        if not below:
            return
        level = below
    raise Rejected("too_deep", f"nest at most {DEEPEST} levels")


def _check_plain(value: object) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _no_number("")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Rejected("bad_text", "a text holds half of a pair of surrogates") from None


def _no_number(_: str) -> NoReturn:
    raise Rejected("bad_number", "NaN and infinity are no numbers here")


def _too_many() -> Rejected:
    return Rejected("too_many_values", f"give at most {MOST_VALUES} values")


def _short(fault: ValueError) -> str:
    return str(fault)[:100]

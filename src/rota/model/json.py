"""Frozen values to JSON and back, and the limits on JSON from outside."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import TypeVar, Union

Value = TypeVar("Value")


def to_json(value: object) -> object:
    """Return a value as plain JSON types: durations in seconds, instants in ISO 8601."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return value


def from_json(kind: type[Value], record: object) -> Value:
    """Return the value that a record describes; unknown keys are ignored."""
    return typing.cast("Value", _decode(kind, record))


def _decode(kind: object, record: object) -> object:
    if typing.get_origin(kind) in {Union, types.UnionType}:
        return _decode_optional(kind, record)
    if typing.get_origin(kind) is tuple and isinstance(record, list):
        return tuple(_decode(typing.get_args(kind)[0], item) for item in record)
    if not isinstance(kind, type):
        return record
    if is_dataclass(kind) and isinstance(record, dict):
        hints = _hints(kind)
        return kind(
            **{name: _decode(hints[name], record[name]) for name in hints if name in record}
        )
    if issubclass(kind, Enum):
        return kind(record)
    if kind is timedelta and isinstance(record, (int, float)):
        return timedelta(seconds=record)
    if kind is datetime and isinstance(record, str):
        return datetime.fromisoformat(record)
    return record


def _decode_optional(kind: object, record: object) -> object:
    if record is None:
        return None
    choices = [choice for choice in typing.get_args(kind) if choice is not type(None)]
    return _decode(choices[0], record)


@cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


MAX_DEPTH = 100
"""Levels of nested lists and objects."""


def encode(value: object, *, ensure_ascii: bool = True) -> str:
    """Return a value as JSON text.

    Raises ValueError or TypeError for what is not JSON, NaN and infinity included, and for values
    nested too deep to be parsed again.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=ensure_ascii)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise ValueError(_TOO_DEEP)
    return text


def is_deeper(value: object, most: int) -> bool:
    """Whether lists and objects are nested deeper than `limit` levels."""
    level = [value]
    for _ in range(most):
        inner: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                inner.extend(one.values())
            elif isinstance(one, list | tuple):
                inner.extend(one)
        if not inner:
            return False
        level = inner
    return True


_TOO_DEEP = f"it is nested more than {MAX_DEPTH} deep"

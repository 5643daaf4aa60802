"""Callables: finding one by its path, and turning what it returns into a result."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from rota.errors import Invalid, RotaError
from rota.executors.inprocess.handle import RunHandle
from rota.model.outcomes import LONGEST_RESULT
from rota.model.values import encode

Function: TypeAlias = Callable[[RunHandle], Any]


class BadResult(RotaError):
    """A callable returned something that cannot be kept."""

    code = "bad_result"


def encode_result(result: object) -> str | None:
    """Return a result as JSON text; None stays None."""
    if result is None:
        return None
    try:
        text = encode(result)
    except (TypeError, ValueError) as fault:
        message = f"it returned something that is not JSON ({fault}): return plain values"
        raise BadResult(message) from None
    if len(text.encode()) > LONGEST_RESULT:
        message = f"it returned {len(text)} characters of JSON: at most 256 KiB are kept"
        raise BadResult(message)
    return text


def resolve(path: str) -> Function:
    """Return the callable a `module:function` path names."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise Invalid("call", path, "write it as module:function")
    try:
        found: object = importlib.import_module(module_name)
    except (ImportError, ValueError) as fault:
        raise Invalid("call", path, f"the module cannot be imported ({fault})") from fault
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise Invalid("call", path, f"{module_name} has no callable {name}")
    function: Function = found
    return function

"""Values of JSON that every reader can follow: a database, a wire, and whoever shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping

DEEPEST = 100
"""How deep lists and objects may lie in each other."""


def encode(value: object, *, ensure_ascii: bool = True) -> str:
    """Return a value as JSON text; raise ValueError or TypeError if it is none.

    Numbers without an end are none, nor is what is nested too deep to be read again.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=ensure_ascii)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > DEEPEST and is_deeper(value, DEEPEST):
        raise ValueError(_TOO_DEEP)
    return text


def is_deeper(value: object, most: int) -> bool:
    """Whether lists and objects lie deeper in each other than that."""
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


_TOO_DEEP = f"it is nested more than {DEEPEST} deep"

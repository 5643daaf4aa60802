"""How many values a JSON body may hold, counted before any of them is built."""

from __future__ import annotations

import re

MOST_VALUES = 20_000
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def has_too_many_values(data: bytes) -> bool:
    """Tell whether JSON holds more: each value but the first of its level has a comma."""
    if data.count(b",") <= MOST_VALUES:
        return False
    if data.count(b'"') - data.count(b'\\"') > 4 * MOST_VALUES:
        return True
    return STRING.sub(b"", data).count(b",") > MOST_VALUES

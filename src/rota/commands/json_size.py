"""Limit on the number of values in a JSON body, checked before parsing."""

from __future__ import annotations

import re

MOST_VALUES = 20_000
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def has_too_many_values(data: bytes) -> bool:
    """Whether JSON contains more values, estimated from the number of commas."""
    if data.count(b",") <= MOST_VALUES:
        return False
    if data.count(b'"') - data.count(b'\\"') > 4 * MOST_VALUES:
        return True
    return STRING.sub(b"", data).count(b",") > MOST_VALUES

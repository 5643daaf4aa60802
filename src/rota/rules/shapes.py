"""What is wrong with the shape of a value, in sentences of Rota's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADVICE: Mapping[str, str] = {
    "string_too_short": "write something",
    "too_short": "give it something",
    "string_too_long": "use at most {max_length} characters",
    "greater_than_equal": "give a number of at least {ge}",
    "greater_than": "give a number above {gt}",
    "less_than_equal": "give a number of at most {le}",
    "less_than": "give a number below {lt}",
    "int_parsing": "give a whole number",
    "int_parsing_size": "give a whole number that is not as long",
    "int_from_float": "give a whole number",
    "int_type": "give a whole number",
    "float_parsing": "give a number",
    "float_type": "give a number",
    "bool_parsing": "write true or false",
    "bool_type": "write true or false",
    "string_type": "write a text",
    "enum": "choose one of {expected}",
    "literal_error": "choose one of {expected}",
}
"""By the type of what is wrong, as who looks at shapes calls it."""


def advice_on(error: Mapping[str, Any]) -> str:
    """Return what to do about one thing that is wrong with a shape."""
    known = ADVICE.get(error["type"])
    if known is not None:
        return known.format(**(error.get("ctx") or {}))
    told = str(error["msg"]).removeprefix("Value error, ")
    return told[:1].lower() + told[1:]

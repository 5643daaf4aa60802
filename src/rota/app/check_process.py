"""The process that evaluates patterns and schemas of checks, and can be ended.

It reads one question from standard input, prints one line of JSON, and exits. Its processor time
and memory are limited, so it also ends if nobody waits for it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Callable, Sequence
from typing import Any

from rota.rules.checks import value_of
from rota.rules.json_schema import schema_errors

PROCESSOR_SECONDS = 2
MEMORY = 1 << 29
NICENESS = 10
LONGEST_FAULT = 500
NOT_JSON = "the result is not JSON"


def check_patterns(patterns: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the first invalid pattern and the reason, or None."""
    for n, pattern in enumerate(patterns):
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as fault:
            return n, f"invalid regular expression: {fault}"
    return None


def search(pattern: str, text: str) -> bool:
    """Return whether a pattern matches somewhere in a text."""
    return re.search(pattern, text) is not None


def check_result(schema: object, result: str | None) -> list[str]:
    """Return how a result violates a schema; empty if it matches."""
    try:
        value = value_of(result)
    except ValueError:
        return [NOT_JSON]
    return [fault[:LONGEST_FAULT] for fault in schema_errors(value, schema)]


QUESTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (check_patterns, search, check_result)
}


def main(_words: Sequence[str]) -> int:
    """Answer one question."""
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_SECONDS, PROCESSOR_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name, *told = json.load(sys.stdin)
    sys.stdout.write(json.dumps({"answer": QUESTIONS[name](*told)}) + "\n")
    return 0

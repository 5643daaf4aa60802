"""When a task's work counts, and whether it begins, in words from its record."""

from __future__ import annotations

import shlex

from rota.doors.cli.desk import Record
from rota.doors.cli.show import compact


def done_pairs(task: Record) -> list[tuple[str, str]]:
    """Return what a task says of this, each with its name; what it does not say is empty."""
    gate, bounds = task["gate"], task["next_check"]
    within = "" if gate is None or "timeout" not in gate else f", within {gate['timeout']}"
    return [
        ("done if", "\n".join(_check(check) for check in task["checks"])),
        ("begins if", "" if gate is None else f"{shlex.join(gate['command'])} says so{within}"),
        ("looks again", "" if bounds is None else f"in {bounds['min']} to {bounds['max']}"),
    ]


def _check(check: Record) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in check.items())


def _value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value if isinstance(value, str) else compact(value)

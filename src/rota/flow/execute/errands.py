"""Errands: runs that bring their own work, done as if a task of their own said so."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rota.errors import Invalid
from rota.flow.define.adhoc import NAMES, ORIGIN
from rota.ports.runner import Assignment

OF_THE_RUN = frozenset({"payload", "timeout"})


def unfolded(assignment: Assignment) -> Assignment:
    """Return an assignment whose task says what its run brought along, if it brought anything."""
    task, lease = assignment.task, assignment.lease
    if task.origin != ORIGIN or task.name not in NAMES.values():
        return assignment
    told = json.loads(lease.payload)
    if not isinstance(told, dict):
        raise Invalid("payload", lease.payload, "say what to do: a command, or instructions")
    policy = task.policy
    if told.get("timeout") is not None:
        policy = replace(policy, timeout=timedelta(seconds=_number(told["timeout"])))
    spec = {name: value for name, value in told.items() if name not in OF_THE_RUN}
    _check(spec)
    given = json.dumps(told.get("payload"))
    return assignment._replace(
        task=replace(task, spec={**task.spec, **spec}, policy=policy),
        lease=lease._replace(payload=given),
    )


def _check(spec: dict[str, Any]) -> None:
    words = spec.get("command", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Invalid("command", words, "give a list of words")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid("timeout", value, "give seconds")
    return float(value)

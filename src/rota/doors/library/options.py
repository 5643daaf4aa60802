"""From keyword options to a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from rota.errors import Invalid
from rota.flow.define.policies import check_policy
from rota.model.tasks import CatchUp, CatchUpMode, OnLost, Overlap, Policy, Pool, Retry
from rota.timing.durations import parse_duration

Choice = TypeVar("Choice", bound=StrEnum)

NAMES = tuple(f.name for f in fields(Policy))


def policy_from(options: Mapping[str, object], base: Policy | None = None) -> Policy:
    """Return a policy with these options set; refuse unknown ones by name."""
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name not in NAMES:
            raise Invalid(name, value, f"no such option; there are {', '.join(NAMES)}")
        changes[name] = _read(name, value)
    policy = replace(base or Policy(), **changes)
    check_policy(policy)
    return policy


def _read(name: str, value: object) -> object:
    match name:
        case "timeout" | "idle_timeout" | "grace" | "deadline":
            return _span(name, value)
        case "pool":
            return None if value is None else _choice(Pool, name, value)
        case "overlap":
            return None if value is None else _choice(Overlap, name, value)
        case "on_lost":
            return _choice(OnLost, name, value)
        case "retry":
            return _retry(value)
        case "catch_up":
            return _catch_up(value)
        case _:
            return value


def _span(name: str, value: object) -> timedelta | None:
    if value is None or isinstance(value, timedelta):
        return value
    return parse_duration(str(value), field=name)


def _choice(kind: type[Choice], name: str, value: object) -> Choice:
    try:
        return kind(str(value))
    except ValueError:
        raise Invalid(name, value, f"choose one of {', '.join(kind)}") from None


def _retry(value: object) -> Retry:
    if isinstance(value, Retry):
        return value
    if isinstance(value, int):
        return Retry(attempts=value)
    raise Invalid("retry", value, "give a Retry or the number of attempts")


def _catch_up(value: object) -> CatchUp:
    if isinstance(value, CatchUp):
        return value
    return CatchUp(mode=_choice(CatchUpMode, "catch_up", value))

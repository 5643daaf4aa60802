"""Validation of task policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_type_hints

from rota.errors import Invalid
from rota.model.agents import SessionMode
from rota.model.tasks import (
    MAX_ATTEMPTS,
    MAX_CATCH_UP,
    MAX_FAILURES,
    MAX_PRIORITY,
    CatchUp,
    Overlap,
    Policy,
    Retry,
    TaskKind,
)
from rota.ports.agent import AgentRegistry
from rota.rules.notifications import MAX_PROGRESS
from rota.rules.task_spec import AGENT_FIELDS, CHEAPER_MODEL, read_agent_spec, read_session_mode
from rota.timing.durations import parse_duration

MAX_LENGTH = timedelta(days=366)
MAX_NAME = 128
BOUNDS: Mapping[str, tuple[float, float]] = {
    "retry.attempts": (1, MAX_ATTEMPTS),
    "retry.factor": (1.0, 100.0),
    "retry.jitter": (0.0, 10.0),
    "priority": (-MAX_PRIORITY, MAX_PRIORITY),
    "catch_up.cap": (1, MAX_CATCH_UP),
    "disable_after": (0, MAX_FAILURES),
    "progress": (0, MAX_PROGRESS),
}
"""The smallest and the largest number that a policy may have in a field."""
MAY_BE_ZERO = frozenset({"catch_up.pace"})


def check_policy(policy: Policy) -> None:
    """Refuse an invalid policy, naming the field and a correction."""
    for field, value in _values(policy):
        if field in BOUNDS:
            _check_number(field, value, *BOUNDS[field])
        elif isinstance(value, timedelta) and (value or field not in MAY_BE_ZERO):
            _check_length(field, value)
    for name in ("lane", "group"):
        word = getattr(policy, name)
        if word is not None and not (0 < len(word) <= MAX_NAME and word.isprintable()):
            raise Invalid(name, word, f"use 1 to {MAX_NAME} printable characters")
    if policy.deliver_to is not None and not policy.deliver_to.partition(":")[0]:
        raise Invalid(
            "deliver_to", policy.deliver_to, "write it as channel:target, for example log:"
        )


def _values(policy: Policy) -> Iterator[tuple[str, Any]]:
    for name in HINTS[Policy]:
        value = getattr(policy, name)
        if type(value) in HINTS:
            yield from ((f"{name}.{inner}", getattr(value, inner)) for inner in HINTS[type(value)])
        else:
            yield name, value


def check_conversation(policy: Policy, spec: Mapping[str, Any]) -> None:
    """Refuse options with which runs of one session could overlap."""
    if read_session_mode(spec) is SessionMode.ISOLATED:
        return
    if policy.lane is not None:
        advice = "runs with a shared session use the lane of their thread; leave this out"
        raise Invalid("lane", policy.lane, advice)
    if policy.overlap is Overlap.ALLOW:
        advice = "runs of one session cannot overlap; leave this out, or use the context isolated"
        raise Invalid("overlap", policy.overlap, advice)


def check_timeouts(policy: Policy, kind: TaskKind) -> None:
    """Refuse options for a callable that only programs support."""
    if kind is not TaskKind.PYTHON:
        return
    if policy.idle_timeout is not None:
        raise Invalid("idle_timeout", policy.idle_timeout, "a callable has no output: use timeout")
    if policy.grace is not None:
        raise Invalid("grace", policy.grace, "only programs support this: leave it out")


def _check_number(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise Invalid(field, value, f"must be from {least:g} to {most:g}")


def _check_length(field: str, value: timedelta) -> None:
    if not timedelta() < value <= MAX_LENGTH:
        raise Invalid(field, value, "must be longer than 0 s and at most 366 days")


OF_PROGRAMS = frozenset({"output"})
"""Agent options that scripts support as well."""
OF_AGENTS = ("agent", *(wish for wish in AGENT_FIELDS if wish not in OF_PROGRAMS))


def resolve_agent(agents: AgentRegistry, kind: TaskKind, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with the name of its agent, independent of later settings.

    Raises Invalid for a field that the agent does not support.
    """
    if kind is not TaskKind.AGENT:
        stray = next((name for name in OF_AGENTS if spec.get(name) is not None), None)
        if stray is not None:
            advice = "applies only to agents with instructions; leave it out"
            raise Invalid(stray, spec[stray], advice)
        return dict(spec)
    agent = agents.get(spec.get("agent"))
    spec = _with_model(agents, agent.name, spec)
    if spec.get("answers") and not spec.get("session"):
        spec = {
            **spec,
            "session": SessionMode.SHARED.value,
        }  # a task that answers continues in the session of its thread
    agent.check(read_agent_spec(spec))
    return {**spec, "agent": agent.name}


def _with_model(agents: AgentRegistry, agent: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a spec with the model of its tier, and a cheaper one if the settings define it.

    The models are stored, so later changes of the tiers have no effect.
    """
    tier = spec.get("model_tier")
    if tier is not None:
        rest = {name: value for name, value in spec.items() if name != "model_tier"}
        spec = {**rest, "model": agents.model_of(agent, tier)}
    low = agents.tiers.get(agent, {}).get("low")
    if low is None or spec.get("model") == low or spec.get(CHEAPER_MODEL) == low:
        return spec
    return {**spec, CHEAPER_MODEL: low}


HINTS: Mapping[type, Mapping[str, Any]] = {
    kind: get_type_hints(kind) for kind in (Policy, Retry, CatchUp)
}
"""The types of the fields of a policy and of its parts."""
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}
SHORT = {Retry: "attempts", CatchUp: "mode"}
"""The field of a part that a plain value stands for."""


def policy_from(options: Mapping[str, object], base: Policy | None = None) -> Policy:
    """Return a policy with these options; refuse unknown ones."""
    policy = _replaced(base or Policy(), options)
    check_policy(policy)
    return policy


Part = TypeVar("Part", bound=Policy | Retry | CatchUp)


def _replaced(base: Part, options: Mapping[str, object], prefix: str = "") -> Part:
    hints = HINTS[type(base)]
    changes: dict[str, Any] = {}
    for name, value in options.items():
        field = prefix + name
        if name not in hints:
            raise Invalid(field, value, f"unknown option; the options are {', '.join(hints)}")
        present = getattr(base, name)
        if isinstance(present, Retry | CatchUp):
            changes[name] = _part(field, present, value)
        else:
            changes[name] = _read(field, hints[name], value)
    return replace(base, **changes)


def _part(field: str, present: Retry | CatchUp, value: object) -> Retry | CatchUp:
    if value is None or type(value) is type(present):
        return value or present
    given = value if isinstance(value, Mapping) else {SHORT[type(present)]: value}
    return _replaced(present, given, f"{field}.")


def _read(field: str, hint: object, value: object) -> object:
    """Return a value as the type of its field; lengths of time and choices may be text."""
    kinds = get_args(hint) or (hint,)
    if value is None and type(None) not in kinds:
        raise Invalid(field, None, "leave it out, or give a value")
    kind = kinds[0]
    if value is None or not isinstance(kind, type) or isinstance(value, kind):
        return value
    if kind is timedelta:
        return parse_duration(str(value), field=field)
    if issubclass(kind, StrEnum):
        return _choice(kind, field, value)
    if kind is float and isinstance(value, int):
        return float(value)
    raise Invalid(field, value, f"give {TYPE_NAMES[kind]}")


def _choice(kind: type[StrEnum], field: str, value: object) -> StrEnum:
    try:
        return kind(str(value))
    except ValueError:
        raise Invalid(field, value, f"choose one of {', '.join(kind)}") from None

"""Validation of task policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from rota.errors import Invalid
from rota.model.agents import SessionContext
from rota.model.tasks import CatchUp, CatchUpMode, OnLost, Overlap, Policy, Pool, Retry, TaskKind
from rota.ports.agent import AgentRegistry
from rota.rules.notifications import MAX_PROGRESS
from rota.rules.task_spec import AGENT_FIELDS, CHEAPER_MODEL, read_agent_spec, read_session_context
from rota.timing.durations import parse_duration

LONGEST = timedelta(days=366)
MOST_ATTEMPTS = 1_000
MOST_CATCH_UP = 1_000
HIGHEST_PRIORITY = 1_000_000
MAX_WORD = 128


def check_policy(policy: Policy) -> None:
    """Refuse an invalid policy, naming the field and a correction."""
    retry = policy.retry
    _between("retry.attempts", retry.attempts, 1, MOST_ATTEMPTS)
    _check_duration("retry.base", retry.base)
    _check_duration("retry.cap", retry.cap)
    _between("retry.factor", retry.factor, 1.0, 100.0)
    _between("retry.jitter", retry.jitter, 0.0, 10.0)
    for name in ("timeout", "idle_timeout", "grace", "deadline"):
        _check_optional_duration(name, getattr(policy, name))
    _check_optional_duration("retry.max_age", retry.max_age)
    _between("priority", policy.priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    _between("catch_up.cap", policy.catch_up.cap, 1, MOST_CATCH_UP)
    _check_duration("catch_up.window", policy.catch_up.window)
    _between("disable_after", policy.disable_after, 0, MOST_ATTEMPTS)
    _between("progress", policy.progress, 0, MAX_PROGRESS)
    for name in ("lane", "group"):
        word = getattr(policy, name)
        if word is not None and not (0 < len(word) <= MAX_WORD and word.isprintable()):
            raise Invalid(name, word, f"use 1 to {MAX_WORD} printable characters")
    if policy.deliver_to is not None and not policy.deliver_to.partition(":")[0]:
        raise Invalid(
            "deliver_to", policy.deliver_to, "write it as channel:target, for example log:"
        )


def check_conversation(policy: Policy, spec: Mapping[str, Any]) -> None:
    """Refuse options with which runs of one session could overlap."""
    if read_session_context(spec) is SessionContext.ISOLATED:
        return
    if policy.lane is not None:
        advice = "runs with the context group use the lane of their thread; leave this out"
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


def _between(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise Invalid(field, value, f"must be from {least:g} to {most:g}")


def _check_duration(field: str, value: timedelta) -> None:
    if not timedelta() < value <= LONGEST:
        raise Invalid(field, value, "must be longer than 0 s and at most 366 days")


def _check_optional_duration(field: str, value: timedelta | None) -> None:
    if value is not None:
        _check_duration(field, value)


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
    if spec.get("answers") and not spec.get("context"):
        spec = {
            **spec,
            "context": SessionContext.GROUP.value,
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


Choice = TypeVar("Choice", bound=StrEnum)

NAMES = tuple(f.name for f in fields(Policy))


def policy_from(options: Mapping[str, object], base: Policy | None = None) -> Policy:
    """Return a policy with these options; refuse unknown ones."""
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if name not in NAMES:
            raise Invalid(name, value, f"unknown option; the options are {', '.join(NAMES)}")
        changes[name] = _read(name, value)
    policy = replace(base or Policy(), **changes)
    check_policy(policy)
    return policy


def _read(name: str, value: object) -> object:
    match name:
        case "timeout" | "idle_timeout" | "grace" | "deadline":
            return _read_duration(name, value)
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


def _read_duration(name: str, value: object) -> timedelta | None:
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

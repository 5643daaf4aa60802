"""What a policy may say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rota.errors import Invalid
from rota.model.tasks import Overlap, Policy, TaskKind
from rota.model.wishes import SessionContext
from rota.rules.telling import MOST_PROGRESS
from rota.rules.wishes import context_in

LONGEST = timedelta(days=366)
MOST_ATTEMPTS = 1_000
MOST_CATCH_UP = 1_000
HIGHEST_PRIORITY = 1_000_000
LONGEST_WORD = 128


def check_policy(policy: Policy) -> None:
    """Refuse a policy that makes no sense, naming the field and what to do."""
    retry = policy.retry
    _between("retry.attempts", retry.attempts, 1, MOST_ATTEMPTS)
    _span("retry.base", retry.base)
    _span("retry.cap", retry.cap)
    _between("retry.factor", retry.factor, 1.0, 100.0)
    _between("retry.jitter", retry.jitter, 0.0, 10.0)
    for name in ("timeout", "idle_timeout", "grace", "deadline"):
        _optional_span(name, getattr(policy, name))
    _optional_span("retry.max_age", retry.max_age)
    _between("priority", policy.priority, -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    _between("catch_up.cap", policy.catch_up.cap, 1, MOST_CATCH_UP)
    _span("catch_up.window", policy.catch_up.window)
    _between("disable_after", policy.disable_after, 0, MOST_ATTEMPTS)
    _between("progress", policy.progress, 0, MOST_PROGRESS)
    for name in ("lane", "group"):
        word = getattr(policy, name)
        if word is not None and not (0 < len(word) <= LONGEST_WORD and word.isprintable()):
            raise Invalid(name, word, f"use 1 to {LONGEST_WORD} printable characters")
    if policy.deliver_to is not None and not policy.deliver_to.partition(":")[0]:
        raise Invalid(
            "deliver_to", policy.deliver_to, "write it as channel:target, for example log:"
        )


def check_conversation(policy: Policy, spec: Mapping[str, Any]) -> None:
    """Refuse what would let the runs of one conversation overlap."""
    if context_in(spec) is SessionContext.ISOLATED:
        return
    if policy.lane is not None:
        advice = "the context group has the lane of its thread; leave this out"
        raise Invalid("lane", policy.lane, advice)
    if policy.overlap is Overlap.ALLOW:
        advice = "runs of one session cannot overlap; leave this out, or use the context isolated"
        raise Invalid("overlap", policy.overlap, advice)


def check_timeouts(policy: Policy, kind: TaskKind) -> None:
    """Refuse for a callable what only a program can be held to."""
    if kind is not TaskKind.PYTHON:
        return
    if policy.idle_timeout is not None:
        raise Invalid(
            "idle_timeout", policy.idle_timeout, "a callable writes nothing: give it a timeout"
        )
    if policy.grace is not None:
        raise Invalid("grace", policy.grace, "only programs have one: leave it out")


def _between(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise Invalid(field, value, f"must be from {least:g} to {most:g}")


def _span(field: str, value: timedelta) -> None:
    if not timedelta() < value <= LONGEST:
        raise Invalid(field, value, "must be longer than nothing and at most 366 days")


def _optional_span(field: str, value: timedelta | None) -> None:
    if value is not None:
        _span(field, value)

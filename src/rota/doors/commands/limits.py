"""Limits: how many runs at once, and how many starts in a period."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from rota.doors.commands.shapes import Asked, Given, Nothing
from rota.doors.commands.wishes import Length, length
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import limits
from rota.model.keys import KeyScope
from rota.model.spaces import Limit, Scope

MOST = 1_000_000

Key = Annotated[
    str,
    StringConstraints(max_length=limits.LONGEST_GROUP),
    Field(
        description="Nothing (total), a pool, `queued` or `schedules` (space), one of them"
        " with `/space`, or a group's name."
    ),
]


class OneLimit(Asked):
    """One limit, by its scope and key."""

    scope: Scope
    key: Key = ""


class NewLimit(OneLimit):
    """How many at once, how many starts in a period, or both; rates are for groups."""

    cap: int | None = Field(default=None, ge=0, le=MOST)
    rate: int | None = Field(default=None, ge=1, le=MOST)
    period: Length | None = None

    @model_validator(mode="after")
    def _something(self) -> NewLimit:
        if self.cap is None and self.rate is None:
            message = "give a cap, a rate, or both"
            raise ValueError(message)
        if (self.rate is None) != (self.period is None):
            message = "a rate goes with a period"
            raise ValueError(message)
        return self


class LimitGiven(Given):
    """A limit; the period is in seconds."""

    scope: Scope
    key: str
    cap: int | None
    rate: int | None
    period: float | None


class Limits(Given):
    """Every limit."""

    limits: list[LimitGiven]


class Removed(Given):
    """What was taken away."""

    deleted: bool = True
    scope: Scope
    key: str


def _given(limit: Limit, key: str) -> LimitGiven:
    period = None if limit.period is None else limit.period.total_seconds()
    return LimitGiven(scope=limit.scope, key=key, cap=limit.cap, rate=limit.rate, period=period)


@command("GET", "/v1/limits", KeyScope.ADMIN)
async def list_limits(office: Office, asked: Nothing) -> Limits:  # noqa: ARG001
    """List limits."""
    found = await limits.list_limits(office.store, office.caller)
    return Limits(limits=[_given(limit, key) for limit, key in found])


@command("PUT", "/v1/limits", KeyScope.ADMIN)
async def set_limit(office: Office, asked: NewLimit) -> LimitGiven:
    """Set a limit, replacing the one of its scope and key."""
    period = length(asked.period, "period")
    wanted = Limit(scope=asked.scope, key=asked.key, cap=asked.cap, rate=asked.rate, period=period)
    office.keep(lambda _: _given(wanted, asked.key), "set_limits")
    await limits.set_limit(office.store, office.caller, wanted)
    return _given(wanted, asked.key)


@command("DELETE", "/v1/limits", KeyScope.ADMIN)
async def remove_limit(office: Office, asked: OneLimit) -> Removed:
    """Take a limit away; the daemon writes its defaults again where none stands."""
    office.keep(lambda _: Removed(scope=asked.scope, key=asked.key), "set_limits")
    await limits.remove_limit(office.store, office.caller, asked.scope, asked.key)
    return Removed(scope=asked.scope, key=asked.key)

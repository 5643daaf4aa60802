"""Spaces and limits."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    Length,
    SpaceName,
    Zone,
    length,
)
from rota.commands.responses import (
    EmptyRequest,
    From,
    RequestModel,
    ResponseModel,
    SpaceResponse,
)
from rota.flow.define import spaces
from rota.model.keys import KeyScope
from rota.model.spaces import Limit, LimitScope
from rota.rules.permissions import visible_space
from rota.store import views as store_views
from rota.store.claims import set_limits
from rota.store.tasks import add_space, set_space


class CreateSpace(RequestModel):
    """A space to be made."""

    name: SpaceName
    timezone: Zone = "UTC"


class UpdateSpace(RequestModel):
    """What is to change in a space."""

    space: SpaceName
    timezone: Zone


class SpaceList(ResponseModel):
    """Every space the caller may see."""

    spaces: list[SpaceResponse]


@command("GET", "/v1/spaces", KeyScope.READ)
async def list_spaces(office: RequestContext, asked: EmptyRequest) -> SpaceList:  # noqa: ARG001 - nothing is asked
    """List spaces."""
    only = visible_space(office.caller, None)
    found = await office.store.read(store_views.list_spaces)
    return SpaceList(spaces=[SpaceResponse.from_model(s) for s in found if only in {None, s.name}])


@command("POST", "/v1/spaces", KeyScope.ADMIN, status=201)
async def create_space(office: RequestContext, asked: CreateSpace) -> SpaceResponse:
    """Create a space that may act only for itself."""
    office.keep(SpaceResponse.from_model, add_space)
    made = await spaces.create_space(office.store, office.caller, asked.name, asked.timezone)
    return SpaceResponse.from_model(made)


@command("PATCH", "/v1/spaces/{space}", KeyScope.ADMIN)
async def change_space(office: RequestContext, asked: UpdateSpace) -> SpaceResponse:
    """Change a space's time zone; schedules that exist keep theirs."""
    store, caller = office.store, office.caller
    office.keep(SpaceResponse.from_model, set_space)
    return SpaceResponse.from_model(
        await spaces.set_space(store, caller, asked.space, asked.timezone)
    )


MOST = 1_000_000

Key = Annotated[
    str,
    StringConstraints(max_length=spaces.LONGEST_GROUP),
    Field(
        description="Nothing (total), a pool, `queued` or `schedules` (space), one of them"
        " with `/space`, or a group's name."
    ),
]


class LimitSelector(RequestModel):
    """One limit, by its scope and key."""

    scope: LimitScope
    key: Key = ""


class SetLimit(LimitSelector):
    """How many at once, how many starts in a period, or both; rates are for groups."""

    cap: int | None = Field(default=None, ge=0, le=MOST)
    rate: int | None = Field(default=None, ge=1, le=MOST)
    period: Length | None = None

    @model_validator(mode="after")
    def _something(self) -> SetLimit:
        if self.cap is None and self.rate is None:
            message = "give a cap, a rate, or both"
            raise ValueError(message)
        if (self.rate is None) != (self.period is None):
            message = "a rate goes with a period"
            raise ValueError(message)
        return self


class LimitResponse(ResponseModel):
    """A limit; the period is in seconds."""

    scope: LimitScope
    key: str
    cap: int | None
    rate: int | None
    period: Annotated[float | None, From(read=timedelta.total_seconds)]


class LimitList(ResponseModel):
    """Every limit."""

    limits: list[LimitResponse]


class LimitRemovedResponse(ResponseModel):
    """What was taken away."""

    deleted: bool = True
    scope: LimitScope
    key: str


@command("GET", "/v1/limits", KeyScope.ADMIN)
async def list_limits(office: RequestContext, asked: EmptyRequest) -> LimitList:  # noqa: ARG001
    """List limits."""
    found = await spaces.list_limits(office.store, office.caller)
    return LimitList(limits=[LimitResponse.from_model(limit, key=key) for limit, key in found])


@command("PUT", "/v1/limits", KeyScope.ADMIN)
async def set_limit(office: RequestContext, asked: SetLimit) -> LimitResponse:
    """Set a limit, replacing the one of its scope and key."""
    period = length(asked.period, "period")
    wanted = Limit(scope=asked.scope, key=asked.key, cap=asked.cap, rate=asked.rate, period=period)
    office.keep(lambda _: LimitResponse.from_model(wanted), set_limits)
    await spaces.set_limit(office.store, office.caller, wanted)
    return LimitResponse.from_model(wanted)


@command("DELETE", "/v1/limits", KeyScope.ADMIN)
async def remove_limit(office: RequestContext, asked: LimitSelector) -> LimitRemovedResponse:
    """Take a limit away; the daemon writes its defaults again where none stands."""
    office.keep(lambda _: LimitRemovedResponse(scope=asked.scope, key=asked.key), set_limits)
    await spaces.remove_limit(office.store, office.caller, asked.scope, asked.key)
    return LimitRemovedResponse(scope=asked.scope, key=asked.key)

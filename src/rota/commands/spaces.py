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
    parse_length,
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
    """A space to create."""

    name: SpaceName
    timezone: Zone = "UTC"


class UpdateSpace(RequestModel):
    """Changes to a space."""

    space: SpaceName
    timezone: Zone


class SpaceList(ResponseModel):
    """The spaces that the caller may see."""

    spaces: list[SpaceResponse]


@command("GET", "/v1/spaces", KeyScope.READ)
async def list_spaces(context: RequestContext, request: EmptyRequest) -> SpaceList:  # noqa: ARG001 - nothing is request
    """List spaces."""
    only = visible_space(context.caller, None)
    found = await context.store.read(store_views.list_spaces)
    return SpaceList(spaces=[SpaceResponse.from_model(s) for s in found if only in {None, s.name}])


@command("POST", "/v1/spaces", KeyScope.ADMIN, status=201)
async def create_space(context: RequestContext, request: CreateSpace) -> SpaceResponse:
    """Create a space with the role `member`."""
    context.record(SpaceResponse.from_model, add_space)
    made = await spaces.create_space(context.store, context.caller, request.name, request.timezone)
    return SpaceResponse.from_model(made)


@command("PATCH", "/v1/spaces/{space}", KeyScope.ADMIN)
async def change_space(context: RequestContext, request: UpdateSpace) -> SpaceResponse:
    """Change the time zone of a space; existing schedules keep theirs."""
    store, caller = context.store, context.caller
    context.record(SpaceResponse.from_model, set_space)
    return SpaceResponse.from_model(
        await spaces.set_space(store, caller, request.space, request.timezone)
    )


MAX_LIMIT = 1_000_000

Key = Annotated[
    str,
    StringConstraints(max_length=spaces.LONGEST_GROUP),
    Field(
        description="Empty (total), a pool, `queued` or `schedules` (space), one of them"
        " with `/SPACE`, or the name of a group."
    ),
]


class LimitSelector(RequestModel):
    """A limit, by scope and key."""

    scope: LimitScope
    key: Key = ""


class SetLimit(LimitSelector):
    """The maximum number of concurrent runs, a rate of starts for groups, or both."""

    cap: int | None = Field(default=None, ge=0, le=MAX_LIMIT)
    rate: int | None = Field(default=None, ge=1, le=MAX_LIMIT)
    period: Length | None = None

    @model_validator(mode="after")
    def _something(self) -> SetLimit:
        if self.cap is None and self.rate is None:
            message = "give a cap, a rate, or both"
            raise ValueError(message)
        if (self.rate is None) != (self.period is None):
            message = "a rate needs a period"
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
    """All limits."""

    limits: list[LimitResponse]


class LimitRemovedResponse(ResponseModel):
    """The removed limit."""

    deleted: bool = True
    scope: LimitScope
    key: str


@command("GET", "/v1/limits", KeyScope.ADMIN)
async def list_limits(context: RequestContext, request: EmptyRequest) -> LimitList:  # noqa: ARG001
    """List limits."""
    found = await spaces.list_limits(context.store, context.caller)
    return LimitList(limits=[LimitResponse.from_model(limit, key=key) for limit, key in found])


@command("PUT", "/v1/limits", KeyScope.ADMIN)
async def set_limit(context: RequestContext, request: SetLimit) -> LimitResponse:
    """Set a limit, replacing the one with the same scope and key."""
    period = parse_length(request.period, "period")
    limit = Limit(
        scope=request.scope, key=request.key, cap=request.cap, rate=request.rate, period=period
    )
    context.record(lambda _: LimitResponse.from_model(limit), set_limits)
    await spaces.set_limit(context.store, context.caller, limit)
    return LimitResponse.from_model(limit)


@command("DELETE", "/v1/limits", KeyScope.ADMIN)
async def remove_limit(context: RequestContext, request: LimitSelector) -> LimitRemovedResponse:
    """Remove a limit; the daemon restores missing default limits when it starts."""
    context.record(lambda _: LimitRemovedResponse(scope=request.scope, key=request.key), set_limits)
    await spaces.remove_limit(context.store, context.caller, request.scope, request.key)
    return LimitRemovedResponse(scope=request.scope, key=request.key)

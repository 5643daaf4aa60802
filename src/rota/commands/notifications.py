"""Notification targets of a space."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import SpaceName, Word, resolve_space
from rota.commands.responses import From, RequestModel, ResponseModel
from rota.flow.define import notifications
from rota.model.keys import KeyScope
from rota.model.notifications import NotificationLevel
from rota.rules.notifications import level_of
from rota.store.notifications import drop_notification_target, set_notification_target


class NotificationTargetsQuery(RequestModel):
    """Of which space; without one, of every space that the caller sees."""

    space: SpaceName | None = None


class NotificationTargetSelector(RequestModel):
    """One preference, by its place."""

    to: Word = Field(description="A place, written `channel:target`.")
    space: SpaceName | None = None


class SetNotificationTarget(NotificationTargetSelector):
    """From which level up a place is told, and whether results go there by default."""

    least: NotificationLevel = NotificationLevel.NORMAL
    default: bool = Field(
        default=False, description="Results of tasks created without `deliver_to` go there."
    )


class NotificationTargetResponse(ResponseModel):
    """A preference."""

    space: str
    to: str
    least: Annotated[NotificationLevel, From(read=level_of)]
    default: Annotated[bool, From("usual")]
    updated_at: datetime


class NotificationTargetList(ResponseModel):
    """Where people are told."""

    preferences: list[NotificationTargetResponse]


class NotificationTargetRemovedResponse(ResponseModel):
    """What was taken away."""

    deleted: bool = True
    space: str
    to: str


@command("GET", "/v1/notify", KeyScope.READ)
async def list_preferences(
    office: RequestContext, asked: NotificationTargetsQuery
) -> NotificationTargetList:
    """List where people are told of runs that fail, expire or wait, and of disabled tasks."""
    found = await notifications.list_preferences(office.store, office.caller, asked.space)
    return NotificationTargetList(
        preferences=[NotificationTargetResponse.from_model(preference) for preference in found]
    )


@command("PUT", "/v1/notify", KeyScope.ADMIN)
async def set_preference(
    office: RequestContext, asked: SetNotificationTarget
) -> NotificationTargetResponse:
    """Tell people in a place from now on, in the place of what was said of it before."""
    space = resolve_space(office, asked.space)

    async def stands(within: RequestContext, _: object) -> NotificationTargetResponse:
        found = await notifications.list_preferences(within.store, office.caller, space)
        return NotificationTargetResponse.from_model(
            next(one for one in found if one.to == asked.to)
        )

    office.keep_seen(stands, set_notification_target)
    found = await notifications.set_preference(
        office.store,
        office.caller,
        office.app.plugins.channel_names,
        space,
        asked.to,
        asked.least,
        usual=asked.default,
    )
    return NotificationTargetResponse.from_model(found)


@command("DELETE", "/v1/notify", KeyScope.ADMIN)
async def remove_preference(
    office: RequestContext, asked: NotificationTargetSelector
) -> NotificationTargetRemovedResponse:
    """Tell people in a place no more; what is in the outbox is still sent."""
    space = resolve_space(office, asked.space)
    removed = NotificationTargetRemovedResponse(space=space, to=asked.to)
    office.keep(lambda gone: removed if gone else None, drop_notification_target)
    await notifications.remove_preference(office.store, office.caller, space, asked.to)
    return removed

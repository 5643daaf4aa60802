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
from rota.store import notifications as store_notifications


class NotificationTargetsQuery(RequestModel):
    """Filter for notification targets, by default of all visible spaces."""

    space: SpaceName | None = None


class NotificationTargetSelector(RequestModel):
    """A notification target."""

    to: Word = Field(description="Target in the form `channel:target`.")
    space: SpaceName | None = None


class SetNotificationTarget(NotificationTargetSelector):
    """The lowest level of notifications to a target, and whether results go there by default."""

    min_level: NotificationLevel = NotificationLevel.NORMAL
    default: bool = Field(
        default=False, description="Use as `deliver_to` of new tasks that have none."
    )


class NotificationTargetResponse(ResponseModel):
    """A notification target."""

    space: str
    to: str
    min_level: Annotated[NotificationLevel, From("min_priority", level_of)]
    default: Annotated[bool, From("is_default")]
    updated_at: datetime


class NotificationTargetList(ResponseModel):
    """Notification targets."""

    targets: list[NotificationTargetResponse]


class NotificationTargetRemovedResponse(ResponseModel):
    """The removed notification target."""

    deleted: bool = True
    space: str
    to: str


@command("GET", "/v1/notification-targets", KeyScope.READ)
async def list_notification_targets(
    context: RequestContext, request: NotificationTargetsQuery
) -> NotificationTargetList:
    """List targets for notifications about failed, expired and waiting runs and disabled tasks."""
    found = await notifications.list_targets(context.store, context.caller, request.space)
    return NotificationTargetList(
        targets=[NotificationTargetResponse.from_model(target) for target in found]
    )


@command("PUT", "/v1/notification-targets", KeyScope.ADMIN)
async def set_notification_target(
    context: RequestContext, request: SetNotificationTarget
) -> NotificationTargetResponse:
    """Notify a target; replaces its earlier settings."""
    space = resolve_space(context, request.space)

    async def current(within: RequestContext, _: object) -> NotificationTargetResponse:
        found = await notifications.list_targets(within.store, context.caller, space)
        return NotificationTargetResponse.from_model(
            next(one for one in found if one.to == request.to)
        )

    context.record_with(current, store_notifications.set_notification_target)
    found = await notifications.set_target(
        context.store,
        context.caller,
        context.app.plugins.channel_names,
        space,
        request.to,
        request.min_level,
        usual=request.default,
    )
    return NotificationTargetResponse.from_model(found)


@command("DELETE", "/v1/notification-targets", KeyScope.ADMIN)
async def remove_notification_target(
    context: RequestContext, request: NotificationTargetSelector
) -> NotificationTargetRemovedResponse:
    """Stop notifying a target; deliveries in the outbox are still sent."""
    space = resolve_space(context, request.space)
    removed = NotificationTargetRemovedResponse(space=space, to=request.to)
    context.record(
        lambda gone: removed if gone else None, store_notifications.drop_notification_target
    )
    await notifications.remove_target(context.store, context.caller, space, request.to)
    return removed

"""Notification targets of a space, and its default target."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rota.errors import Invalid, NotFound
from rota.model.notifications import NotificationLevel, NotificationTarget
from rota.model.spaces import SpaceRole
from rota.model.text import CONTROLS, INVISIBLE
from rota.rules.notifications import MIN_PRIORITIES
from rota.rules.permissions import Caller, check_space, visible_space
from rota.store.notifications import (
    drop_notification_target,
    list_notification_targets,
    set_notification_target,
    thread_owner,
)
from rota.store.store import Store
from rota.store.tasks import find_space

_PLACE = re.compile(rf"([A-Za-z0-9_]+):([^{CONTROLS}{INVISIBLE}]{{0,200}})")
MOST_PREFERENCES = 20
"""Maximum targets of a space; each gets a message for every failed run."""


async def set_target(
    store: Store,
    caller: Caller,
    channels: Sequence[str],
    space: str,
    to: str,
    least: NotificationLevel,
    *,
    usual: bool,
) -> NotificationTarget:
    """Set a notification target of a space with its level."""
    check_space(caller, space)
    channel, target = _place(to)
    if channel not in channels:
        raise unknown_channel("to", to, channel, channels)
    await check_target(store, caller, space, to, "to")
    owner = await store.read(find_space, space)
    standing = await store.read(list_notification_targets, owner.id)
    if len(standing) >= MOST_PREFERENCES and to not in {p.to for p in standing}:
        raise Invalid("to", to, f"a space has {MOST_PREFERENCES} at most: remove one first")
    await store.write(
        set_notification_target, owner.id, channel, target, MIN_PRIORITIES[least], usual=usual
    )
    return next(p for p in await store.read(list_notification_targets, owner.id) if p.to == to)


async def remove_target(store: Store, caller: Caller, space: str, to: str) -> None:
    """Remove a notification target of a space."""
    check_space(caller, space)
    owner = await store.read(find_space, space)
    channel, _, target = to.partition(":")
    if not await store.write(drop_notification_target, owner.id, channel, target):
        raise NotFound("notification target", to, "see `rota notification list`")


async def list_targets(store: Store, caller: Caller, space: str | None) -> list[NotificationTarget]:
    """Return the notification targets of a space, or of all visible spaces."""
    seen = visible_space(caller, space)
    return await store.read(
        list_notification_targets, None if seen is None else (await store.read(find_space, seen)).id
    )


async def default_target(store: Store, space_id: int) -> str | None:
    """Return the default target for results of new tasks."""
    return next(
        (p.to for p in await store.read(list_notification_targets, space_id) if p.is_default), None
    )


async def check_target(store: Store, caller: Caller, space: str, to: str, field: str) -> None:
    """Refuse a thread of another space as not found, unless the caller acts for all spaces."""
    if caller.role is SpaceRole.MAIN:
        return
    owner = await store.read(thread_owner, to)
    if owner is not None and owner != (await store.read(find_space, space)).id:
        raise NotFound("thread", to, f"{field} may name threads of your own space")


async def check_channel(
    store: Store, channels: Sequence[str], to: str, own: str | None, field: str
) -> None:
    """Refuse a target that is neither of an existing channel nor a thread.

    A thread must exist, or be the `own` one that is created with the task.
    """
    channel = to.partition(":")[0]
    if channel in channels or to == own or await store.read(thread_owner, to) is not None:
        return
    raise unknown_channel(field, to, channel, channels)


def warn_unreachable_target(to: str | None, channels: Sequence[str]) -> str | None:
    """Return a warning if no channel serves a target."""
    if to is None or not channels or to.partition(":")[0] in channels:
        return None
    return (
        f"no channel serves {to}: nothing is sent there, and results stay with the runs; "
        f"use {', '.join(channels)}"
    )


def unknown_channel(field: str, to: str, channel: str, channels: Sequence[str]) -> Invalid:
    """Return the error for an unknown channel."""
    return Invalid(field, to, f"there is no channel {channel!r}: use {', '.join(channels)}")


def _place(to: str) -> tuple[str, str]:
    found = _PLACE.fullmatch(to)
    if found is None:
        raise Invalid("to", to, "write it as channel:target, for example log:")
    return found[1], found[2]

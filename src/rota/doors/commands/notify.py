"""Preferences: where people are told of what needs them, and from which priority up."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from rota.doors.commands.fields import SpaceName, Word
from rota.doors.commands.finding import space_of
from rota.doors.commands.shapes import Asked, Given
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import noticing
from rota.model.keys import KeyScope
from rota.model.notices import Level, Preference
from rota.rules.notices import level_of


class PreferencesWanted(Asked):
    """Of which space; without one, of every space that the caller sees."""

    space: SpaceName | None = None


class OnePreference(Asked):
    """One preference, by its place."""

    to: Word = Field(description="A place, written `channel:target`.")
    space: SpaceName | None = None


class NewPreference(OnePreference):
    """From which level up a place is told, and whether results go there by default."""

    least: Level = Level.NORMAL
    default: bool = Field(
        default=False, description="Results of tasks created without `deliver_to` go there."
    )


class PreferenceGiven(Given):
    """A preference."""

    space: str
    to: str
    least: Level
    default: bool
    updated_at: datetime


class Preferences(Given):
    """Where people are told."""

    preferences: list[PreferenceGiven]


class PreferenceRemoved(Given):
    """What was taken away."""

    deleted: bool = True
    space: str
    to: str


def _given(preference: Preference) -> PreferenceGiven:
    return PreferenceGiven(
        space=preference.space,
        to=preference.to,
        least=level_of(preference.least),
        default=preference.usual,
        updated_at=preference.updated_at,
    )


@command("GET", "/v1/notify", KeyScope.READ)
async def list_preferences(office: Office, asked: PreferencesWanted) -> Preferences:
    """List where people are told of runs that fail, expire or wait, and of disabled tasks."""
    found = await noticing.list_preferences(office.store, office.caller, asked.space)
    return Preferences(preferences=[_given(preference) for preference in found])


@command("PUT", "/v1/notify", KeyScope.ADMIN)
async def set_preference(office: Office, asked: NewPreference) -> PreferenceGiven:
    """Tell people in a place from now on, in the place of what was said of it before."""
    space = space_of(office, asked.space)

    async def stands(within: Office, _: object) -> PreferenceGiven:
        found = await noticing.list_preferences(within.store, office.caller, space)
        return _given(next(one for one in found if one.to == asked.to))

    office.keep_seen(stands, "set_preference")
    found = await noticing.set_preference(
        office.store,
        office.caller,
        office.channels,
        space,
        asked.to,
        asked.least,
        usual=asked.default,
    )
    return _given(found)


@command("DELETE", "/v1/notify", KeyScope.ADMIN)
async def remove_preference(office: Office, asked: OnePreference) -> PreferenceRemoved:
    """Tell people in a place no more; what is in the outbox is still sent."""
    space = space_of(office, asked.space)
    removed = PreferenceRemoved(space=space, to=asked.to)
    office.keep(lambda gone: removed if gone else None, "drop_preference")
    await noticing.remove_preference(office.store, office.caller, space, asked.to)
    return removed

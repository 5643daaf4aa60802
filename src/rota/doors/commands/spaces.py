"""Spaces: list, create, change."""

from __future__ import annotations

from rota.doors.commands.fields import SpaceName
from rota.doors.commands.shapes import Asked, Given, Nothing, SpaceGiven, space_given
from rota.doors.commands.wishes import Zone
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import spaces
from rota.model.keys import KeyScope
from rota.rules.permission import seen_space


class NewSpace(Asked):
    """A space to be made."""

    name: SpaceName
    timezone: Zone = "UTC"


class ChangedSpace(Asked):
    """What is to change in a space."""

    space: SpaceName
    timezone: Zone


class Spaces(Given):
    """Every space the caller may see."""

    spaces: list[SpaceGiven]


@command("GET", "/v1/spaces", KeyScope.READ)
async def list_spaces(office: Office, asked: Nothing) -> Spaces:  # noqa: ARG001 - nothing is asked
    """List spaces."""
    only = seen_space(office.caller, None)
    found = await office.store.list_spaces()
    return Spaces(spaces=[space_given(s) for s in found if only in {None, s.name}])


@command("POST", "/v1/spaces", KeyScope.ADMIN, status=201)
async def create_space(office: Office, asked: NewSpace) -> SpaceGiven:
    """Create a space that may act only for itself."""
    office.keep(space_given, "add_space")
    made = await spaces.create_space(office.store, office.caller, asked.name, asked.timezone)
    return space_given(made)


@command("PATCH", "/v1/spaces/{space}", KeyScope.ADMIN)
async def change_space(office: Office, asked: ChangedSpace) -> SpaceGiven:
    """Change a space's time zone; schedules that exist keep theirs."""
    store, caller = office.store, office.caller
    office.keep(space_given, "set_space")
    return space_given(await spaces.set_space(store, caller, asked.space, asked.timezone))

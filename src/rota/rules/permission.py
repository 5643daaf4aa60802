"""Who may do what: one pure function for each question."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rota.errors import NotFound, NotPermitted
from rota.model.inside import Held
from rota.model.keys import EVERY_SCOPE, KeyScope
from rota.model.spaces import Role

OF_ATTEMPTS = frozenset({KeyScope.READ, KeyScope.RUN, KeyScope.DEFINE})
"""What an attempt may do within its space: never what an administrator does, and no SQL."""

OWNER = "the owner of the home folder"
"""Who asks without a key, or with the key that lies in the home: one person, and one name."""

OWN_DOORS = ("cli", "web")
"""The providers of threads that every space has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, told by the door they came through and never by what they say.

    `id` tells callers apart in the record of requests; `name` is for people. `attempt` is set when
    no person asks, but a program that works for a run.
    """

    space: str = "main"
    role: Role = Role.MAIN
    name: str = OWNER
    id: str = "local"
    scopes: frozenset[KeyScope] = EVERY_SCOPE
    attempt: Held | None = None


LOCAL = Caller()
"""The owner of the process or the terminal."""


def attempt_caller(held: Held, role: Role) -> Caller:
    """Return an attempt as a caller; it may what its space may, which has that role."""
    return Caller(
        space=held.space,
        role=role,
        name=f"run {held.run_id} of {held.task}",
        id=held.name,
        scopes=OF_ATTEMPTS,
        attempt=held,
    )


def within(caller: Caller, space: str, role: Role) -> Caller:
    """Return a caller who may do no more than a space may, and no more than before."""
    both = Role.MAIN if caller.role is role is Role.MAIN else Role.MEMBER
    return replace(caller, space=space, role=both)


def may_act_for(caller: Caller, space: str) -> bool:
    """Return whether a caller may see and change what belongs to a space."""
    return caller.role is Role.MAIN or caller.space == space


def check_space(caller: Caller, space: str) -> None:
    """Refuse a caller who may not act for a space, as if the space did not exist."""
    if not may_act_for(caller, space):
        raise NotFound("space", space)


def check_claim(caller: Caller, space: str, key: str) -> None:
    """Refuse a member a conversation that nobody has, as if it were somebody else's.

    Who speaks where is settled by whoever acts for everybody. Of a space itself are the keys of the
    doors that everybody has: `cli:SPACE` and `web:SPACE`, and what stands behind them.
    """
    own = tuple(f"{door}:{space}" for door in OWN_DOORS)
    if caller.role is not Role.MAIN and key not in own and not key.startswith(_behind(own)):
        raise no_thread(space, key)


def no_thread(space: str, key: str) -> NotFound:
    """Return the refusal of a conversation that is not a space's."""
    own = " or ".join(f"{door}:{space}:NAME" for door in OWN_DOORS)
    return NotFound("thread", key, f"use {own}, or have main register it for {space}")


def _behind(keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{key}:" for key in keys)


def check_main(caller: Caller) -> None:
    """Refuse a caller who does not act for everybody."""
    if caller.role is not Role.MAIN:
        message = f"{caller.name} may not do this: only the role 'main' acts for everybody"
        raise NotPermitted(message)


def check_person(caller: Caller) -> None:
    """Refuse an attempt what only people do: no agent answers or approves what one has asked."""
    if caller.attempt is not None:
        message = f"{caller.name} may not do this: only people answer and approve"
        raise NotPermitted(message)


def check_scope(caller: Caller, scope: KeyScope) -> None:
    """Refuse a caller whose key does not open this."""
    if scope not in caller.scopes:
        message = f"{caller.name} may not do this: its key needs the scope {scope.value!r}"
        raise NotPermitted(message)


def check_grant(caller: Caller, space_role: Role, role: Role, scopes: frozenset[KeyScope]) -> None:
    """Refuse a key that would open more than its space or the one who makes it may."""
    if role is Role.MAIN and (caller.role is not Role.MAIN or space_role is not Role.MAIN):
        message = "a key of a member space acts for that space only: use the role 'member'"
        raise NotPermitted(message)
    beyond = scopes - caller.scopes
    if beyond:
        message = f"{caller.name} cannot give the scope {', '.join(sorted(beyond))}: it has none"
        raise NotPermitted(message)


def seen_space(caller: Caller, space: str | None) -> str | None:
    """Return the space whose things a list shows: the one asked for, or every one a caller sees."""
    if space is None:
        return None if caller.role is Role.MAIN else caller.space
    check_space(caller, space)
    return space

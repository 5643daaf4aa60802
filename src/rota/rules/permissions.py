"""Who may do what, and what an attempt may make."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from rota.errors import Conflict, Invalid, NotFound, NotPermitted
from rota.model.audit import AttemptIdentity
from rota.model.keys import EVERY_SCOPE, KeyScope
from rota.model.programs import NetworkAccess, SharedFolder, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.model.threads import Thread
from rota.rules.task_spec import FIELDS

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
    role: SpaceRole = SpaceRole.MAIN
    name: str = OWNER
    id: str = "local"
    scopes: frozenset[KeyScope] = EVERY_SCOPE
    attempt: AttemptIdentity | None = None


LOCAL = Caller()
"""The owner of the process or the terminal."""


def attempt_caller(held: AttemptIdentity, role: SpaceRole) -> Caller:
    """Return an attempt as a caller; it may what its space may, which has that role."""
    return Caller(
        space=held.space,
        role=role,
        name=f"run {held.run_id} of {held.task}",
        id=held.name,
        scopes=OF_ATTEMPTS,
        attempt=held,
    )


def is_within(caller: Caller, space: str, role: SpaceRole) -> Caller:
    """Return a caller who may do no more than a space may, and no more than before."""
    both = SpaceRole.MAIN if caller.role is role is SpaceRole.MAIN else SpaceRole.MEMBER
    return replace(caller, space=space, role=both)


def may_act_for(caller: Caller, space: str) -> bool:
    """Return whether a caller may see and change what belongs to a space."""
    return caller.role is SpaceRole.MAIN or caller.space == space


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
    if caller.role is not SpaceRole.MAIN and key not in own and not key.startswith(_behind(own)):
        raise thread_not_found(space, key)


def thread_not_found(space: str, key: str) -> NotFound:
    """Return the refusal of a conversation that is not a space's."""
    own = " or ".join(f"{door}:{space}:NAME" for door in OWN_DOORS)
    return NotFound("thread", key, f"use {own}, or have main register it for {space}")


def _behind(keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{key}:" for key in keys)


def check_main(caller: Caller) -> None:
    """Refuse a caller who does not act for everybody."""
    if caller.role is not SpaceRole.MAIN:
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


def check_grant(
    caller: Caller, space_role: SpaceRole, role: SpaceRole, scopes: frozenset[KeyScope]
) -> None:
    """Refuse a key that would open more than its space or the one who makes it may."""
    if role is SpaceRole.MAIN and (
        caller.role is not SpaceRole.MAIN or space_role is not SpaceRole.MAIN
    ):
        message = "a key of a member space acts for that space only: use the role 'member'"
        raise NotPermitted(message)
    beyond = scopes - caller.scopes
    if beyond:
        message = f"{caller.name} cannot give the scope {', '.join(sorted(beyond))}: it has none"
        raise NotPermitted(message)


def visible_space(caller: Caller, space: str | None) -> str | None:
    """Return the space whose things a list shows: the one asked for, or every one a caller sees."""
    if space is None:
        return None if caller.role is SpaceRole.MAIN else caller.space
    check_space(caller, space)
    return space


MAX_CREATED = 100
"""Tasks that attempts have made and that stand, in one space."""
MAX_THREADS = 1_000
"""Threads of a space to which an attempt may add one."""
MAX_CREATED_SCHEDULES = 20
"""Schedules of a task to which an attempt may add one."""
MAX_QUEUED = 100
"""Runs of a task that wait, to which an attempt may add one."""
MAX_DEPTH = 8
"""How many attempts may stand one behind the other, each in a task that the one before made."""
SHORTEST = timedelta(minutes=1)
FIRES_TRIED = 100
HANDS = ("agent", "tools", "denied_tools", "permission_mode")
"""What bounds the hands of an agent, beside its walls."""
JUDGES = ("checks", "gate", "next_check")
"""What decides over an agent's work: whether it begins, and whether it is done."""
_ORIGIN = re.compile(r"attempt:(\d{1,3})")
_WIDTH = {NetworkAccess.NONE: 0, NetworkAccess.OUTLET: 1, NetworkAccess.OPEN: 2}


def origin_of(origin: str) -> str:
    """Return the origin of a task that an attempt makes, by that of its own task."""
    match = _ORIGIN.fullmatch(origin)
    depth = 1 if match is None else int(match[1]) + 1
    if depth > MAX_DEPTH:
        message = (
            f"this task was made by a run of a task that a run has made, {MAX_DEPTH} times over: "
            "ask a person to make the next one"
        )
        raise NotPermitted(message)
    return f"attempt:{depth}"


def check_room(made: int) -> None:
    """Refuse one more task where attempts have made many already."""
    if made >= MAX_CREATED:
        message = f"runs have made {made} tasks in this space: cancel some, or change one of them"
        raise Conflict(message)


def check_threads(standing: int) -> None:
    """Refuse one more thread where there are many."""
    if standing >= MAX_THREADS:
        raise Conflict(f"this space has {standing} threads: ask a person to register the next one")


def check_conversation(thread: Thread, changes: Mapping[str, Any]) -> None:
    """Refuse an attempt that would change who answers people in a conversation, or when."""
    told = {"task_id": thread.task_id, "trigger": thread.trigger}
    for name, stood in told.items():
        if stood is not None and changes.get(name, stood) != stood:
            raise NotPermitted("only people change who answers in a conversation, and to what")


def check_queue(queued: int) -> None:
    """Refuse one more run of a task of which many wait."""
    if queued >= MAX_QUEUED:
        raise Conflict(f"{queued} runs of this task wait already: let them end first")


def check_pace(fires: Sequence[datetime]) -> None:
    """Refuse a rule of which two fires are too near to each other."""
    for one, other in pairwise(fires):
        if other - one < SHORTEST:
            seconds = int(SHORTEST.total_seconds())
            gap = f"{(other - one).total_seconds():g} s"
            raise Invalid("schedule", gap, f"what a run schedules fires every {seconds} s at most")


def check_reach(own: Site, wanted: Site) -> None:
    """Refuse work that would reach further than the attempt that wants it, if that has walls."""
    if not own.isolated:
        return
    if not wanted.isolated:
        message = "a run behind walls makes and changes no task without: choose sandbox"
        raise NotPermitted(message)
    if _WIDTH[wanted.network] > _WIDTH[own.network]:
        message = f"a run with the network {own.network} makes no task with {wanted.network}"
        raise NotPermitted(message)
    for share in wanted.mounts:
        if not any(_holds(mine, share) for mine in own.mounts):
            message = f"a run that is not shown {share} cannot show it to a task"
            raise NotPermitted(message)


def check_hands(own: Mapping[str, Any], kind: TaskKind, wanted: Mapping[str, Any]) -> None:
    """Refuse work with tools that the agent who wants it was not given."""
    tools, denied = own.get("tools"), own.get("denied_tools") or ()
    if not is_bounded(own):
        return
    if kind is not TaskKind.AGENT or "command" in wanted:
        raise NotPermitted("an agent whose tools are bounded makes and changes no programs")
    others = wanted.get("tools")
    same = all(wanted.get(name) == own.get(name) for name in ("agent", "permission_mode"))
    fewer = tools is None or (others is not None and set(others) <= set(tools))
    if not same or not fewer or not set(denied) <= set(wanted.get("denied_tools") or ()):
        message = "an agent makes and changes no task that may do more than its own"
        raise NotPermitted(message)


def is_bounded(spec: Mapping[str, Any]) -> bool:
    """Tell whether a task says what its agent's hands may do."""
    return "instructions" in spec and any(spec.get(name) is not None for name in HANDS[1:])


def check_judges(
    own: Mapping[str, Any], stood: Mapping[str, Any] | None, wanted: Mapping[str, Any]
) -> None:
    """Refuse an attempt that would change what a task's work is judged by.

    A gate and a check may be programs, which an agent with bounded tools does not make.
    """
    before = stood if stood is not None else {} if is_bounded(own) else wanted
    for name in JUDGES:
        if wanted.get(name) != before.get(name):
            raise NotPermitted(f"only people change the {name.replace('_', ' ')} of a task")


def inherit_settings(own: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an attempt says of a new task, with the bounds it leaves out as its own has them.

    A site is named as a whole or not at all, and what bounds one agent means nothing to another.
    """
    told = dict(said)
    names: list[str] = []
    if not any(told.get(name) is not None for name in FIELDS):
        names += FIELDS
    if "command" not in told and told.get("agent") in {None, own.get("agent")}:
        names += HANDS
    missing = {name: own[name] for name in names if own.get(name) is not None}
    return {**missing, **{name: value for name, value in told.items() if value is not None}}


def _holds(mine: SharedFolder, share: SharedFolder) -> bool:
    below = posixpath.commonpath([mine.path, share.path]) == mine.path
    return below and (mine.write or not share.write)

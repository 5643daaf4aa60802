"""Who may do what, and what an attempt may create."""

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
from rota.rules.task_spec import SITE_FIELDS

OF_ATTEMPTS = frozenset({KeyScope.READ, KeyScope.RUN, KeyScope.DEFINE})
"""Scopes of an attempt within its space: no administration and no SQL."""

OWNER = "the owner of the home folder"
"""The caller without a key, or with the key in the home: the same person."""

OWN_PROVIDERS = ("cli", "web")
"""Providers whose threads every space may register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The caller of a command, known by how it authenticated, not by what it claims.

    `id` identifies it in the audit log; `name` is for people. `attempt` is set if the caller is a
    program that works for a run.
    """

    space: str = "main"
    role: SpaceRole = SpaceRole.MAIN
    name: str = OWNER
    id: str = "local"
    scopes: frozenset[KeyScope] = EVERY_SCOPE
    attempt: AttemptIdentity | None = None


LOCAL = Caller()
"""The owner of the process or terminal."""


def attempt_caller(identity: AttemptIdentity, role: SpaceRole) -> Caller:
    """Return an attempt as a caller with the rights of its space."""
    return Caller(
        space=identity.space,
        role=role,
        name=f"run {identity.run_id} of {identity.task}",
        id=identity.name,
        scopes=OF_ATTEMPTS,
        attempt=identity,
    )


def restrict_to_space(caller: Caller, space: str, role: SpaceRole) -> Caller:
    """Return a caller with the rights that both it and a space have."""
    both = SpaceRole.MAIN if caller.role is role is SpaceRole.MAIN else SpaceRole.MEMBER
    return replace(caller, space=space, role=both)


def may_act_for(caller: Caller, space: str) -> bool:
    """Whether a caller may see and change what belongs to a space."""
    return caller.role is SpaceRole.MAIN or caller.space == space


def check_space(caller: Caller, space: str) -> None:
    """Raise NotFound if a caller may not act for a space, as if it did not exist."""
    if not may_act_for(caller, space):
        raise NotFound("space", space)


def check_claim(caller: Caller, space: str, key: str) -> None:
    """Raise NotFound if a member space may not register a thread with this key.

    Only main assigns conversations of providers to spaces. A space may register `cli:SPACE` and
    `web:SPACE`, and keys below them.
    """
    own = tuple(f"{door}:{space}" for door in OWN_PROVIDERS)
    if (
        caller.role is not SpaceRole.MAIN
        and key not in own
        and not key.startswith(_with_subkeys(own))
    ):
        raise thread_not_found(space, key)


def thread_not_found(space: str, key: str) -> NotFound:
    """Return the error for a thread that does not belong to a space."""
    own = " or ".join(f"{door}:{space}:NAME" for door in OWN_PROVIDERS)
    return NotFound("thread", key, f"use {own}, or have main register it for {space}")


def _with_subkeys(keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{key}:" for key in keys)


def check_main(caller: Caller) -> None:
    """Raise NotPermitted unless the caller has the role main."""
    if caller.role is not SpaceRole.MAIN:
        message = f"{caller.name} may not do this: only the role 'main' acts for everybody"
        raise NotPermitted(message)


def check_person(caller: Caller) -> None:
    """Raise NotPermitted for attempts: only people answer questions and approve."""
    if caller.attempt is not None:
        message = f"{caller.name} may not do this: only people answer and approve"
        raise NotPermitted(message)


def check_scope(caller: Caller, scope: KeyScope) -> None:
    """Raise NotPermitted if the caller's key lacks a scope."""
    if scope not in caller.scopes:
        message = f"{caller.name} may not do this: its key needs the scope {scope.value!r}"
        raise NotPermitted(message)


def check_grant(
    caller: Caller, space_role: SpaceRole, role: SpaceRole, scopes: frozenset[KeyScope]
) -> None:
    """Raise NotPermitted for a key with more rights than its space or its creator has."""
    if role is SpaceRole.MAIN and (
        caller.role is not SpaceRole.MAIN or space_role is not SpaceRole.MAIN
    ):
        message = "a key of a member space acts for that space only: use the role 'member'"
        raise NotPermitted(message)
    beyond = scopes - caller.scopes
    if beyond:
        message = f"{caller.name} cannot grant the scope {', '.join(sorted(beyond))}: it lacks it"
        raise NotPermitted(message)


def visible_space(caller: Caller, space: str | None) -> str | None:
    """Return the space to list: the requested one, or None for all if the caller may see them."""
    if space is None:
        return None if caller.role is SpaceRole.MAIN else caller.space
    check_space(caller, space)
    return space


MAX_CREATED = 100
"""Existing tasks in one space that attempts have created."""
MAX_THREADS = 1_000
"""Threads of a space, above which attempts cannot register more."""
MAX_CREATED_SCHEDULES = 20
"""Schedules of a task, above which attempts cannot add more."""
MAX_QUEUED = 100
"""Waiting runs of a task, above which attempts cannot queue more."""
MAX_DEPTH = 8
"""Length of a chain of tasks that each were created by a run of the one before."""
MIN_INTERVAL = timedelta(minutes=1)
FIRES_CHECKED = 100
TOOL_FIELDS = ("agent", "tools", "denied_tools", "permission_mode")
"""Fields that restrict the tools of an agent."""
CHECK_FIELDS = ("checks", "gate", "next_check")
"""Fields that decide whether an agent's work starts and whether it is done."""
_ORIGIN = re.compile(r"attempt:(\d{1,3})")
_WIDTH = {NetworkAccess.NONE: 0, NetworkAccess.EGRESS: 1, NetworkAccess.OPEN: 2}


def origin_of(origin: str) -> str:
    """Return the origin of a task created by an attempt, from that of the attempt's task."""
    match = _ORIGIN.fullmatch(origin)
    depth = 1 if match is None else int(match[1]) + 1
    if depth > MAX_DEPTH:
        message = (
            f"this task is the {MAX_DEPTH}th in a chain of tasks that runs have created: "
            "ask a person to create the next one"
        )
        raise NotPermitted(message)
    return f"attempt:{depth}"


def check_created_tasks(made: int) -> None:
    """Raise Conflict if attempts have created too many tasks in a space."""
    if made >= MAX_CREATED:
        message = f"runs have created {made} tasks in this space: delete some, or change one"
        raise Conflict(message)


def check_threads(standing: int) -> None:
    """Raise Conflict if a space has too many threads for an attempt to add one."""
    if standing >= MAX_THREADS:
        raise Conflict(f"this space has {standing} threads: ask a person to register the next one")


def check_conversation(thread: Thread, changes: Mapping[str, Any]) -> None:
    """Raise NotPermitted if an attempt would change the task or trigger of a thread."""
    current = {"task_id": thread.task_id, "trigger": thread.trigger}
    for name, value in current.items():
        if value is not None and changes.get(name, value) != value:
            raise NotPermitted("only people may change the task and trigger of a thread")


def check_queue(queued: int) -> None:
    """Raise Conflict if too many runs of a task wait already."""
    if queued >= MAX_QUEUED:
        raise Conflict(f"{queued} runs of this task wait already: let them end first")


def check_pace(fires: Sequence[datetime]) -> None:
    """Raise Invalid for a rule that fires too often."""
    for one, other in pairwise(fires):
        if other - one < MIN_INTERVAL:
            seconds = int(MIN_INTERVAL.total_seconds())
            gap = f"{(other - one).total_seconds():g} s"
            advice = f"schedules made by runs fire at most every {seconds} s"
            raise Invalid("schedule", gap, advice)


def check_reach(own: Site, site: Site) -> None:
    """Raise NotPermitted if an isolated attempt would create work with a wider site."""
    if not own.isolated:
        return
    if not site.isolated:
        message = "an isolated run cannot create tasks that are not: choose another executor"
        raise NotPermitted(message)
    if _WIDTH[site.network] > _WIDTH[own.network]:
        message = f"a run with network {own.network} cannot create a task with {site.network}"
        raise NotPermitted(message)
    for share in site.mounts:
        if not any(_holds(mine, share) for mine in own.mounts):
            message = f"a run without the mount {share} cannot give it to a task"
            raise NotPermitted(message)


def check_tools(own: Mapping[str, Any], kind: TaskKind, spec: Mapping[str, Any]) -> None:
    """Raise NotPermitted if an agent would create work with tools it does not have."""
    tools, denied = own.get("tools"), own.get("denied_tools") or ()
    if not is_bounded(own):
        return
    if kind is not TaskKind.AGENT or "command" in spec:
        raise NotPermitted("an agent with restricted tools cannot create or change programs")
    others = spec.get("tools")
    same = all(spec.get(name) == own.get(name) for name in ("agent", "permission_mode"))
    fewer = tools is None or (others is not None and set(others) <= set(tools))
    if not same or not fewer or not set(denied) <= set(spec.get("denied_tools") or ()):
        message = "an agent cannot create or change a task that may do more than its own"
        raise NotPermitted(message)


def is_bounded(spec: Mapping[str, Any]) -> bool:
    """Whether a task restricts the tools of its agent."""
    return "instructions" in spec and any(spec.get(name) is not None for name in TOOL_FIELDS[1:])


def check_judging_fields(
    own: Mapping[str, Any], current: Mapping[str, Any] | None, spec: Mapping[str, Any]
) -> None:
    """Raise NotPermitted if an attempt would change the checks, gate or next check of a task.

    Gates and checks may be programs, which an agent with restricted tools cannot create.
    """
    before = current if current is not None else {} if is_bounded(own) else spec
    for name in CHECK_FIELDS:
        if spec.get(name) != before.get(name):
            raise NotPermitted(f"only people may change the {name.replace('_', ' ')} of a task")


def inherit_settings(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for a task made by an attempt; missing ones come from its own task.

    A site is given as a whole or inherited, and tool restrictions are inherited by the same agent
    only.
    """
    settings = dict(given)
    names: list[str] = []
    if not any(settings.get(name) is not None for name in SITE_FIELDS):
        names += SITE_FIELDS
    if "command" not in settings and settings.get("agent") in {None, own.get("agent")}:
        names += TOOL_FIELDS
    missing = {name: own[name] for name in names if own.get(name) is not None}
    return {**missing, **{name: value for name, value in settings.items() if value is not None}}


def _holds(mine: SharedFolder, share: SharedFolder) -> bool:
    below = posixpath.commonpath([mine.path, share.path]) == mine.path
    return below and (mine.write or not share.write)

"""What an attempt may make: nothing that reaches further than it does, too much, or too often."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from rota.errors import Conflict, Invalid, NotPermitted
from rota.model.sites import Network, Share, Site
from rota.model.tasks import TaskKind
from rota.model.threads import Thread
from rota.rules.sites import FIELDS

MOST_MADE = 100
"""Tasks that attempts have made and that stand, in one space."""
MOST_THREADS = 1_000
"""Threads of a space to which an attempt may add one."""
MOST_SCHEDULES = 20
"""Schedules of a task to which an attempt may add one."""
MOST_QUEUED = 100
"""Runs of a task that wait, to which an attempt may add one."""
DEEPEST = 8
"""How many attempts may stand one behind the other, each in a task that the one before made."""
SHORTEST = timedelta(minutes=1)
FIRES_TRIED = 100
HANDS = ("agent", "tools", "denied_tools", "permission_mode")
"""What bounds the hands of an agent, beside its walls."""
JUDGES = ("checks", "gate", "next_check")
"""What decides over an agent's work: whether it begins, and whether it is done."""
_ORIGIN = re.compile(r"attempt:(\d{1,3})")
_WIDTH = {Network.NONE: 0, Network.OUTLET: 1, Network.OPEN: 2}


def origin_behind(origin: str) -> str:
    """Return the origin of a task that an attempt makes, by that of its own task."""
    match = _ORIGIN.fullmatch(origin)
    depth = 1 if match is None else int(match[1]) + 1
    if depth > DEEPEST:
        message = (
            f"this task was made by a run of a task that a run has made, {DEEPEST} times over: "
            "ask a person to make the next one"
        )
        raise NotPermitted(message)
    return f"attempt:{depth}"


def check_room(made: int) -> None:
    """Refuse one more task where attempts have made many already."""
    if made >= MOST_MADE:
        message = f"runs have made {made} tasks in this space: cancel some, or change one of them"
        raise Conflict(message)


def check_threads(standing: int) -> None:
    """Refuse one more thread where there are many."""
    if standing >= MOST_THREADS:
        raise Conflict(f"this space has {standing} threads: ask a person to register the next one")


def check_conversation(thread: Thread, changes: Mapping[str, Any]) -> None:
    """Refuse an attempt that would change who answers people in a conversation, or when."""
    told = {"task_id": thread.task_id, "trigger": thread.trigger}
    for name, stood in told.items():
        if stood is not None and changes.get(name, stood) != stood:
            raise NotPermitted("only people change who answers in a conversation, and to what")


def check_queue(queued: int) -> None:
    """Refuse one more run of a task of which many wait."""
    if queued >= MOST_QUEUED:
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


def inherited(own: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
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


def _holds(mine: Share, share: Share) -> bool:
    below = posixpath.commonpath([mine.path, share.path]) == mine.path
    return below and (mine.write or not share.write)

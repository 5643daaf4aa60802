"""Who holds which bound: a control group for all processes together, rlimits for each one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rota.errors import Unavailable
from rota.executors.kit.executor import Missing, Room
from rota.executors.kit.groups import Hierarchy
from rota.model.programs import Bounds
from rota.model.sites import Held

WALLED_PROCESSES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Words for `start`, and in `left` what the keeper still has to hold.

    `inside` may only be said in the program's own user namespace: outside it would count, and stop,
    every process of the same user.
    """

    outside: Sequence[str]
    inside: Sequence[str]
    left: Bounds


def hold(room: Room, hierarchy: Hierarchy | None, *, counts_alone: bool) -> Holding:
    """Return how the bounds of a room are held.

    `counts_alone`: the program has a user namespace of its own, so that its processes are counted
    without anybody else's. Nothing but a control group holds a part of the processors.
    """
    bounds = room.bounds
    settings = hierarchy.settings(bounds) if hierarchy else {}
    if bounds.cpus is not None and "cpu.max" not in settings:
        raise Unavailable(f"cpus cannot be bounded here: {DELEGATE.format('cpu')}, or {NO_CPUS}")
    outside = ["--group", hierarchy.path(room.name), _joined(settings)] if hierarchy else []
    outside += _limit("CORE", 0)
    outside += _limit("NOFILE", bounds.open_files)
    outside += _limit("FSIZE", bounds.file_bytes)
    if "memory.max" not in settings:
        outside += _limit("DATA", bounds.memory_bytes)
    inside = [] if "pids.max" in settings or not counts_alone else _limit("NPROC", bounds.processes)
    return Holding(outside=outside, inside=inside, left=timed(bounds))


def _limit(name: str, value: int | None) -> list[str]:
    return [] if value is None else ["--limit", name, str(value)]


def holds(hierarchy: Hierarchy | None, *, counts_alone: bool) -> dict[str, Held]:
    """Return for whom `hold` bounds what; a part of the processors is refused where nobody does."""
    held = hierarchy.controllers if hierarchy else frozenset()
    counted = counts_alone or "pids" in held
    return {
        "memory_mib": Held.TOGETHER if "memory" in held else Held.EACH,
        "processes": Held.TOGETHER if counted else Held.NOT,
        "cpus": Held.TOGETHER if "cpu" in held else Held.NOT,
    }


def walled(bounds: Bounds, held: Mapping[str, Held]) -> Bounds:
    """Return bounds within which strangers may run: so many processes, and half of the memory.

    Memory only where it is bounded for all processes together: one by one, it would stop programs
    that reserve much more than they use.
    """
    if bounds.processes is None:
        bounds = replace(bounds, processes=WALLED_PROCESSES)
    if bounds.memory_bytes is None and held["memory_mib"] is Held.TOGETHER:
        bounds = replace(bounds, memory_bytes=memory_here() // 2)
    return bounds


def memory_here() -> int:
    """Return how much memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def held_apart(hierarchy: Hierarchy | None, *controllers: str) -> list[Missing]:
    """Return the bounds that no control group holds for all processes together."""
    held = hierarchy.controllers if hierarchy else frozenset()
    return [
        Missing(TOGETHER[name], "cgroup", DELEGATE.format(name), needed=False)
        for name in controllers
        if name not in held
    ]


TOGETHER = {
    "pids": "a bound on the number of processes",
    "memory": "a bound on the memory of all processes together",
    "cpu": "a bound on processors",
}
NO_CPUS = "take the bound off (`rota task edit TASK --cpus none`)"
DELEGATE = "let the service manager hand the {} controller to Rota (Delegate=yes)"


def timed(bounds: Bounds) -> Bounds:
    """Return what only a keeper can hold: time and output."""
    return replace(
        bounds, memory_bytes=None, processes=None, open_files=None, file_bytes=None, cpus=None
    )


def _joined(settings: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())

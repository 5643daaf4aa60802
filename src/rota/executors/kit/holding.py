"""Who holds which bound: a control group for all processes together, rlimits for each one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.executors.kit.groups import Hierarchy
from rota.executors.kit.place import Room
from rota.model.programs import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Words for `start`: `group` where groups can be made, `limits` next to the program.

    `left` is what the keeper still has to hold.
    """

    group: Sequence[str]
    limits: Sequence[str]
    left: Bounds


def hold(room: Room, hierarchy: Hierarchy | None, *, counts_alone: bool) -> Holding:
    """Return how the bounds of a room are held.

    `counts_alone`: the program has a user namespace of its own, so that its processes are counted
    without anybody else's.
    """
    bounds = room.bounds
    settings = hierarchy.settings(bounds) if hierarchy else {}
    group = ["--group", hierarchy.path(room.name), _joined(settings)] if hierarchy else []
    limits = {
        "CORE": 0,
        "NOFILE": bounds.open_files,
        "FSIZE": bounds.file_bytes,
        "DATA": None if "memory.max" in settings else bounds.memory_bytes,
        "NPROC": None if "pids.max" in settings or not counts_alone else bounds.processes,
    }
    words = [
        word
        for name, value in limits.items()
        if value is not None
        for word in ("--limit", name, str(value))
    ]
    left = timed(bounds)
    return Holding(group=group, limits=words, left=left)


def timed(bounds: Bounds) -> Bounds:
    """Return what only a keeper can hold: time and output."""
    return replace(
        bounds, memory_bytes=None, processes=None, open_files=None, file_bytes=None, cpus=None
    )


def _joined(settings: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())

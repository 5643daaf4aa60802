"""Which mechanism enforces which limit: cgroups, rlimits, engines.

With cgroup v2, Rota's cgroup must be delegated to it (`Delegate=yes`), and Rota must run in a leaf
of it (`DelegateSubgroup=`, systemd 254), because a cgroup with processes cannot limit its children.
With cgroup v1 only the number of processes is limited this way.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rota.errors import Unavailable
from rota.model.programs import LimitEnforcement, ResourceLimits
from rota.ports.executor import ExecutionSpec, MissingRequirement

log = logging.getLogger(__name__)

CONTROLLERS = frozenset({"pids", "memory", "cpu"})
PREFIX = "rota-"
CPU_PERIOD = 100_000
REMOVE_SECONDS = 5.0
PAUSE = 0.005


@dataclass(frozen=True, slots=True)
class CgroupHierarchy:
    """Where cgroups can be created, and which controllers they have."""

    folder: str
    controllers: frozenset[str]
    unified: bool

    def path(self, name: str) -> str:
        """Return the folder of an attempt's cgroup."""
        return f"{self.folder}/{PREFIX}{name}"

    def settings(self, bounds: ResourceLimits) -> dict[str, str]:
        """Return the settings of a new cgroup, by file."""
        made: dict[str, str] = {}
        if bounds.processes is not None and "pids" in self.controllers:
            made["pids.max"] = str(bounds.processes)
        if bounds.memory_bytes is not None and "memory" in self.controllers:
            made["memory.max"] = str(bounds.memory_bytes)
            made["memory.swap.max"] = "0"
            made["memory.oom.group"] = "1"
        if bounds.cpus is not None and "cpu" in self.controllers:
            made["cpu.max"] = f"{int(bounds.cpus * CPU_PERIOD)} {CPU_PERIOD}"
        return made


def find_hierarchy(
    root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup"
) -> CgroupHierarchy | None:
    """Return where this process may create cgroups; None if nothing is delegated to it."""
    lines = _memberships(own)
    for number, names, path in lines:
        if number == "0" and not names:
            here = _usable_hierarchy(_parent_of_leaf(Path(root + path)))
            if here:
                return here
    for _, names, path in lines:
        folder = Path(root, "pids" + path)
        if names == "pids" and os.access(folder, os.W_OK) and (folder / "cgroup.procs").exists():
            return CgroupHierarchy(str(folder), frozenset({"pids"}), unified=False)
    return None


LEAF = "rota.leaf"


def _parent_of_leaf(folder: Path) -> Path:
    return folder.parent if folder.name == LEAF else folder


def _usable_hierarchy(folder: Path) -> CgroupHierarchy | None:
    try:
        handed_down = set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return None
    if not CONTROLLERS & handed_down or not os.access(folder / "cgroup.procs", os.W_OK):
        return None
    if not os.access(folder, os.W_OK):
        return None
    return CgroupHierarchy(str(folder), frozenset(CONTROLLERS & handed_down), unified=True)


def delegate_controllers(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> None:
    """Enable controllers for the cgroups of attempts, if this process runs in the leaf.

    Called once by a daemon, before its first attempt. It moves no process: a cgroup created by
    others may have other processes, and a service manager could not restart its daemon in a cgroup
    with enabled controllers while attempts are running.
    """
    for number, names, path in _memberships(own):
        folder = Path(root + path)
        if number != "0" or names or folder.name != LEAF:
            continue
        try:
            offered = set((folder.parent / "cgroup.controllers").read_text().split())
            wish = " ".join(f"+{name}" for name in sorted(CONTROLLERS & offered))
            (folder.parent / "cgroup.subtree_control").write_text(wish)
        except OSError as error:
            log.warning("cgroup.not_delegated", extra={"error": str(error)})


def _memberships(own: str) -> list[list[str]]:
    try:
        text = Path(own).read_text(encoding="utf-8")
    except FileNotFoundError:  # not Linux
        return []
    return [line.split(":", 2) for line in text.splitlines()]


def remove_cgroup(hierarchy: CgroupHierarchy, name: str, patience: float = REMOVE_SECONDS) -> None:
    """Kill what is left in an attempt's cgroup and remove it; raise Unavailable if it remains."""
    folder = Path(hierarchy.path(name))
    until = time.monotonic() + patience
    while folder.exists():
        try:
            _remove(folder)
        except OSError as error:
            if time.monotonic() > until:
                raise Unavailable(f"{folder} is not empty: {error.strerror}; try again") from error
            time.sleep(PAUSE)


def _remove(folder: Path) -> None:
    """Remove a cgroup with its children; each is killed separately."""
    _kill(folder)
    for inner in folder.iterdir():
        if inner.is_dir():
            _remove(inner)
    folder.rmdir()


def _kill(folder: Path) -> None:
    whole = folder / "cgroup.kill"
    if whole.exists():
        whole.write_text("1")
        return
    for pid in (folder / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitArguments:
    """Arguments for `exec_program`; `left` are the limits for the keeper.

    `inside` only works in the program's own user namespace: outside it would count all processes of
    the user.
    """

    outside: Sequence[str]
    inside: Sequence[str]
    left: ResourceLimits


def limit_arguments(
    room: ExecutionSpec, hierarchy: CgroupHierarchy | None, *, counts_alone: bool
) -> LimitArguments:
    """Return how limits are enforced.

    `counts_alone`: the program has its own user namespace, so its processes are counted separately.
    Only a cgroup limits CPUs.
    """
    bounds = room.bounds
    settings = hierarchy.settings(bounds) if hierarchy else {}
    if bounds.cpus is not None and "cpu.max" not in settings:
        raise Unavailable(f"CPUs cannot be limited here: {DELEGATE.format('cpu')}, or {NO_CPUS}")
    outside = ["--group", hierarchy.path(room.name), _join_settings(settings)] if hierarchy else []
    outside += _limit("CORE", 0)
    outside += _limit("NOFILE", bounds.open_files)
    outside += _limit("FSIZE", bounds.file_bytes)
    if "memory.max" not in settings:
        outside += _limit("DATA", bounds.memory_bytes)
    inside = [] if "pids.max" in settings or not counts_alone else _limit("NPROC", bounds.processes)
    return LimitArguments(outside=outside, inside=inside, left=keeper_limits(bounds))


def _limit(name: str, value: int | None) -> list[str]:
    return [] if value is None else ["--limit", name, str(value)]


def enforced_limits(
    hierarchy: CgroupHierarchy | None, *, counts_alone: bool
) -> dict[str, LimitEnforcement]:
    """Return how `limit_arguments` enforces each limit."""
    held = hierarchy.controllers if hierarchy else frozenset()
    counted = counts_alone or "pids" in held
    return {
        "memory_mib": LimitEnforcement.TOGETHER if "memory" in held else LimitEnforcement.EACH,
        "processes": LimitEnforcement.TOGETHER if counted else LimitEnforcement.NOT,
        "cpus": LimitEnforcement.TOGETHER if "cpu" in held else LimitEnforcement.NOT,
    }


def limited_separately(
    hierarchy: CgroupHierarchy | None, *controllers: str
) -> list[MissingRequirement]:
    """Return the limits that no cgroup enforces for all processes together."""
    held = hierarchy.controllers if hierarchy else frozenset()
    return [
        MissingRequirement(LIMIT_NAMES[name], "cgroup", DELEGATE.format(name), needed=False)
        for name in controllers
        if name not in held
    ]


LIMIT_NAMES = {
    "pids": "a limit on the number of processes",
    "memory": "a limit on the memory of all processes together",
    "cpu": "a limit on CPUs",
}
NO_CPUS = "remove the limit (`rota task edit TASK --cpus none`)"
DELEGATE = "delegate the {} controller to Rota (Delegate=yes)"


def keeper_limits(bounds: ResourceLimits) -> ResourceLimits:
    """Return the limits that only a keeper enforces: time and output."""
    return replace(
        bounds, memory_bytes=None, processes=None, open_files=None, file_bytes=None, cpus=None
    )


def _join_settings(settings: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())

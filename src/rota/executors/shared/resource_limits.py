"""Who enforces which limit: control groups, rlimits, engines.

On a machine with cgroup v2 the group Rota runs in must be delegated to it (`Delegate=yes`), and
Rota itself must stand in a leaf of it (`DelegateSubgroup=`, systemd 254): a group with processes of
its own cannot bound its children.
With the old hierarchies only the number of processes is bounded this way.
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

WANTED = frozenset({"pids", "memory", "cpu"})
PREFIX = "rota-"
CPU_PERIOD = 100_000
PATIENCE = 5.0
PAUSE = 0.005


@dataclass(frozen=True, slots=True)
class CgroupHierarchy:
    """Where groups can be made, and what they can bound there."""

    folder: str
    controllers: frozenset[str]
    unified: bool

    def path(self, name: str) -> str:
        """Return the folder of an attempt's group."""
        return f"{self.folder}/{PREFIX}{name}"

    def settings(self, bounds: ResourceLimits) -> dict[str, str]:
        """Return what is written into a new group, by file."""
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
    """Return where this process may make groups, or None where nothing is delegated to it."""
    lines = _memberships(own)
    for number, names, path in lines:
        if number == "0" and not names:
            here = _usable(_leafless(Path(root + path)))
            if here:
                return here
    for _, names, path in lines:
        folder = Path(root, "pids" + path)
        if names == "pids" and os.access(folder, os.W_OK) and (folder / "cgroup.procs").exists():
            return CgroupHierarchy(str(folder), frozenset({"pids"}), unified=False)
    return None


LEAF = "rota.leaf"


def _leafless(folder: Path) -> Path:
    return folder.parent if folder.name == LEAF else folder


def _usable(folder: Path) -> CgroupHierarchy | None:
    try:
        handed_down = set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return None
    if not WANTED & handed_down or not os.access(folder / "cgroup.procs", os.W_OK):
        return None
    if not os.access(folder, os.W_OK):
        return None
    return CgroupHierarchy(str(folder), frozenset(WANTED & handed_down), unified=True)


def settle_in(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> None:
    """Hand the controllers down to the groups of attempts, where this process stands in the leaf.

    Called once by a daemon, before its first attempt. It moves no process: in a group that somebody
    else made others may stand as well, and a service manager that puts its daemon at the top cannot
    start it again beside programs that go on, once controllers are handed down there.
    """
    for number, names, path in _memberships(own):
        folder = Path(root + path)
        if number != "0" or names or folder.name != LEAF:
            continue
        try:
            offered = set((folder.parent / "cgroup.controllers").read_text().split())
            wish = " ".join(f"+{name}" for name in sorted(WANTED & offered))
            (folder.parent / "cgroup.subtree_control").write_text(wish)
        except OSError as error:
            log.warning("groups.not_delegated", extra={"error": str(error)})


def _memberships(own: str) -> list[list[str]]:
    try:
        text = Path(own).read_text(encoding="utf-8")
    except FileNotFoundError:  # not Linux
        return []
    return [line.split(":", 2) for line in text.splitlines()]


def clear(hierarchy: CgroupHierarchy, name: str, patience: float = PATIENCE) -> None:
    """End what is left in an attempt's group and remove it; raise Unavailable if it stays."""
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
    """Remove a group with those that were made inside it, of which each is ended by itself."""
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
    """Words for `start`, and in `left` what the keeper still has to hold.

    `inside` may only be said in the program's own user namespace: outside it would count, and stop,
    every process of the same user.
    """

    outside: Sequence[str]
    inside: Sequence[str]
    left: ResourceLimits


def limit_arguments(
    room: ExecutionSpec, hierarchy: CgroupHierarchy | None, *, counts_alone: bool
) -> LimitArguments:
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
    return LimitArguments(outside=outside, inside=inside, left=timed(bounds))


def _limit(name: str, value: int | None) -> list[str]:
    return [] if value is None else ["--limit", name, str(value)]


def enforced_limits(
    hierarchy: CgroupHierarchy | None, *, counts_alone: bool
) -> dict[str, LimitEnforcement]:
    """Return for whom `hold` bounds what; a part of the processors is refused where nobody does."""
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
    """Return the bounds that no control group holds for all processes together."""
    held = hierarchy.controllers if hierarchy else frozenset()
    return [
        MissingRequirement(TOGETHER[name], "cgroup", DELEGATE.format(name), needed=False)
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


def timed(bounds: ResourceLimits) -> ResourceLimits:
    """Return what only a keeper can hold: time and output."""
    return replace(
        bounds, memory_bytes=None, processes=None, open_files=None, file_bytes=None, cpus=None
    )


def _joined(settings: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())

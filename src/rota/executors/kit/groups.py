"""Control groups: the only bound that holds for all processes of an attempt together.

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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rota.errors import Unavailable
from rota.model.programs import Bounds

log = logging.getLogger(__name__)

WANTED = frozenset({"pids", "memory", "cpu"})
PREFIX = "rota-"
CPU_PERIOD = 100_000
PATIENCE = 5.0
PAUSE = 0.005


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups can be made, and what they can bound there."""

    folder: str
    controllers: frozenset[str]
    unified: bool

    def path(self, name: str) -> str:
        """Return the folder of an attempt's group."""
        return f"{self.folder}/{PREFIX}{name}"

    def settings(self, bounds: Bounds) -> dict[str, str]:
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
) -> Hierarchy | None:
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
            return Hierarchy(str(folder), frozenset({"pids"}), unified=False)
    return None


LEAF = "rota.leaf"


def _leafless(folder: Path) -> Path:
    return folder.parent if folder.name == LEAF else folder


def _usable(folder: Path) -> Hierarchy | None:
    try:
        handed_down = set((folder / "cgroup.subtree_control").read_text().split())
    except OSError:
        return None
    if not WANTED & handed_down or not os.access(folder / "cgroup.procs", os.W_OK):
        return None
    if not os.access(folder, os.W_OK):
        return None
    return Hierarchy(str(folder), frozenset(WANTED & handed_down), unified=True)


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
        except OSError as fault:
            log.warning("groups.not_delegated", extra={"error": str(fault)})


def _memberships(own: str) -> list[list[str]]:
    try:
        text = Path(own).read_text(encoding="utf-8")
    except FileNotFoundError:  # not Linux
        return []
    return [line.split(":", 2) for line in text.splitlines()]


def clear(hierarchy: Hierarchy, name: str, patience: float = PATIENCE) -> None:
    """End what is left in an attempt's group and remove it; raise Unavailable if it stays."""
    folder = Path(hierarchy.path(name))
    until = time.monotonic() + patience
    while folder.exists():
        try:
            _remove(folder)
        except OSError as fault:
            if time.monotonic() > until:
                raise Unavailable(f"{folder} is not empty: {fault.strerror}; try again") from fault
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

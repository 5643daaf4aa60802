"""The allowlist of mounts, system folders, and environments of programs.

The allowlist is a file of the operator. It is rejected if it is in one of the folders it allows,
because what programs can write must not decide what programs can see.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rota.errors import Invalid, NotPermitted, shown
from rota.keeper.paths import steps_below
from rota.model.programs import Program, SharedFolder
from rota.model.spaces import SpaceRole
from rota.ports.executor import SEARCH_PATH, ExecutionSpec

TOO_BROAD = (
    "/",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/proc",
    "/root",
    "/run",
    "/sys",
    "/usr",
    "/var",
)
"""Folders that are never allowed as a whole; the operator may allow folders inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedMount:
    """An allowed folder with everything below it; member spaces may be limited to reading.

    `own`: Rota mounts parts of it for each attempt; tasks cannot request it.
    """

    folder: str
    write: bool = True
    members_write: bool = True
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted path, the same inside and outside; `root` is the trusted folder above it."""

    root: str
    path: str
    write: bool


@dataclass(frozen=True, slots=True)
class MountAllowlist:
    """The allowed folders; the most specific entry decides."""

    folders: Sequence[AllowedMount] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for entry in self.folders:
            if not entry.folder.startswith("/") or os.path.normpath(entry.folder) != entry.folder:
                raise Invalid("folder", entry.folder, "give an absolute path without . and ..")
            if entry.folder in TOO_BROAD:
                raise Invalid("folder", entry.folder, "name a folder inside it, not all of it")

    def mount(self, path: str, role: SpaceRole, *, write: bool) -> Mount:
        """Return the mount of a path; raise NotPermitted if it is not allowed."""
        entry = self._entry(path)
        may = entry.write and (role is SpaceRole.MAIN or entry.members_write)
        return Mount(root=entry.folder, path=path, write=write and may)

    def _entry(self, path: str) -> AllowedMount:
        fitting = [a for a in self.folders if steps_below(a.folder, path) is not None]
        if not fitting:
            raise NotPermitted(
                f"{shown(path)} may not be mounted: add a folder above it to the mounts"
            )
        return max(fitting, key=lambda a: len(a.folder))

    def share(self, share: SharedFolder, role: SpaceRole) -> Mount:
        """Return the mount that a task requests; raise NotPermitted if it is not allowed."""
        if self._entry(share.path).own:
            raise NotPermitted(f"{shown(share.path)} belongs to Rota: request another folder")
        made = self.mount(share.path, role, write=share.write)
        if share.write and not made.write:
            raise NotPermitted(f"{shown(share.path)} is read-only: request it without :rw")
        return made

    def of(self, room: ExecutionSpec) -> list[Mount]:
        """Return all mounts of an attempt, outer folders first, so that none hides another.

        Its own home and artifacts are always writable. A path that is requested twice is writable
        only if both requests allow it.
        """
        made = [self.mount(path, room.role, write=False) for path in room.readable]
        made += [self.share(share, room.role) for share in room.shared]
        made.append(self.mount(room.folder, room.role, write=room.writable))
        own = [path for path in (room.home, room.artifacts, room.outbox) if path]
        made += [self.mount(path, SpaceRole.MAIN, write=True) for path in own]
        sorted_out: dict[str, Mount] = {}
        for mount in sorted(made, key=lambda m: (m.path.count("/"), m.path, m.write)):
            sorted_out.setdefault(mount.path, mount)
            if steps_below(mount.path, room.state) is not None:
                raise NotPermitted(f"{shown(mount.path)} holds the attempt's own state")
        return list(sorted_out.values())


MOUNTS = "mounts.toml"


def load_mounts(home: Path, listed: Path | None) -> MountAllowlist:
    """Return the folders that programs may mount: their own, and those of the operator's list.

    Rota's home is never allowed: it contains the database, the keys and this list.
    """
    own = (
        AllowedMount(folder=str(home / "spaces"), own=True),
        AllowedMount(folder=str(home / "keepers" / "rooms"), write=False, own=True),
        AllowedMount(folder=str(home / "keepers" / "mailboxes"), own=True),
    )
    path = listed or home / MOUNTS
    if listed is None and not path.exists():
        return MountAllowlist(own)
    if steps_below(str(home.resolve() / "spaces"), str(path.resolve())) is not None:
        raise Invalid("mounts", str(path), "move it out of `spaces`, where programs write")
    allowed = read_mounts(path).folders
    for entry in allowed:
        real = os.path.realpath(entry.folder)
        for one, other in ((real, str(home.resolve())), (str(home.resolve()), real)):
            if steps_below(one, other) is not None:
                advice = "name folders outside of Rota's home that do not contain it"
                raise Invalid("mounts", entry.folder, advice)
    return MountAllowlist((*own, *allowed))


def read_mounts(path: Path) -> MountAllowlist:
    """Read an allowlist of `[[mount]]` tables; raise Invalid if the file cannot be trusted."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise Invalid("mounts", str(path), f"it cannot be read: {error.strerror}") from error
    with file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in {0, os.geteuid()}:
            raise Invalid("mounts", str(path), "it must be a regular file of this user")
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Invalid("mounts", str(path), "others may write it: use chmod go-w")
        try:
            found = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise Invalid("mounts", str(path), str(error)) from error
    tables = found.pop("mount", [])
    if not isinstance(tables, list):
        raise Invalid("mounts", str(path), 'each [[mount]] needs folder = "/…"')
    listed = MountAllowlist([_entry(path, table) for table in tables])
    if found:
        raise Invalid("mounts", ", ".join(found), "only [[mount]] tables are known")
    where = str(path.resolve())
    for entry in listed.folders:
        if steps_below(os.path.realpath(entry.folder), where) is not None:
            raise Invalid("mounts", str(path), f"move it out of {entry.folder}, which it allows")
    return listed


def _entry(path: Path, table: object) -> AllowedMount:
    if not isinstance(table, dict) or not isinstance(table.get("folder"), str):
        raise Invalid("mounts", str(path), 'each [[mount]] needs folder = "/…"')
    choices = {name: value for name, value in table.items() if name != "folder"}
    for name, value in choices.items():
        if name not in {"write", "members_write"} or not isinstance(value, bool):
            raise Invalid("mounts", name, "only write and members_write, true or false, are known")
    return AllowedMount(folder=table["folder"], **choices)


TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class SystemFolders:
    """System folders, and links as pairs of target and name."""

    links: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]

    @classmethod
    def here(cls, root: str = "/") -> SystemFolders:
        """Examine this machine."""
        top = [Path(root, name) for name in TOP]
        links = tuple((str(path.readlink()), f"/{path.name}") for path in top if path.is_symlink())
        real = (f"/{path.name}" for path in top if path.is_dir() and not path.is_symlink())
        return cls(links, ("/usr", *real))


def environment(command: Program, room: ExecutionSpec) -> dict[str, str]:
    """Return the environment of a program of the host: its own variables, and a PATH."""
    return {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **program_variables(command, room)}


def program_variables(command: Program, room: ExecutionSpec) -> dict[str, str]:
    """Return a program's own variables and its home."""
    for name, value in command.env.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise Invalid("environment", name, "use letters, digits and _, and no NUL")
        if room.isolated and LOADER.match(name):
            raise Invalid("environment", name, "it would take effect outside: use env(1) inside")
    return {**command.env, "HOME": room.home}


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
LOADER = re.compile(r"LD_|GLIBC_TUNABLES$|GCONV_PATH$|LOCPATH$|TMUX", re.ASCII)

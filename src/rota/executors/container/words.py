"""What an engine is told: a container that has nothing but what is named here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rota.errors import Invalid
from rota.executors.kit.executor import Room
from rota.executors.kit.mounts import Mount
from rota.model.programs import MIB, Command
from rota.model.sites import Network

DIGEST = re.compile(r"[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}", re.ASCII)
LOCAL = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
LABEL = "rota.attempt"
PROCESSES = 1024
FILES = 4096
USERS_PROCESSES = 4096
"""All limits are named: an engine's own defaults may be more than Rota's user can give."""
OWN_TMP = f"/tmp:rw,nosuid,nodev,size={1024 * MIB},mode=1777"  # noqa: S108
MAPPED = 1000
FORWARD_INSIDE = "/run/rota/forward.py"
SOCKET_INSIDE = "/run/rota/outlet.sock"
FOLDER_INSIDE = "/run/rota/outlet"


class Users(StrEnum):
    """Whom a program is to the host.

    `mapped`: its root is nobody outside, and it is whoever runs Rota. `own`: it is whoever runs
    Rota, without a user namespace; all that docker has.
    """

    MAPPED = "mapped"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How to reach an engine: its program, options before each command, and its environment.

    `local_images` allows images that have no digest of a registry, by their id.
    """

    program: str
    kind: str
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    users: Users = Users.OWN
    local_images: bool = False

    def words(self, *words: str) -> list[str]:
        """Return a command of the engine's."""
        return [self.program, *self.options, *words]


def pinned(engine: Engine, image: str | None) -> str:
    """Return an image that can only be what it was when it was chosen."""
    if image and (DIGEST.fullmatch(image) or (engine.local_images and LOCAL.fullmatch(image))):
        return image
    advice = "name it by digest, repository@sha256:…"
    if engine.local_images:
        advice += ", or a local one by its id, sha256:…"
    raise Invalid("image", image or "", advice)


def walls(engine: Engine, room: Room) -> list[str]:
    """Return what holds a container in, without its mounts."""
    bounds = room.bounds
    words = ["--pull", "never", "--rm", "--init", "--interactive", "--entrypoint", ""]
    words += ["--name", f"rota-{room.name}", "--label", f"{LABEL}={room.name}"]
    words += ["--hostname", "rota", "--cidfile", f"{room.state}/container.id"]
    words += ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    words += ["--security-opt", f"seccomp={room.state}/seccomp.json", "--ipc", "private"]
    words += ["--tmpfs", OWN_TMP]
    if engine.kind == "podman":
        words += ["--read-only-tmpfs=false"]
    if room.network is not Network.OPEN:
        words += ["--network", "none"]
    words += ["--pids-limit", str(bounds.processes or PROCESSES), *_limit("core", 0)]
    words += [*_limit("nofile", bounds.open_files or FILES), *_limit("nproc", USERS_PROCESSES)]
    if bounds.memory_bytes is not None:
        words += ["--memory", str(bounds.memory_bytes), "--memory-swap", str(bounds.memory_bytes)]
    if bounds.cpus is not None:
        words += ["--cpus", str(bounds.cpus)]
    if bounds.file_bytes is not None:
        words += _limit("fsize", bounds.file_bytes)
    return [*words, *_user(engine)]


def _limit(name: str, value: int) -> list[str]:
    return ["--ulimit", f"{name}={value}:{value}"]


def _user(engine: Engine) -> list[str]:
    own = f"{os.geteuid()}:{os.getegid()}"
    if engine.users is Users.OWN:
        return ["--user", own]
    if os.geteuid() != 0:
        return ["--userns", "keep-id", "--user", own]
    words = []
    for option in ("--uidmap", "--gidmap"):
        for ids in (f"0:100000:{MAPPED}", f"{MAPPED}:0:1", f"{MAPPED + 1}:101000:64535"):
            words += [option, ids]
    return [*words, "--user", f"{MAPPED}:{MAPPED}"]


def mounted(room: Room, mounts: Sequence[Mount], forward: str) -> list[str]:
    """Return the mounts, in the words that `launch` replaces when it has looked at each path."""
    words = []
    for mount in mounts:
        words += ["--lend" if mount.write else "--show", mount.root, mount.path]
        if mount.path == room.folder and mount.write:
            for name in room.guarded:
                words += ["--guard", room.folder, name]
    if room.outlet:
        words += ["--file", forward, FORWARD_INSIDE]
        folder, _, _ = room.outlet.socket.rpartition("/")
        alone = ["--folder", folder, FOLDER_INSIDE]
        words += alone if room.outlet.alone else ["--outlet", room.outlet.socket, SOCKET_INSIDE]
    for word in words:
        if re.search(r'[,":\n]', word):
            raise Invalid("path", word, 'engines cannot mount paths with , " or :')
    return words


def program(command: Command, room: Room) -> list[str]:
    """Return the program, behind its way out if it has one; the image needs a python3 for that."""
    if not room.outlet:
        return list(command.argv)
    alone = f"{FOLDER_INSIDE}/{room.outlet.socket.rpartition('/')[2]}"
    socket = alone if room.outlet.alone else SOCKET_INSIDE
    way_out = ["python3", "-I", "-S", FORWARD_INSIDE, str(room.outlet.port), socket]
    return [*way_out, "--", *command.argv]

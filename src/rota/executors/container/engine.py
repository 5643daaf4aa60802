"""Command lines of docker and podman, and known vulnerable versions of runc."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rota.errors import Invalid
from rota.executors.shared.mounts import Mount
from rota.model.programs import MIB, NetworkAccess
from rota.ports.executor import ExecutionSpec, MissingRequirement

DIGEST = re.compile(r"[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}", re.ASCII)
LOCAL = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
LABEL = "rota.attempt"
PROCESSES = 1024
FILES = 4096
USERS_PROCESSES = 4096
"""All limits are set: an engine's defaults may exceed what Rota's user may set."""
OWN_TMP = f"/tmp:rw,nosuid,nodev,size={1024 * MIB},mode=1777"  # noqa: S108
HOST_NAME = ("--hostname", "rota")
MAPPED = 1000


class UserMapping(StrEnum):
    """User of a container's program on the host.

    `mapped`: in a user namespace; its user is the one that runs Rota, and root inside has no rights
    outside. `own`: the user that runs Rota, without a user namespace; docker only has this.
    """

    MAPPED = "mapped"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEngine:
    """How to call an engine: its program, global options, and environment.

    `local_images` allows images without a registry digest, by their id.
    """

    program: str
    kind: str
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    users: UserMapping = UserMapping.OWN
    local_images: bool = False

    def words(self, *words: str) -> list[str]:
        """Return a command line of the engine."""
        return [self.program, *self.options, *words]


ENGINES = ("podman", "docker")
VARIABLES = (
    "HOME",
    "XDG_RUNTIME_DIR",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
)
"""The environment of the client of an engine."""


def pinned_image(engine: ContainerEngine, image: str | None) -> str:
    """Return an image reference if it is immutable; raise Invalid if not."""
    if image and (DIGEST.fullmatch(image) or (engine.local_images and LOCAL.fullmatch(image))):
        return image
    advice = "name it by digest, repository@sha256:…"
    if engine.local_images:
        advice += ", or a local one by its id, sha256:…"
    advice += f": see `{engine.kind} images --digests --no-trunc`"
    raise Invalid("image", image or "", advice)


def run_arguments(engine: ContainerEngine, room: ExecutionSpec) -> list[str]:
    """Return the arguments that isolate a container, without its mounts.

    A container with sockets of the host shares the network and users of its sidecar.
    """
    bounds, beside = room.bounds, f"container:{sidecar_name(room)}"
    words = ["--init", "--interactive", *isolation_arguments(room), "--name", f"rota-{room.name}"]
    words += ["--cidfile", f"{room.state}/container.id", "--tmpfs", OWN_TMP]
    if engine.kind == "podman":  # docker uses the host name of the sidecar
        words += ["--read-only-tmpfs=false", *(HOST_NAME if has_sockets(room) else ())]
    words += ["--network", beside] if has_sockets(room) else no_network_arguments(room)
    words += ["--pids-limit", str(bounds.processes or PROCESSES)]
    words += ulimit_arguments(bounds.open_files or FILES)
    if bounds.memory_bytes is not None:
        words += ["--memory", str(bounds.memory_bytes), "--memory-swap", str(bounds.memory_bytes)]
    if bounds.cpus is not None:
        words += ["--cpus", str(bounds.cpus)]
    if bounds.file_bytes is not None:
        words += _limit("fsize", bounds.file_bytes)
    if has_sockets(room) and engine.users is UserMapping.MAPPED:
        return [*words, "--userns", beside, *user_arguments(engine)[-2:]]
    return [*words, *user_arguments(engine)]


def isolation_arguments(room: ExecutionSpec) -> list[str]:
    """Return the arguments that isolate all containers of an attempt, and its label.

    The engine writes no log: it would be unbounded, and secrets in it would not be redacted.
    """
    words = [
        "--log-driver",
        "none",
        "--pull",
        "never",
        "--rm",
        "--entrypoint",
        "",
        "--label",
        f"{LABEL}={room.name}",
    ]
    words += ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    return [*words, "--security-opt", f"seccomp={room.state}/seccomp.json", "--ipc", "private"]


def no_network_arguments(room: ExecutionSpec) -> list[str]:
    """Return the network arguments of a container that shares no network."""
    return [*HOST_NAME, *([] if room.network is NetworkAccess.OPEN else ["--network", "none"])]


def has_sockets(room: ExecutionSpec) -> bool:
    """Whether a program gets sockets of the host."""
    return bool(room.egress or room.desk)


def sidecar_name(room: ExecutionSpec) -> str:
    """Return the name of the sidecar container."""
    return f"rota-{room.name}-sidecar"


def ulimit_arguments(files: int) -> list[str]:
    """Return the limits that are always set."""
    return [*_limit("core", 0), *_limit("nofile", files), *_limit("nproc", USERS_PROCESSES)]


def _limit(name: str, value: int) -> list[str]:
    return ["--ulimit", f"{name}={value}:{value}"]


def user_arguments(engine: ContainerEngine) -> list[str]:
    """Return the arguments that select the user."""
    own = f"{os.geteuid()}:{os.getegid()}"
    if engine.users is UserMapping.OWN:
        return ["--user", own]
    if os.geteuid() != 0:
        return ["--userns", "keep-id", "--user", own]
    words = []
    for option in ("--uidmap", "--gidmap"):
        for ids in (f"0:100000:{MAPPED}", f"{MAPPED}:0:1", f"{MAPPED + 1}:101000:64535"):
            words += [option, ids]
    return [*words, "--user", f"{MAPPED}:{MAPPED}"]


def mount_arguments(room: ExecutionSpec, mounts: Sequence[Mount]) -> list[str]:
    """Return the mounts as arguments that the entrypoint replaces after checking each path."""
    words = []
    for mount in mounts:
        words += ["--lend" if mount.write else "--show", mount.root, mount.path]
        if mount.path == room.folder and mount.write:
            for name in room.guarded:
                words += ["--guard", room.folder, name]
    return check_mountable(words)


def check_mountable(words: list[str]) -> list[str]:
    """Return arguments with paths; raise Invalid if an engine would misread one."""
    for word in words:
        if re.search(r'[,":\n]', word):
            raise Invalid("path", word, "engines cannot mount paths with commas, quotes or colons")
    return words


VERSION_COMMANDS = {
    "podman": ("info", "--format", "{{.Host.OCIRuntime.Version}}"),
    "docker": ("version", "--format", "{{range .Server.Components}}{{.Name}} {{.Version}} {{end}}"),
}
RUNC = re.compile(r"\brunc (?:version )?v?(\d+)\.(\d+)\.(\d+)")
FIXED_VERSIONS = {(1, 2): 8, (1, 3): 3}
"""By minor version: older patch levels have CVE-2024-21626 or CVE-2025-31133."""


def outdated_runtime(engine: ContainerEngine, told: str) -> list[MissingRequirement]:
    """Return a warning about an outdated runtime, from the engine's version output."""
    found = RUNC.search(told)
    if found is None:
        return []
    major, minor, patch = map(int, found.groups())
    if (major, minor) > max(FIXED_VERSIONS) or patch >= FIXED_VERSIONS.get(
        (major, minor), patch + 1
    ):
        return []
    remedy = "upgrade to 1.2.8, 1.3.3 or 1.4, unless your distribution has fixed CVE-2025-31133"
    where = f"{engine.kind}, runc {major}.{minor}.{patch}"
    return [MissingRequirement("a runtime that is known to hold", where, remedy, needed=False)]

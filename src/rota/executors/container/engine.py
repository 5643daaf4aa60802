"""Command lines and versions of docker and podman."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from rota.errors import Invalid
from rota.executors.shared.mounts import Mount
from rota.model.programs import MIB, NetworkAccess
from rota.ports.executor import SEARCH_PATH, ExecutionSpec, MissingRequirement

DIGEST = re.compile(r"[a-z0-9][a-z0-9._/:-]*@sha256:[0-9a-f]{64}", re.ASCII)
LOCAL = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
LABEL = "rota.attempt"
PROCESSES = 1024
FILES = 4096
USERS_PROCESSES = 4096
"""All limits are named: an engine's own defaults may be more than Rota's user can give."""
OWN_TMP = f"/tmp:rw,nosuid,nodev,size={1024 * MIB},mode=1777"  # noqa: S108
HOST_NAME = ("--hostname", "rota")
MAPPED = 1000


class UserMapping(StrEnum):
    """Whom a program is to the host.

    `mapped`: its root is nobody outside, and it is whoever runs Rota. `own`: it is whoever runs
    Rota, without a user namespace; all that docker has.
    """

    MAPPED = "mapped"
    OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEngine:
    """How to reach an engine: its program, options before each command, and its environment.

    `local_images` allows images that have no digest of a registry, by their id.
    """

    program: str
    kind: str
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    users: UserMapping = UserMapping.OWN
    local_images: bool = False

    def words(self, *words: str) -> list[str]:
        """Return a command of the engine's."""
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


def _engine(value: str) -> str:
    if value not in ENGINES and not value.startswith("/"):
        message = "write podman, docker or the full path of one of them"
        raise ValueError(message)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """What `[executors.container]` may say."""

    engine: Annotated[str, AfterValidator(_engine)] | None = field(
        default=None,
        metadata={
            "about": "the container engine: `podman`, `docker`, or the path of one of them; "
            "default: podman if it is installed, otherwise docker"
        },
    )
    users: Literal["mapped", "own"] | None = field(
        default=None,
        metadata={
            "about": "the user of programs in containers on this machine: `mapped`, a user that "
            "owns only the folders of the program, or `own`, the user that runs Rota; default: "
            "`mapped` for rootless podman, `own` otherwise"
        },
    )


def find_engine(settings: ContainerSettings, environment: Mapping[str, str]) -> ContainerEngine:
    """Return the container engine of the settings, or the first one found."""
    wanted = settings.engine
    found = [_program(name) for name in ((wanted,) if wanted else ENGINES)]
    program = next((path for path in found if path), wanted or ENGINES[0])
    kind = "podman" if "podman" in Path(program).name else "docker"
    default = UserMapping.MAPPED if kind == "podman" and os.geteuid() != 0 else UserMapping.OWN
    known = {name: environment[name] for name in VARIABLES if name in environment}
    return ContainerEngine(
        program=program,
        kind=kind,
        env={**known, "PATH": SEARCH_PATH},
        users=UserMapping(settings.users or default),
        local_images=True,
    )


def _program(name: str) -> str | None:
    return name if name.startswith("/") else shutil.which(name, path=SEARCH_PATH)


def pinned(engine: ContainerEngine, image: str | None) -> str:
    """Return an image that can only be what it was when it was chosen."""
    if image and (DIGEST.fullmatch(image) or (engine.local_images and LOCAL.fullmatch(image))):
        return image
    advice = "name it by digest, repository@sha256:…"
    if engine.local_images:
        advice += ", or a local one by its id, sha256:…"
    advice += f": see `{engine.kind} images --digests --no-trunc`"
    raise Invalid("image", image or "", advice)


def run_arguments(engine: ContainerEngine, room: ExecutionSpec) -> list[str]:
    """Return what holds a container in, without its mounts.

    One that has ways out shares the network, and the users, of its lobby.
    """
    bounds, beside = room.bounds, f"container:{lobby_name(room)}"
    words = ["--init", "--interactive", *held(room), "--name", f"rota-{room.name}"]
    words += ["--cidfile", f"{room.state}/container.id", "--tmpfs", OWN_TMP]
    if engine.kind == "podman":  # docker gives a container the name of the one it is beside
        words += ["--read-only-tmpfs=false", *(HOST_NAME if has_ways(room) else ())]
    words += ["--network", beside] if has_ways(room) else no_network_arguments(room)
    words += ["--pids-limit", str(bounds.processes or PROCESSES)]
    words += limits(bounds.open_files or FILES)
    if bounds.memory_bytes is not None:
        words += ["--memory", str(bounds.memory_bytes), "--memory-swap", str(bounds.memory_bytes)]
    if bounds.cpus is not None:
        words += ["--cpus", str(bounds.cpus)]
    if bounds.file_bytes is not None:
        words += _limit("fsize", bounds.file_bytes)
    if has_ways(room) and engine.users is UserMapping.MAPPED:
        return [*words, "--userns", beside, *user(engine)[-2:]]
    return [*words, *user(engine)]


def held(room: ExecutionSpec) -> list[str]:
    """Return what holds every container of an attempt in, and what it is known by.

    The engine writes down nothing of what is said inside: its own copy would have no bound, and
    nobody would take the secrets out of it.
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
    """Return the network of a container that shares nobody's."""
    return [*HOST_NAME, *([] if room.network is NetworkAccess.OPEN else ["--network", "none"])]


def has_ways(room: ExecutionSpec) -> bool:
    """Say whether a program is to reach something of the host."""
    return bool(room.egress or room.desk)


def lobby_name(room: ExecutionSpec) -> str:
    """Return what the container is called that carries a program's ways out."""
    return f"rota-{room.name}-lobby"


def limits(files: int) -> list[str]:
    """Return the limits that are always named."""
    return [*_limit("core", 0), *_limit("nofile", files), *_limit("nproc", USERS_PROCESSES)]


def _limit(name: str, value: int) -> list[str]:
    return ["--ulimit", f"{name}={value}:{value}"]


def user(engine: ContainerEngine) -> list[str]:
    """Return whom a program is to the host."""
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


def mounted(room: ExecutionSpec, mounts: Sequence[Mount]) -> list[str]:
    """Return the mounts, in the words that `launch` replaces when it has looked at each path."""
    words = []
    for mount in mounts:
        words += ["--lend" if mount.write else "--show", mount.root, mount.path]
        if mount.path == room.folder and mount.write:
            for name in room.guarded:
                words += ["--guard", room.folder, name]
    return mountable(words)


def mountable(words: list[str]) -> list[str]:
    """Return words that name paths, if an engine reads each as one."""
    for word in words:
        if re.search(r'[,":\n]', word):
            raise Invalid("path", word, 'engines cannot mount paths with , " or :')
    return words


ASKING = {
    "podman": ("info", "--format", "{{.Host.OCIRuntime.Version}}"),
    "docker": ("version", "--format", "{{range .Server.Components}}{{.Name}} {{.Version}} {{end}}"),
}
RUNC = re.compile(r"\brunc (?:version )?v?(\d+)\.(\d+)\.(\d+)")
MENDED = {(1, 2): 8, (1, 3): 3}
"""By their first two numbers: what is older has CVE-2024-21626 or CVE-2025-31133."""


def outdated(engine: ContainerEngine, told: str) -> list[MissingRequirement]:
    """Return what is to be said of a runtime's version, as the engine has told it."""
    found = RUNC.search(told)
    if found is None:
        return []
    major, minor, patch = map(int, found.groups())
    if (major, minor) > max(MENDED) or patch >= MENDED.get((major, minor), patch + 1):
        return []
    remedy = (
        "upgrade it to 1.2.8, 1.3.3 or 1.4 unless your distribution has mended it (CVE-2025-31133)"
    )
    where = f"{engine.kind}, runc {major}.{minor}.{patch}"
    return [MissingRequirement("a runtime that is known to hold", where, remedy, needed=False)]

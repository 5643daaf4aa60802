"""The sidecar container that connects a container without network, and its image.

It runs Rota's port forwarder with the host's Python, in an image that only has mount points: so the
image of a task needs nothing, and its program sees neither the sockets nor the forwarder. It ends
when nobody holds its FIFO open; the engine's client of the program holds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.container.engine import (
    LABEL,
    ContainerEngine,
    check_mountable,
    has_sockets,
    isolation_arguments,
    no_network_arguments,
    sidecar_name,
    ulimit_arguments,
    user_arguments,
)
from rota.executors.shared import port_forward
from rota.executors.shared.mounts import SystemFolders
from rota.keeper.build import Interpreter
from rota.keeper.paths import steps_below
from rota.ports.executor import ExecutionSpec

FORWARD = str(Path(port_forward.__file__))
FORWARD_INSIDE = "/run/rota/forward.py"
HELD_INSIDE = "/run/rota/held"
DESK_INSIDE = "/run/rota/desk"
EGRESS_INSIDE = "/run/rota/egress"
PROCESSES = 16
FILES = 1024
LIBRARIES = "/etc/ld.so.cache"


def sidecar_arguments(
    engine: ContainerEngine, room: ExecutionSpec, python: Interpreter, system: SystemFolders
) -> list[str]:
    """Return the sidecar as arguments for the entrypoint; empty without sockets of the host."""
    if not has_sockets(room):
        return []
    shown: list[str] = []
    ways: list[str] = []
    for way, inside in ((room.egress, EGRESS_INSIDE), (room.desk, DESK_INSIDE)):
        if way:
            folder, _, name = way.socket.rpartition("/")
            shown += ["--folder", folder, inside] if way.alone else ["--egress", way.socket, inside]
            ways += [str(way.port), f"{inside}/{name}" if way.alone else inside]
    words = [
        "--detach",
        *isolation_arguments(room),
        "--name",
        sidecar_name(room),
        *no_network_arguments(room),
    ]
    words += ["--pids-limit", str(PROCESSES), *ulimit_arguments(FILES), *user_arguments(engine)]
    words += [
        *python_mounts(python, system),
        *check_mountable(["--held", f"{room.state}/held", HELD_INSIDE, *shown]),
    ]
    return [
        *words,
        sidecar_image(system)[0],
        *forwarder_command(python),
        *ways,
        "--while",
        HELD_INSIDE,
    ]


def trial_arguments(
    engine: ContainerEngine, python: Interpreter, system: SystemFolders
) -> list[str]:
    """Return a sidecar that only tests whether it starts."""
    words = ["--pull", "never", "--rm", "--entrypoint", "", "--label", f"{LABEL}=trial"]
    words += ["--read-only", "--network", "none", "--cap-drop", "all", *ulimit_arguments(FILES)]
    words += [
        *user_arguments(engine),
        *python_mounts(python, system),
        sidecar_image(system)[0],
        *forwarder_command(python),
        "--",
    ]
    return [*words, python.program, "-I", "-S", "-c", "pass"]


def python_mounts(python: Interpreter, system: SystemFolders) -> list[str]:
    """Return the mounts that the host's Python needs."""
    folders = [*system.folders]
    if steps_below("/usr", python.prefix) is None:
        folders.append(python.prefix)
    words = [word for path in folders for word in bind_argument(path, path)]
    if Path(LIBRARIES).exists():
        words += bind_argument(LIBRARIES, LIBRARIES)
    return [*words, *bind_argument(FORWARD, FORWARD_INSIDE)]


def bind_argument(path: str, inside: str) -> list[str]:
    """Return a read-only mount of the host as arguments."""
    check_mountable([path])
    return ["--mount", f"type=bind,source={path},destination={inside},readonly"]


def forwarder_command(python: Interpreter) -> list[str]:
    """Return the program of a sidecar, without its ports."""
    return python.script(FORWARD_INSIDE)


IMAGE = "localhost/rota-sidecar"
TAG = 12
PATIENCE = 60.0


def sidecar_image(system: SystemFolders) -> tuple[str, bytes]:
    """Return the name of the sidecar image, which contains its hash, and its content."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as image:
        for target, link in system.links:
            entry = tarfile.TarInfo(link.lstrip("/"))
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            image.addfile(entry)
        for folder in (*system.folders, "/run", "/etc"):
            entry = tarfile.TarInfo(folder.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            image.addfile(entry)
    digest = hashlib.sha256(content.getvalue()).hexdigest()
    return f"{IMAGE}:{digest[:TAG]}", content.getvalue()


def import_image(engine: Sequence[str], env: Mapping[str, str]) -> bool:
    """Import the sidecar image if it is missing; true if it was imported."""
    name, content = sidecar_image(SystemFolders.here())
    with Path(__file__).open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if _run_engine(env, *engine, "image", "inspect", name).returncode == 0:
            return False
        done = _run_engine(env, *engine, "import", "-", name, given=content)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Unavailable(f"the engine cannot import the image {name}: {said}")
    return True


def _run_engine(
    env: Mapping[str, str], *words: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603
            words, input=given, capture_output=True, env=dict(env), timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{words[0]} does not answer: {error}") from error

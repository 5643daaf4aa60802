"""The sidecar container that connects a container without network, and its image.

Its one program is Rota's own (`forward`), run by the Python of the host in an image that is empty
but for the names of the host's folders: the image of a task needs nothing for it, and its program
sees neither sockets nor what carries the bytes. It ends when nobody holds its FIFO any more, which
the engine's client does that runs the program.
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
    has_ways,
    held,
    limits,
    lobby_name,
    mountable,
    no_network_arguments,
    user,
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
OUTLET_INSIDE = "/run/rota/outlet"
PROCESSES = 16
FILES = 1024
LIBRARIES = "/etc/ld.so.cache"


def lobby(
    engine: ContainerEngine, room: ExecutionSpec, python: Interpreter, system: SystemFolders
) -> list[str]:
    """Return a lobby in the words that `launch` replaces; nothing for a room without ways."""
    if not has_ways(room):
        return []
    shown: list[str] = []
    ways: list[str] = []
    for way, inside in ((room.outlet, OUTLET_INSIDE), (room.desk, DESK_INSIDE)):
        if way:
            folder, _, name = way.socket.rpartition("/")
            shown += ["--folder", folder, inside] if way.alone else ["--outlet", way.socket, inside]
            ways += [str(way.port), f"{inside}/{name}" if way.alone else inside]
    words = ["--detach", *held(room), "--name", lobby_name(room), *no_network_arguments(room)]
    words += ["--pids-limit", str(PROCESSES), *limits(FILES), *user(engine)]
    words += [
        *seen(python, system),
        *mountable(["--held", f"{room.state}/held", HELD_INSIDE, *shown]),
    ]
    return [*words, packed(system)[0], *carrier(python), *ways, "--while", HELD_INSIDE]


def trial(engine: ContainerEngine, python: Interpreter, system: SystemFolders) -> list[str]:
    """Return a lobby that only tries whether one can be had, and ends."""
    words = ["--pull", "never", "--rm", "--entrypoint", "", "--label", f"{LABEL}=trial"]
    words += ["--read-only", "--network", "none", "--cap-drop", "all", *limits(FILES)]
    words += [*user(engine), *seen(python, system), packed(system)[0], *carrier(python), "--"]
    return [*words, python.program, "-I", "-S", "-c", "pass"]


def seen(python: Interpreter, system: SystemFolders) -> list[str]:
    """Return what the Python of the host needs to run."""
    folders = [*system.folders]
    if steps_below("/usr", python.prefix) is None:
        folders.append(python.prefix)
    words = [word for path in folders for word in bind(path, path)]
    if Path(LIBRARIES).exists():
        words += bind(LIBRARIES, LIBRARIES)
    return [*words, *bind(FORWARD, FORWARD_INSIDE)]


def bind(path: str, inside: str) -> list[str]:
    """Return something of the host's that is shown, in an engine's words."""
    mountable([path])
    return ["--mount", f"type=bind,source={path},destination={inside},readonly"]


def carrier(python: Interpreter) -> list[str]:
    """Return the program of a lobby, without its ways."""
    return python.script(FORWARD_INSIDE)


IMAGE = "localhost/rota-lobby"
TAG = 12
PATIENCE = 60.0


def packed(system: SystemFolders) -> tuple[str, bytes]:
    """Return the name of the image of lobbies, which says what is in it, and its content."""
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


def furnish(engine: Sequence[str], env: Mapping[str, str]) -> bool:
    """Hand an engine the image of lobbies, unless it has it; true if it was handed over."""
    name, content = packed(SystemFolders.here())
    with Path(__file__).open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if _asked(env, *engine, "image", "inspect", name).returncode == 0:
            return False
        done = _asked(env, *engine, "import", "-", name, given=content)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise Unavailable(f"the engine does not take the image {name}: {said}")
    return True


def _asked(
    env: Mapping[str, str], *words: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(  # noqa: S603
            words, input=given, capture_output=True, env=dict(env), timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{words[0]} does not answer: {error}") from error

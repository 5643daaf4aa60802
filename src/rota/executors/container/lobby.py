"""The lobby: a container beside a program's, whose network it shares and that has its ways out.

Its one program is Rota's own (`forward`), run by the Python of the host in an image that is empty
but for the names of the host's folders: the image of a task needs nothing for it, and its program
sees neither sockets nor what carries the bytes. It ends when nobody holds its FIFO any more, which
the engine's client does that runs the program.
"""

from __future__ import annotations

from pathlib import Path

from rota.executors.container.furnishing import packed
from rota.executors.container.words import (
    LABEL,
    Engine,
    alone,
    has_ways,
    held,
    limits,
    lobby_name,
    mountable,
    user,
)
from rota.executors.kit import forward
from rota.executors.kit.beneath import steps_below
from rota.executors.kit.executor import Interpreter, Room
from rota.executors.kit.system import System

FORWARD = str(Path(forward.__file__))
FORWARD_INSIDE = "/run/rota/forward.py"
HELD_INSIDE = "/run/rota/held"
DESK_INSIDE = "/run/rota/desk"
OUTLET_INSIDE = "/run/rota/outlet"
PROCESSES = 16
FILES = 1024
LIBRARIES = "/etc/ld.so.cache"


def lobby(engine: Engine, room: Room, python: Interpreter, system: System) -> list[str]:
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
    words = ["--detach", *held(room), "--name", lobby_name(room), *alone(room)]
    words += ["--pids-limit", str(PROCESSES), *limits(FILES), *user(engine)]
    words += [
        *seen(python, system),
        *mountable(["--held", f"{room.state}/held", HELD_INSIDE, *shown]),
    ]
    return [*words, packed(system)[0], *carrier(python), *ways, "--while", HELD_INSIDE]


def trial(engine: Engine, python: Interpreter, system: System) -> list[str]:
    """Return a lobby that only tries whether one can be had, and ends."""
    words = ["--pull", "never", "--rm", "--entrypoint", "", "--label", f"{LABEL}=trial"]
    words += ["--read-only", "--network", "none", "--cap-drop", "all", *limits(FILES)]
    words += [*user(engine), *seen(python, system), packed(system)[0], *carrier(python), "--"]
    return [*words, python.program, "-I", "-S", "-c", "pass"]


def seen(python: Interpreter, system: System) -> list[str]:
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

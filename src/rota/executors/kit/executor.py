"""Executors: where a program runs, and what it is given there.

An executor turns a program and a room into the spec of a keeper. `wrap` only puts words together;
what must happen on the machine happens when the keeper starts those words. Nothing is done by
halves: an executor that cannot hold what it promises refuses.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from rota.errors import Invalid, Unavailable
from rota.executors.kit.spec import Spec
from rota.model.programs import Bounds, Command
from rota.model.sites import Held, Network, Share
from rota.model.spaces import Role

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where an executor looks for its tools; never the path of whoever started Rota."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}", re.ASCII)
"""A name that is also a file, a label, a control group and a host name."""

GUARDED = (
    ".git/hooks",
    ".git/config",
    ".claude",
    ".codex",
    ".pi",
    ".mcp.json",
    ".vscode",
    ".envrc",
)
"""What a tool of the host would run later without being asked."""


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing an executor does not find: what, where, what to do.

    Without what is not `needed` an executor still runs programs, but promises less.
    """

    what: str
    where: str
    remedy: str
    needed: bool = True

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """The one way out: a socket of the host that answers on a port of 127.0.0.1 inside.

    One that is `alone` in its folder is shown with it, so that one made anew is found.
    """

    socket: str
    port: int
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What one attempt is given.

    `state` is the attempt's own folder, 0700, which the program never sees where it is isolated.
    `folder` is where it works; `home`, `artifacts` and `outbox` are its own, always writable.
    `shared` is what a task asks for beside: shown as it was asked, or nothing runs. `desk` is a
    second way out, to Rota itself: the folder of its socket is shown, so that it may be made anew.
    """

    name: str
    state: str
    folder: str
    home: str
    artifacts: str | None = None
    outbox: str | None = None
    readable: Sequence[str] = ()
    shared: Sequence[Share] = ()
    writable: bool = True
    guarded: Sequence[str] = GUARDED
    outlet: Outlet | None = None
    desk: Outlet | None = None
    network: Network = Network.NONE
    bounds: Bounds = field(default_factory=Bounds)
    isolated: bool = True
    role: Role = Role.MEMBER
    image: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise Invalid("name", self.name, "use a-z, 0-9, - and _, at most 63")
        own = [self.state, self.folder, self.home, *self.readable]
        own += [share.path for share in self.shared]
        own += [path for path in (self.artifacts, self.outbox) if path]
        own += [way.socket for way in (self.outlet, self.desk) if way]
        for path in own:
            if not path.startswith("/") or os.path.normpath(path) != path or "\0" in path:
                raise Invalid("path", path, "give an absolute path without . and ..")
        for name in self.guarded:
            if name.startswith("/") or os.path.normpath(name) != name or ".." in name.split("/"):
                raise Invalid("guarded", name, "give a path inside the working folder")


NO_OUTLET = (
    "there is no outlet here: give the gateway a secret with `rota secret set`, or name the socket "
    "it leads to in the setting `outlet`"
)


class Executor(Protocol):
    """Somewhere programs run.

    `certain_kill`: once the tree is gone and `sweep` has returned, nothing of the attempt runs.
    """

    name: str
    certain_kill: bool

    def check(self) -> list[Missing]:
        """Try out what the executor needs, and return what is not to be had here."""

    def holds(self, *, isolated: bool) -> Mapping[str, Held]:
        """Return for whom memory, processes and processors can be bounded."""

    def wrap(self, command: Command, room: Room) -> Spec:
        """Return what a keeper must start; raise Unavailable rather than promise less."""

    def sweep(self, spec: Spec) -> None:
        """Clean up what outlives the tree; raise Unavailable while something is left."""


@runtime_checkable
class Windowed(Protocol):
    """An executor whose programs can be watched."""

    def capture(self, state: str) -> str:
        """Return what the window of an attempt shows, by its state folder; nothing once gone."""


def refuse(executor: str, missing: Sequence[Missing]) -> None:
    """Raise with every missing thing that is needed, if there is any."""
    needed = [str(each) for each in missing if each.needed]
    if needed:
        raise Unavailable(f"{executor} cannot be had here: {'; '.join(needed)}")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that starts things: its program, and the folder it needs to be whole."""

    program: str
    prefix: str
    library: str

    @classmethod
    def running(cls) -> Interpreter:
        """Return the one that runs Rota, without its virtual environment."""
        library = Path(__file__).resolve().parents[3]
        return cls(str(Path(sys.executable).resolve()), sys.base_prefix, str(library))

    def script(self, path: str, *words: str) -> list[str]:
        """Return how to run one file that needs nothing but the standard library."""
        return [self.program, "-I", "-S", path, *words]

    def module(self, name: str, *words: str) -> list[str]:
        """Return how to run a module of Rota's without any of its dependencies."""
        return [self.program, "-I", "-S", "-c", RUN_MODULE, self.library, name, *words]


RUN_MODULE = (
    "import sys;"
    "sys.path.append(sys.argv[1]);"
    "from importlib import import_module;"
    "sys.exit(import_module(sys.argv[2]).main(sys.argv[3:]))"
)


def environment(command: Command, room: Room) -> dict[str, str]:
    """Return the whole environment of a program of the host: what it was given, and a path."""
    return {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", **given(command, room)}


def given(command: Command, room: Room) -> dict[str, str]:
    """Return what a program was given of an environment, and its home."""
    for name, value in command.env.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise Invalid("environment", name, "use letters, digits and _, and no NUL")
        if room.isolated and LOADER.match(name):
            raise Invalid("environment", name, "it would reach outside; set it with env(1) inside")
    return {**command.env, "HOME": room.home}


VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
LOADER = re.compile(r"LD_|GLIBC_TUNABLES$|GCONV_PATH$|LOCPATH$|TMUX", re.ASCII)
"""Variables that would act on what builds the walls, before the program is behind them."""

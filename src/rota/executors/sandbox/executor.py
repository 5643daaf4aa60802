"""The sandbox: a program behind bubblewrap's walls, or no program at all."""

from __future__ import annotations

import base64
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.errors import Unavailable
from rota.executors.kit.executor import (
    SEARCH_PATH,
    Interpreter,
    Missing,
    Room,
    environment,
    refuse,
)
from rota.executors.kit.groups import Hierarchy, clear
from rota.executors.kit.holding import held_apart, hold, holds
from rota.executors.kit.mounts import MountList
from rota.executors.kit.spec import Spec, Term, Tree
from rota.executors.sandbox.filter import MACHINES, filter_for
from rota.executors.sandbox.profile import Host, closing, last_steps, walls
from rota.model.programs import Command
from rota.model.sites import Held, Network
from rota.model.spaces import Role

NEEDED = ("--disable-userns", "--assert-userns-disabled", "--bind-fd", "--seccomp", "--size")
PATIENCE = 10.0


class SandboxExecutor:
    """Runs a program in namespaces of its own, with a filter on its system calls.

    Without root the kernel counts the processes of a sandbox by themselves; root's are bounded by a
    control group or not at all, and then a room that bounds them is refused.
    """

    name = "sandbox"
    certain_kill = True

    def __init__(
        self,
        python: Interpreter,
        mounts: MountList,
        *,
        hierarchy: Hierarchy | None = None,
        search_path: str = SEARCH_PATH,
        machine: str = "",
        host: Host | None = None,
    ) -> None:
        self._python = python
        self._mounts = mounts
        self._hierarchy = hierarchy
        self._search_path = search_path
        self._machine = machine or platform.machine()
        self._host = host or Host.here()

    def check(self) -> list[Missing]:
        """Build the walls around /bin/true, and say what stood in the way."""
        missing = self._lacking()
        if missing:
            return missing
        told = _said([self._bubblewrap(), "--help"])
        lacking = [word for word in NEEDED if f"    {word} " not in told]
        if lacking:
            return [
                Missing(f"bubblewrap with {', '.join(lacking)}", self._bubblewrap(), "update it")
            ]
        held = self._hierarchy.controllers if self._hierarchy else frozenset()
        unbounded = os.geteuid() == 0 and "pids" not in held
        missing = self._try_out() or ([UNBOUNDED] if unbounded else [])
        return missing or held_apart(self._hierarchy, "memory", "cpu")

    def holds(self, *, isolated: bool) -> Mapping[str, Held]:  # noqa: ARG002 - it has walls
        """Say which bounds hold for all processes together."""
        return holds(self._hierarchy, counts_alone=os.geteuid() != 0)

    def wrap(self, command: Command, room: Room) -> Spec:
        """Return the program behind its walls."""
        refuse(self.name, self._lacking())
        held = hold(with_carriers(room), self._hierarchy, counts_alone=True)
        if held.inside and os.geteuid() == 0:
            refuse(self.name, [UNBOUNDED])
        seen, steps = last_steps(self._python, held.inside, room.outlet, room.desk)
        words = [
            *held.outside,
            self._bubblewrap(),
            base64.b64encode(filter_for(self._machine)).decode(),
            *walls(self._host, self._python, room, self._mounts.of(room)),
            *seen,
            *closing(command),
            *("--", *steps, *command.argv),
        ]
        argv = self._python.module("rota.executors.sandbox.enter", *words)
        env = environment(command, room)
        wrapped = replace(command, argv=argv, env=env, cwd="/")
        return Spec(
            name=room.name, command=wrapped, bounds=held.left, tree=Tree.AUTO, term=Term.ALL
        )

    def sweep(self, spec: Spec) -> None:
        """Remove the attempt's control group; everything else went with its namespaces."""
        if self._hierarchy:
            clear(self._hierarchy, spec.name)

    def _bubblewrap(self) -> str:
        return shutil.which("bwrap", path=self._search_path) or ""

    def _lacking(self) -> list[Missing]:
        if self._machine not in MACHINES:
            known = " or ".join(MACHINES)
            return [Missing("a filter of system calls", self._machine, f"use {known}")]
        if not self._bubblewrap():
            return [Missing("bubblewrap", self._search_path, "install the package bubblewrap")]
        return []

    def _try_out(self) -> list[Missing]:
        bare = Room(
            name="check",
            state="/nonexistent",
            folder="/",
            home="/tmp",  # noqa: S108 - the sandbox's own
            role=Role.MEMBER,
            network=Network.NONE,
        )
        seen, steps = last_steps(self._python, ("--limit", "NPROC", "64"), None)
        words = [
            self._bubblewrap(),
            base64.b64encode(filter_for(self._machine)).decode(),
            *walls(self._host, self._python, bare, ()),
            *seen,
            *closing(Command(argv=())),
            *("--", *steps, "/bin/true"),
        ]
        said = _said(self._python.module("rota.executors.sandbox.enter", *words))
        if not said:
            return []
        return [Missing("a working sandbox", said, "allow user namespaces to this user")]


def with_carriers(room: Room) -> Room:
    """Return a room in which what carries the ways out does not count as the program's.

    It is one process for each way, and one more while they are made.
    """
    ways, most = [way for way in (room.outlet, room.desk) if way], room.bounds.processes
    if not ways or most is None:
        return room
    return replace(room, bounds=replace(room.bounds, processes=most + len(ways) + 1))


UNBOUNDED = Missing(
    "a bound on root's processes",
    "cgroup",
    "run Rota as a user of its own, or hand it a control group (Delegate=yes)",
)


def _said(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": SEARCH_PATH},
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise Unavailable(f"sandbox: {argv[0]} does not answer: {fault}") from fault
    text = done.stdout.decode(errors="replace").strip()
    return text if done.returncode == 0 else text or f"it ended with {done.returncode}"

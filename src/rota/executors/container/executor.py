"""Programs in containers."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.container.engine import (
    ASKING,
    LABEL,
    ContainerEngine,
    mounted,
    outdated,
    pinned,
    run_arguments,
)
from rota.executors.container.seccomp import ARCHITECTURES, profile
from rota.executors.container.sidecar import furnish, lobby, trial
from rota.executors.shared.mounts import MountAllowlist, SystemFolders, given
from rota.executors.shared.resource_limits import timed
from rota.keeper.build import Interpreter
from rota.model.programs import LimitEnforcement, Program
from rota.ports.executor import (
    ExecutionSpec,
    KeeperSpec,
    MissingRequirement,
    ProcessTreeMode,
    StopSignalTarget,
    refuse,
)
from rota.rules.task_spec import LIMIT_FIELDS

PATIENCE = 30.0
ROUNDS = 4
"""An engine may stop half-way the first time it is told to remove a container."""


class ContainerExecutor:
    """Runs a program in a container that bears the attempt's name as a label.

    Only a guard holds the tree: in a PID namespace of the keeper's podman would write down numbers
    of processes that mean others outside. What the engine still runs, `sweep` removes by label.

    A program that reaches the desk or the gateway does so by a second container, its lobby.

    Podman's containers are in the keeper's tree, and outlive keeper and guard if both are killed at
    once. Docker's are not in it: with the daemon of Rota gone, a keeper that ends its tree leaves
    the container. What is left is ended by the next daemon's sweep.
    """

    name = "container"
    certain_kill = False

    def __init__(
        self,
        python: Interpreter,
        mounts: MountAllowlist,
        engine: ContainerEngine,
        *,
        machine: str = "",
    ) -> None:
        self._python = python
        self._mounts = mounts
        self._engine = engine
        self._machine = machine or platform.machine()
        self._system = SystemFolders.here()

    def check(self) -> list[MissingRequirement]:
        """Ask the engine whether it answers, and say what it cannot do."""
        missing = self._lacking()
        if missing:
            return missing
        try:
            self._ask("ps", "--quiet", "--filter", f"label={LABEL}=none")
        except Unavailable as error:
            remedy = "start it, or let Rota's user reach it"
            return [MissingRequirement(f"an answer of {self._engine.kind}", str(error), remedy)]
        missing = [*self._try_out(), *self._runtime()]
        if self._engine.kind != "podman":
            what = "mounts that are compared before the program starts"
            missing.append(MissingRequirement(what, self._engine.kind, "use podman", needed=False))
        return missing

    def _try_out(self) -> list[MissingRequirement]:
        """Try whether programs can be given ways to the desk and the gateway."""
        try:
            furnish(self._engine.words(), self._engine.env)
            self._ask("run", *trial(self._engine, self._python, self._system))
        except Unavailable as error:
            remedy = f"let {self._engine.kind} show containers /usr and the Python that runs Rota"
            return [MissingRequirement("ways out of containers", str(error), remedy)]
        return []

    def _runtime(self) -> list[MissingRequirement]:
        """Ask for the version of what runs containers; an engine that does not tell has no say."""
        told = self._ask(*ASKING.get(self._engine.kind, ("version",)), tolerant=True)
        return outdated(self._engine, told)

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:  # noqa: ARG002 - it has walls
        """Say that the engine holds every bound, or refuses to start."""
        return dict.fromkeys(LIMIT_FIELDS, LimitEnforcement.TOGETHER)

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return the client of an engine that runs the program and nothing else."""
        refuse(self.name, self._lacking())
        engine = self._engine
        client = [word for n, v in engine.env.items() for word in ("--client", f"{n}={v}")]
        argv = self._python.module(
            "rota.executors.container.entrypoint",
            *(engine.kind, room.state, profile(self._machine), *client, *engine.words(), "--"),
            *(*lobby(engine, room, self._python, self._system), "--"),
            *(*run_arguments(engine, room), "--workdir", command.cwd),
            *(*mounted(room, self._mounts.of(room)), "--"),
            *(pinned(engine, room.image), *command.argv),
        )
        wrapped = replace(command, argv=argv, env=given(command, room), cwd="/")
        return KeeperSpec(
            name=room.name,
            command=wrapped,
            bounds=timed(room.bounds),
            tree=ProcessTreeMode.GUARD,
            term=StopSignalTarget.MAIN,
        )

    def sweep(self, spec: KeeperSpec) -> None:
        """Remove every container of the attempt; raise Unavailable while one is left."""
        for _ in range(ROUNDS):
            left = self._left(spec.name)
            if not left:
                return
            self._ask("rm", "--force", *left, tolerant=True)
        if self._left(spec.name):
            raise Unavailable(f"{self._engine.kind} keeps a container of {spec.name}: try again")

    def _left(self, name: str) -> list[str]:
        return self._ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}={name}").split()

    def _lacking(self) -> list[MissingRequirement]:
        if self._machine not in ARCHITECTURES:
            known = " or ".join(ARCHITECTURES)
            return [MissingRequirement("a list of forbidden calls", self._machine, f"use {known}")]
        if not Path(self._engine.program).is_file():
            remedy = "install docker or podman, or name its program in the settings"
            return [MissingRequirement(self._engine.kind, self._engine.program, remedy)]
        return []

    def _ask(self, *words: str, tolerant: bool = False) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                self._engine.words(*words),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=dict(self._engine.env),
                timeout=PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{self._engine.kind} does not answer: {error}") from error
        if done.returncode and not tolerant:
            raise Unavailable(done.stderr.decode(errors="replace").strip())
        return done.stdout.decode(errors="replace")

"""The executor that runs programs in containers."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.container.engine import (
    LABEL,
    VERSION_COMMANDS,
    ContainerEngine,
    mount_arguments,
    outdated_runtime,
    pinned_image,
    run_arguments,
)
from rota.executors.container.seccomp import ARCHITECTURES, profile
from rota.executors.container.sidecar import import_image, sidecar_arguments, trial_arguments
from rota.executors.shared.mounts import (
    MountAllowlist,
    SystemFolders,
    program_variables,
)
from rota.executors.shared.resource_limits import keeper_limits
from rota.keeper.build import Interpreter
from rota.model.programs import LimitEnforcement, Program, Site
from rota.model.spaces import SpaceRole
from rota.ports.executor import (
    ExecutionSpec,
    KeeperSpec,
    MissingRequirement,
    ProcessTreeMode,
    StopSignalTarget,
    refuse,
)
from rota.rules.task_spec import LIMIT_FIELDS

ENGINE_SECONDS = 30.0
REMOVE_TRIES = 4
"""Attempts to remove a container: engines may fail half-way the first time."""


class ContainerExecutor:
    """Runs a program in a container that has the attempt's name as a label.

    The keeper uses a guard, because inside a PID namespace podman would record wrong process ids.
    What the engine still runs afterwards is removed by label in `sweep`. A program that needs the
    agent API or the gateway gets a second container, its sidecar.

    Podman's containers belong to the keeper's process tree, and survive only if keeper and guard
    are killed at once. Docker's containers do not belong to it: if a keeper ends without Rota's
    daemon, its container remains. Remaining containers are removed by the next daemon.
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
        """Test the engine, and return what it cannot do."""
        missing = self._lacking()
        if missing:
            return missing
        try:
            self._ask("ps", "--quiet", "--filter", f"label={LABEL}=none")
        except Unavailable as error:
            remedy = "start it, or allow Rota's user to access it"
            return [MissingRequirement(f"an answer of {self._engine.kind}", str(error), remedy)]
        missing = [*self._try_out(), *self._runtime()]
        if self._engine.kind != "podman":
            what = "mounts that are compared before the program starts"
            missing.append(MissingRequirement(what, self._engine.kind, "use podman", needed=False))
        return missing

    def _try_out(self) -> list[MissingRequirement]:
        """Test whether sidecars work."""
        try:
            import_image(self._engine.words(), self._engine.env)
            self._ask("run", *trial_arguments(self._engine, self._python, self._system))
        except Unavailable as error:
            remedy = f"allow {self._engine.kind} to mount /usr and the Python that runs Rota"
            return [MissingRequirement("sidecars of containers", str(error), remedy)]
        return []

    def _runtime(self) -> list[MissingRequirement]:
        """Check the version of the container runtime, if the engine reports it."""
        told = self._ask(*VERSION_COMMANDS.get(self._engine.kind, ("version",)), tolerant=True)
        return outdated_runtime(self._engine, told)

    def admit(self, site: Site, role: SpaceRole) -> None:
        """Refuse an image that is not named by digest, and mounts that are not allowed."""
        pinned_image(self._engine, site.image)
        for share in site.mounts:
            self._mounts.share(share, role)

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:  # noqa: ARG002 - it has walls
        """Return that the engine enforces all limits, or does not start."""
        return dict.fromkeys(LIMIT_FIELDS, LimitEnforcement.TOGETHER)

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return the engine's client that runs the program."""
        refuse(self.name, self._lacking())
        engine = self._engine
        client = [word for n, v in engine.env.items() for word in ("--client", f"{n}={v}")]
        argv = self._python.module(
            "rota.executors.container.entrypoint",
            *(engine.kind, room.state, profile(self._machine), *client, *engine.words(), "--"),
            *(*sidecar_arguments(engine, room, self._python, self._system), "--"),
            *(*run_arguments(engine, room), "--workdir", command.cwd),
            *(*mount_arguments(room, self._mounts.of(room)), "--"),
            *(pinned_image(engine, room.image), *command.argv),
        )
        wrapped = replace(command, argv=argv, env=program_variables(command, room), cwd="/")
        return KeeperSpec(
            name=room.name,
            command=wrapped,
            bounds=keeper_limits(room.bounds),
            tree=ProcessTreeMode.GUARD,
            term=StopSignalTarget.MAIN,
        )

    def sweep(self, spec: KeeperSpec) -> None:
        """Remove the attempt's containers; raise Unavailable while one is left."""
        for _ in range(REMOVE_TRIES):
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
            return [MissingRequirement("a seccomp profile", self._machine, f"use {known}")]
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
                timeout=ENGINE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"{self._engine.kind} does not answer: {error}") from error
        if done.returncode and not tolerant:
            raise Unavailable(done.stderr.decode(errors="replace").strip())
        return done.stdout.decode(errors="replace")

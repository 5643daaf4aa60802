"""The executor that runs programs as plain processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.shared import exec_program
from rota.executors.shared.mounts import environment
from rota.executors.shared.resource_limits import (
    CgroupHierarchy,
    enforced_limits,
    find_hierarchy,
    keeper_limits,
    limit_arguments,
    limited_separately,
    remove_cgroup,
)
from rota.keeper.build import Interpreter, can_use_namespaces
from rota.model.executors import ExecutorCapabilities
from rota.model.programs import LimitEnforcement, Program, Site
from rota.model.spaces import SpaceRole
from rota.ports.executor import (
    ExecutionSpec,
    ExecutorHost,
    ExecutorPlugin,
    KeeperSpec,
    MissingRequirement,
    ProcessTreeMode,
)

START = str(Path(exec_program.__file__))


class ProcessExecutor:
    """Runs a program as Rota's own user, without isolation; rejects a spec that requires it.

    `certain_kill` is true where PID namespaces or unified cgroups are available.
    """

    name = "process"

    def __init__(
        self, python: Interpreter, *, hierarchy: CgroupHierarchy | None, certain_kill: bool
    ) -> None:
        self._python = python
        self._hierarchy = hierarchy
        self._needs_group = bool(hierarchy and hierarchy.unified) and not certain_kill
        self._counts_alone = certain_kill and os.geteuid() != 0
        self.certain_kill = certain_kill or bool(hierarchy and hierarchy.unified)

    def check(self) -> list[MissingRequirement]:
        """Return the limits that no cgroup enforces."""
        return limited_separately(self._hierarchy, "pids", "memory", "cpu")

    def admit(self, site: Site, role: SpaceRole) -> None:
        """Admit every site: without isolation there are no mounts and no image."""

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:  # noqa: ARG002 - it has no walls
        """Return how limits are enforced."""
        return enforced_limits(self._hierarchy, counts_alone=self._counts_alone)

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return the program with its limits; without limits, just the program.

        Each additional program before it costs some milliseconds, joining a cgroup more.
        """
        if room.isolated:
            raise Unavailable(
                f"{self.name} does not isolate programs: choose another executor, or run without "
                "isolation"
            )
        if room.bounds == keeper_limits(room.bounds) and not self._needs_group:
            plain = replace(command, env=environment(command, room))
            return KeeperSpec(
                name=room.name, command=plain, bounds=room.bounds, tree=ProcessTreeMode.AUTO
            )
        held = limit_arguments(room, self._hierarchy, counts_alone=self._counts_alone)
        words = self._python.script(START, *held.outside, *held.inside, "--", *command.argv)
        wrapped = replace(command, argv=words, env=environment(command, room))
        return KeeperSpec(
            name=room.name, command=wrapped, bounds=held.left, tree=ProcessTreeMode.AUTO
        )

    def sweep(self, spec: KeeperSpec) -> None:
        """Remove the attempt's cgroup."""
        if self._hierarchy:
            remove_cgroup(self._hierarchy, spec.name)


def _make(_settings: object, _host: ExecutorHost) -> ProcessExecutor:
    python = Interpreter.running()
    certain = can_use_namespaces(python)
    return ProcessExecutor(python, hierarchy=find_hierarchy(), certain_kill=certain)


PLUGIN = ExecutorPlugin(
    make=_make, capabilities=ExecutorCapabilities(default_for=frozenset({SpaceRole.MAIN}))
)

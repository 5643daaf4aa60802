"""Where programs can run on this machine, and which programs are missing."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rota.agents.shared.capabilities import PATH
from rota.app.environment import offered_variables
from rota.app.plugins import load_plugins
from rota.app.secrets import load_secrets
from rota.app.settings import Settings
from rota.errors import RotaError, Unavailable
from rota.keeper.home import BlockingCalls
from rota.model.executors import ExecutorRegistry, not_installed
from rota.model.programs import LimitEnforcement, NetworkAccess, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import Task, TaskKind
from rota.ports.agent import AgentRegistry
from rota.ports.executor import (
    NO_EGRESS,
    EgressSocket,
    Executor,
    MissingRequirement,
    refuse,
)
from rota.rules.checks import CHECKS, GATE
from rota.rules.task_spec import is_call, site_of
from rota.store.store import Store
from rota.store.views import list_spaces, list_tasks

TRIED_SECONDS = 60.0
"""How long the result of a trial is cached."""


class ExecutorTrial(NamedTuple):
    """The result of trying an executor."""

    executor: Executor
    missing: Sequence[MissingRequirement]

    @property
    def available(self) -> bool:
        """Return whether programs can run there."""
        return not any(each.needed for each in self.missing)


class LocalSiteChecker:
    """Knows where programs can run on this machine; nothing is checked before it is needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._plugins = load_plugins(settings)
        self._tried: dict[str, tuple[float, ExecutorTrial]] = {}
        self._trials = BlockingCalls()

    @property
    def egress(self) -> EgressSocket | None:
        """The egress socket of isolated programs."""
        socket, port = self._settings.egress_socket, self._settings.egress_port
        return None if socket is None else EgressSocket(socket=str(socket.absolute()), port=port)

    @cached_property
    def executors(self) -> dict[str, Executor]:
        """All executors; whether one works is tried when it is needed."""
        return self._plugins.make_executors()

    async def admit(self, site: Site, role: SpaceRole) -> None:
        """Raise an error with a correction unless a program can run there."""
        await self._trials.run(site.executor, self._admit, site, role)

    def _admit(self, site: Site, role: SpaceRole) -> None:
        missing = self.try_out(site.executor).missing
        refuse(site.executor, missing)
        if site.isolated:
            refuse(f"{site.executor} with isolation", missing, isolated=True)
        asks = site.network is NetworkAccess.EGRESS
        if asks and self.egress is None and not load_secrets(self._settings).opens():
            raise Unavailable(NO_EGRESS)
        self._executor(site.executor).admit(site, role)

    async def limit_enforcement(self, site: Site) -> Mapping[str, LimitEnforcement]:
        """Return how limits on memory, processes and CPU are enforced there."""
        made = await asyncio.to_thread(self._executor, site.executor)
        return made.holds(isolated=site.isolated)

    async def missing_programs(self, task: Task, role: SpaceRole) -> Sequence[str]:
        """Return the programs of a task that are missing here, in sentences."""
        found = await asyncio.to_thread(missing_programs, task, role, self._settings)
        return [str(lack) for lack in found]

    def _executor(self, name: str) -> Executor:
        try:
            return self.executors[name]
        except KeyError:
            failed = {each.name: each.reason for each in self._plugins.problems}
            raise Unavailable(
                f"there is no executor {name!r} here: {not_installed(name, self.executors, failed)}"
            ) from None

    def try_all(self) -> list[ExecutorTrial]:
        """Try every executor."""
        return [self.try_out(name) for name in self.executors]

    def try_out(self, name: str) -> ExecutorTrial:
        """Try an executor; the result is cached for a short time."""
        at, tried = self._tried.get(name, (0.0, None))
        if tried is None or time.monotonic() > at + TRIED_SECONDS:
            executor = self._executor(name)
            try:
                missing = executor.check()
            except Unavailable as fault:
                missing = [MissingRequirement("an answer", str(fault), "try again")]
            tried = ExecutorTrial(executor, missing)
            self._tried[name] = (time.monotonic(), tried)
        return tried


NOT_ON_PATH = "is not on the PATH"
OF_SCRIPTS = frozenset({".py", ".sh", ".js", ".rb", ".pl"})
"""Suffixes of scripts that people put into the working folder."""


class MissingProgram(NamedTuple):
    """A missing program, the problem and the correction."""

    what: str
    trouble: str
    advice: str

    def __str__(self) -> str:
        """Return it in one sentence."""
        return f"{self.what} {self.trouble}: {self.advice}"


def search_path() -> str:
    """Return the search path for programs of this process."""
    return offered_variables().get("PATH") or PATH


async def all_missing_programs(
    store: Store, settings: Settings
) -> dict[MissingProgram, list[Task]]:
    """Return missing programs, each with the enabled tasks that name it."""
    roles = {space.name: space.role for space in await store.read(list_spaces)}
    found: dict[MissingProgram, list[Task]] = {}
    for task in await store.read(list_tasks, None):
        if task.enabled:
            for lack in missing_programs(task, roles.get(task.space, SpaceRole.MEMBER), settings):
                found.setdefault(lack, []).append(task)
    return found


def missing_programs(task: Task, role: SpaceRole, settings: Settings) -> list[MissingProgram]:
    """Return the programs of a task that are missing here.

    Isolated programs and images are not checked, because they see another file system.
    """
    if task.kind is TaskKind.PYTHON or _walled(task, role, load_plugins(settings).executors):
        return []
    work = settings.home.absolute() / "spaces" / task.space / "work"
    named = task.spec.get("folder")
    folder = work / str(named or ".")
    found: list[MissingProgram | None] = []
    if named is not None and not folder.is_dir():
        found.append(MissingProgram(f"the folder {named}", "is not there", f"create it in {work}"))
    programs = dict.fromkeys(_programs(task, load_plugins(settings).agents))
    found += (_look(program, folder) for program in programs)
    return [lack for lack in found if lack is not None]


def _look(program: str, folder: Path) -> MissingProgram | None:
    """Return the problem of a program; the working folder is searched first."""
    what, own = f"the program {program}", folder / program
    if own.is_file():
        if own.suffix == ".py" or os.access(own, os.X_OK):
            return None
        return MissingProgram(what, "is not executable", f"chmod +x {own}")
    if "/" in program:
        if own.is_dir():
            return MissingProgram(what, "is a folder", f"name the program in {own}")
        return MissingProgram(what, "is not there", f"put it at {own}, or correct its path")
    if shutil.which(program, path=search_path()) is not None:
        return None
    if own.suffix in OF_SCRIPTS:
        return MissingProgram(what, "is not there", f"put it at {own}, or on the PATH")
    return MissingProgram(what, NOT_ON_PATH, "install it, or add it to the PATH of the daemon")


def _programs(task: Task, agents: AgentRegistry) -> Iterator[str]:
    """Yield the programs of a task, of its gate and of its checks."""
    spec: Mapping[str, Any] = task.spec
    others = [spec.get(GATE), *(spec.get(CHECKS) or ())]
    lines = [one.get("command") for one in others if isinstance(one, dict)]
    if task.kind is not TaskKind.AGENT or agents.takes_program(spec.get("agent")):
        lines.insert(0, [] if spec.get("shell") else spec.get("command"))
    else:
        agent = agents.known.get(spec.get("agent") or agents.default)
        yield from agent.capabilities.requires if agent is not None else ()
    for words in lines:
        if isinstance(words, list | tuple) and words and not is_call(str(words[0])):
            yield str(words[0])


def _walled(task: Task, role: SpaceRole, executors: ExecutorRegistry) -> bool:
    try:
        return site_of(task.spec, role, executors).isolated
    except RotaError:  # its runs are refused with the reason
        return True

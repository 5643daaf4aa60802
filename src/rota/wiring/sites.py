"""From settings to where programs can run: the executors, what they may show, and a trial."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rota.errors import Invalid, Unavailable
from rota.executors.container.executor import ContainerExecutor
from rota.executors.container.words import Engine, Users, pinned
from rota.executors.kit.apart import Apart
from rota.executors.kit.beneath import steps_below
from rota.executors.kit.executor import (
    NO_OUTLET,
    SEARCH_PATH,
    Executor,
    Interpreter,
    Missing,
    Outlet,
    refuse,
)
from rota.executors.kit.groups import find_hierarchy
from rota.executors.kit.mounts import Allowed, MountList, read_mounts
from rota.executors.kit.trying import namespaces_to_be_had
from rota.executors.process.executor import ProcessExecutor
from rota.executors.sandbox.executor import SandboxExecutor
from rota.executors.tmux.executor import TmuxExecutor
from rota.model.sites import Held, Network, Site
from rota.model.spaces import Role
from rota.model.tasks import Task
from rota.wiring.lacking import lacks_of
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings
from rota.wiring.surroundings import engine_environment

MOUNTS = "mounts.toml"
ENGINES = ("podman", "docker")
TRIED_SECONDS = 60.0
"""How long what was found missing, or not, is believed."""


class Tried(NamedTuple):
    """What became of trying an executor."""

    executor: Executor
    missing: Sequence[Missing]

    @property
    def available(self) -> bool:
        """Whether programs can run there."""
        return not any(each.needed for each in self.missing)


class LocalSites:
    """Where programs can run on this machine; nothing is looked at before it is asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tried: dict[str, tuple[float, Tried]] = {}
        self._trials = Apart()

    @cached_property
    def mounts(self) -> MountList:
        """What programs may be shown."""
        return mounts_of(self._settings)

    @cached_property
    def engine(self) -> Engine:
        """What runs containers."""
        return engine_of(self._settings)

    @property
    def outlet(self) -> Outlet | None:
        """The one way out that programs behind walls may ask for."""
        socket, port = self._settings.outlet, self._settings.outlet_port
        return None if socket is None else Outlet(socket=str(socket.absolute()), port=port)

    @cached_property
    def executors(self) -> dict[str, Executor]:
        """Where programs can run; whether one really can is tried when it is asked for."""
        python, hierarchy = Interpreter.running(), find_hierarchy()
        certain = namespaces_to_be_had(python)
        plain = ProcessExecutor(python, hierarchy=hierarchy, certain_kill=certain)
        walled = SandboxExecutor(python, self.mounts, hierarchy=hierarchy)
        made: list[Executor] = [
            plain,
            walled,
            ContainerExecutor(python, self.mounts, self.engine),
            TmuxExecutor(python, plain=plain, walled=walled),
        ]
        return {executor.name: executor for executor in made}

    async def admit(self, site: Site, role: Role) -> None:
        """Raise, with what to do, unless a program can run there."""
        await self._trials.do(site.executor, self._admit, site, role)

    def _admit(self, site: Site, role: Role) -> None:
        refuse(site.executor, self.try_out(site.executor).missing)
        if site.isolated and site.executor == TmuxExecutor.name:
            refuse("tmux with walls", self.try_out(SandboxExecutor.name).missing)
        asks = site.network is Network.OUTLET
        if asks and self.outlet is None and not secrets_of(self._settings).opens():
            raise Unavailable(NO_OUTLET)
        if site.image is not None:
            pinned(self.engine, site.image)
        for share in site.mounts:
            self.mounts.share(share, role)

    async def holds(self, site: Site) -> Mapping[str, Held]:
        """Return for whom memory, processes and processors can be bounded there."""
        made = await asyncio.to_thread(lambda: self.executors)
        return made[site.executor].holds(isolated=site.isolated)

    async def lacks(self, task: Task, role: Role) -> Sequence[str]:
        """Return what a task names and would not be found here, in sentences."""
        found = await asyncio.to_thread(lacks_of, task, role, self._settings)
        return [str(lack) for lack in found]

    def try_all(self) -> list[Tried]:
        """Return what each executor lacks here."""
        return [self.try_out(name) for name in self.executors]

    def try_out(self, name: str) -> Tried:
        """Return what an executor lacks here; it takes a moment, now and then."""
        at, tried = self._tried.get(name, (0.0, None))
        if tried is None or time.monotonic() > at + TRIED_SECONDS:
            executor = self.executors[name]
            try:
                missing = executor.check()
            except Unavailable as fault:
                missing = [Missing("an answer", str(fault), "try again")]
            tried = Tried(executor, missing)
            self._tried[name] = (time.monotonic(), tried)
        return tried


def mounts_of(settings: Settings) -> MountList:
    """Return what programs may be shown: their own, and what the operator's list names beside.

    Rota's home itself is never on the list: it holds the database, the keys and the list.
    """
    home = settings.home.absolute()
    own = (
        Allowed(folder=str(home / "spaces"), own=True),
        Allowed(folder=str(home / "keepers" / "rooms"), write=False, own=True),
        Allowed(folder=str(home / "keepers" / "mailboxes"), own=True),
    )
    path = settings.mounts or home / MOUNTS
    if settings.mounts is None and not path.exists():
        return MountList(own)
    if steps_below(str(home.resolve() / "spaces"), str(path.resolve())) is not None:
        raise Invalid("mounts", str(path), "move it out of the spaces, where programs write")
    listed = read_mounts(path).folders
    for entry in listed:
        real = os.path.realpath(entry.folder)
        for one, other in ((real, str(home.resolve())), (str(home.resolve()), real)):
            if steps_below(one, other) is not None:
                advice = "name folders outside of Rota's home, and none that holds it"
                raise Invalid("mounts", entry.folder, advice)
    return MountList((*own, *listed))


def engine_of(settings: Settings) -> Engine:
    """Return how containers are run: by the engine that settings name, or the first one found."""
    wanted = settings.engine
    found = [_program(name) for name in ((wanted,) if wanted else ENGINES)]
    program = next((path for path in found if path), wanted or ENGINES[0])
    kind = "podman" if "podman" in Path(program).name else "docker"
    usual = Users.MAPPED if kind == "podman" and os.geteuid() != 0 else Users.OWN
    return Engine(
        program=program,
        kind=kind,
        env={**engine_environment(), "PATH": SEARCH_PATH},
        users=Users(settings.engine_users or usual),
        local_images=True,
    )


def _program(name: str) -> str | None:
    return name if name.startswith("/") else shutil.which(name, path=SEARCH_PATH)

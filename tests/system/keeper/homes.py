"""The yard of a home in a folder, with real keepers of programs that harm nobody."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager

from rota.executors.process.executor import ProcessExecutor
from rota.keeper.build import Interpreter
from rota.keeper.home import LocalKeeperHome
from rota.model.attempts import KeptAttempt
from rota.model.ids import Epoch, RunId
from rota.model.programs import Program, ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.ports.agent import AgentWorkspace, PreparedProgram

PLAIN = ProcessExecutor(Interpreter.running(), hierarchy=None, certain_kill=True)
BOUNDS = ResourceLimits(hard_seconds=60.0, grace_seconds=0.1)
RETRY_SECONDS = 0.05


class Home:
    """A home that this process has, and the tries of one attempt in it."""

    def __init__(self, folder, executor=PLAIN):
        self.folder = folder / "home"
        self.folder.mkdir(mode=0o700)
        self.cwd = str(folder)
        self.yard = LocalKeeperHome(self.folder, "here", {"process": executor})
        assert self.yard.acquire()
        self.yard.extend_lease(self.yard.boot_time() + 60.0)
        self.tries = []

    def next_try(self):
        self.tries.append(
            KeptAttempt(
                run_id=RunId(1), epoch=Epoch(1), home=self.yard.home, nonce=os.urandom(8).hex(),
                boot=self.yard.boot, executor="process",
            )
        )  # fmt: skip
        return self.tries[-1]

    def attempt(self, kept):
        """Return the folder that a keeper and the yard share."""
        (found,) = (self.folder / "keepers" / "attempts").glob(f"*{kept.nonce}")
        return found

    async def start(self, kept, *argv, files=(), keep_stdin_open=False):
        files_folder = self.folder / "files"
        room = AgentWorkspace(
            folder=str(files_folder), cwd=self.cwd, home=self.cwd, offered={}, ids={}
        )
        command = Program(argv=argv, env={}, cwd=self.cwd, keep_stdin_open=keep_stdin_open)
        prepared = PreparedProgram(command=command, files=files)
        await self.yard.start(
            kept, room, Site(executor="process"), SpaceRole.MAIN, prepared, BOUNDS
        )

    async def runs(self, kept):
        """Return what is seen of a try once its program runs."""
        while (sign := await self.yard.take_sample(kept)).state != "running":
            await self.yard.wait_for_change(kept, RETRY_SECONDS)
        return sign

    async def ending(self, kept):
        while (ending := self.yard.exit_record(kept)) is None:
            await self.yard.wait_for_change(kept, RETRY_SECONDS)
        return ending

    async def close(self):
        for kept in self.tries:
            self.yard.cancel(kept, 0.0, "test over")
            await self.ending(kept)
        self.yard.close()


@asynccontextmanager
async def a_home(folder, executor=PLAIN):
    """A home whose programs are ended whatever comes."""
    home = Home(folder, executor)
    try:
        yield home
    finally:
        await home.close()


@asynccontextmanager
async def sleeping(folder):
    """A real keeper with a program that sleeps, ended whatever comes."""
    async with a_home(folder) as home:
        kept = home.next_try()
        await home.start(kept, "sleep", "60")
        yield home.yard, kept, await home.runs(kept)

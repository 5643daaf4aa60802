"""No attempt begins while a process of the one before lives, also where no namespace holds it."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from rota.agents.command.agent import ScriptAgent
from rota.executors.process.executor import ProcessExecutor
from rota.flow.attempt.runner import AttemptRunner
from rota.keeper.build import Interpreter
from rota.keeper.home import LocalKeeperHome
from rota.keeper.protocol import from_lines
from rota.model.runs import FINISHED
from rota.model.tasks import NewTask, Policy, Retry, TaskKind
from rota.ports.executor import ProcessTreeMode
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.runtime.worker import AttemptStop
from rota.store.tasks import put_task
from rota.store.views import list_attempts
from tests.system.attempt.family import NAMES, WORDS, together
from tests.tools.plugins import EXECUTORS

SHORT = timedelta(milliseconds=600)


class Guarded(ProcessExecutor):
    """A machine without PID namespaces: a guard gathers strays, and two kills outwit it."""

    def wrap(self, command, room):
        return replace(super().wrap(command, room), tree=ProcessTreeMode.GUARD)


class Machine:
    """A crew in this process with real keepers."""

    def __init__(self, desk, chance, folder):
        self.desk = desk
        self.home = folder / "home"
        self.work = self.home / "spaces" / "main" / "work"
        self.work.mkdir(parents=True)
        (self.work / "family.py").write_text(WORDS)
        executor = Guarded(Interpreter.running(), hierarchy=None, certain_kill=False)
        yard = LocalKeeperHome(self.home, "here", {"process": executor})
        self.kept = AttemptRunner(
            desk.store, yard, {"script": ScriptAgent()}, lambda: self.crew.worker.id, chance,
            executors=EXECUTORS, usual_agent="command", offered={"PATH": os.environ["PATH"]},
        )  # fmt: skip
        settings = SupervisorSettings(
            worker_id="me", home="h", host="here", pid=os.getpid(), slots=4
        )
        self.crew = Supervisor(
            desk.store, [self.kept], {}, settings, desk.clock, chance, keepers=self.kept
        )

    @asynccontextmanager
    async def working(self):
        await self.crew.start()
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(self.crew.run())
            try:
                yield self
            finally:
                await self.crew.stop()

    async def queue(self, policy):
        owner = await self.desk.space("main")
        task = await self.desk.store.write(
            put_task, NewTask(
                space_id=owner.id, name="family", title="", kind=TaskKind.SCRIPT, route="script",
                spec={"command": ["python3", "family.py"]}, policy=policy, origin="api",
            ),
            None, None,
        )  # fmt: skip
        (run_id,) = await self.desk.queue(task)
        return run_id

    async def lived(self, number):
        """Wait until every process of an attempt has said that it lives."""
        while {p.name.split("-")[2] for p in self.work.glob(f"lived-{number}-*")} != NAMES:
            await self.tick()

    def outwit(self):
        """Kill the newest keeper and its guard so that neither can end what they hold."""
        folders = sorted((self.home / "keepers" / "attempts").iterdir(), key=os.path.getmtime)
        facts, _ = from_lines((folders[-1] / "keeper").read_bytes())
        os.kill(int(facts["inner"]), signal.SIGSTOP)
        os.kill(int(facts["pid"]), signal.SIGKILL)
        os.kill(int(facts["inner"]), signal.SIGKILL)

    async def tick(self):
        self.desk.clock.advance(seconds=0.02)
        self.crew.planner.wake()
        await asyncio.sleep(0.02)

    async def ended(self, run_id):
        while await self.desk.state(run_id) not in FINISHED:
            await self.tick()
        return await self.desk.store.read(list_attempts, run_id)


@pytest.fixture
def machine(desk, chance, tmp_path):
    return Machine(desk, chance, tmp_path)


async def test_a_guarded_tree_that_timed_out_is_gone_before_the_retry(machine):
    retry = Retry(attempts=2, base=timedelta(milliseconds=1), jitter=0)
    policy = Policy(timeout=timedelta(seconds=2), grace=timedelta(milliseconds=100), retry=retry)
    async with machine.working():
        attempts = await machine.ended(await machine.queue(policy))
    assert [attempt.ending["reason"] for attempt in attempts] == ["hard_timeout"] * 2
    assert {attempt.ending["tree"] for attempt in attempts} == {"guard"}
    assert all(attempt.ending["killed"] and attempt.ending["proven"] for attempt in attempts)
    assert together(machine.work) == []


async def test_strays_are_found_by_their_marker_before_the_run_is_tried_again(machine):
    async with machine.working():
        run_id = await machine.queue(Policy(timeout=timedelta(seconds=5), grace=SHORT))
        await machine.lived(1)
        machine.outwit()
        await machine.lived(2)
        machine.outwit()
        await machine.lived(3)
        (first, second) = await machine.desk.store.read(list_attempts, run_id)
        machine.crew.worker.stop_run(run_id, AttemptStop.CANCEL)
        attempts = await machine.ended(run_id)
    for attempt in (first, second):
        assert (attempt.outcome, attempt.ending["reason"]) == ("lost", "lost:keeper_died")
        assert attempt.ending["proven"] is False
        assert int(attempt.ending["detail"].split(" processes were found")[0]) >= 3
    assert attempts[2].ending["reason"] == "cancelled"
    assert together(machine.work) == []

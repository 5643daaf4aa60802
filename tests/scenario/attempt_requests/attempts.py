"""Attempts that speak for their runs, and people who answer."""

from __future__ import annotations

import json
from dataclasses import replace

from rota.commands.catalogue import every_command, execute, read_request
from rota.commands.context import AppContext, RequestContext
from rota.flow.settle import settle_attempts
from rota.model.attempts import Assignment, AttemptReport, Succeeded
from rota.model.audit import AttemptIdentity
from rota.model.keys import EVERY_SCOPE, KeyScope
from rota.model.spaces import SpaceRole
from rota.model.tasks import NewTask, Policy, TaskKind
from rota.rules.permissions import LOCAL, Caller
from rota.store.tasks import put_task
from rota.testing.fakes import FixedChance
from tests.tools.plugins import plugins
from tests.tools.store_bench import Bench

COMMANDS = {command.name: command for command in every_command()}
INSIDE = frozenset({KeyScope.READ, KeyScope.RUN, KeyScope.DEFINE})
ANN = Caller(space="ann", role=SpaceRole.MEMBER, name="ann", id="key:ann", scopes=EVERY_SCOPE)


class Talkers:
    """A store with agents' tasks in it, and doors to it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.store = bench.store
        self.clock = bench.clock
        bench.routes.append("agent")
        self.artifacts = None
        self.inquirer = None
        self.channels = ()

    async def task(self, name="agent", *, space="main", spec=None, thread=None, **policy):
        """Return an agent's task."""
        owner = await self.bench.space(space)
        return await self.store.write(
            put_task,
            NewTask(
                space_id=owner.id,
                name=name,
                kind=TaskKind.AGENT,
                route="agent",
                spec=spec or {"agent": "command", "command": ["think"], "instructions": "Look."},
                policy=Policy(**policy),
                thread=thread,
            ),
            None,
        )

    async def begin(self, task=None, **policy):
        """Queue a run of a task and return who speaks for its attempt."""
        task = task or await self.task(**policy)
        await self.bench.queue(task)
        return await self.next()

    async def next(self):
        """Return who speaks for the one run that is ready."""
        claimed = await self.bench.claimed(1)
        (lease,) = claimed.leases
        task = claimed.tasks[lease.task_id]
        return Inside(self, Assignment(lease, task, claimed.answers.get(lease.run_id, ())))

    async def person(self, name, caller=LOCAL, /, **fields):
        """Ask for something as a person does."""
        return await self.ask(name, caller, fields)

    async def ask(self, name, caller, fields, key=None):
        app = AppContext(
            store=self.store, chance=FixedChance(), plugins=plugins("command", self.channels),
            artifacts=self.artifacts, sql_console=self.inquirer,
        )  # fmt: skip
        office = RequestContext(app=app, caller=caller)
        command = COMMANDS[name]
        answer = await execute(command, office, read_request(command.takes, fields), key=key)
        return json.loads(answer.text)


class Inside:
    """One attempt, and what it may ask for."""

    def __init__(self, talkers, assignment):
        self.talkers = talkers
        self.assignment = assignment
        lease, task = assignment.lease, assignment.task
        self.lease, self.run_id = lease, lease.run_id
        self.caller = Caller(
            space=task.space,
            role=SpaceRole.MAIN if task.space == "main" else SpaceRole.MEMBER,
            name=f"run {lease.run_id}",
            id=f"attempt:{lease.run_id}.{lease.epoch}",
            scopes=INSIDE,
            attempt=AttemptIdentity(
                run_id=lease.run_id,
                epoch=lease.epoch,
                task_id=task.id,
                task=task.name,
                thread=lease.thread or task.thread,
                space=task.space,
            ),
        )

    async def __call__(self, command, /, *, request=None, **fields):
        """Ask for something as this attempt."""
        return await self.talkers.ask(command, self.caller, fields, request)

    async def end(self, outcome=None):
        """Let its program end so, and settle it as a worker does."""
        report = AttemptReport(outcome=outcome or Succeeded(result='"done"'))
        ended = [(self.assignment, report)]
        return (await settle_attempts(self.talkers.store, ended, FixedChance()))[0]

    async def asks(self, **fields):
        """Ask a person, end the turn, and return the question that its run waits with."""
        await self("ask_user", **{"question": "Shall I?", **fields})
        assert await self.end()
        shown = await self.talkers.person("show_run", run=self.run_id)
        assert shown["state"] == "waiting"
        return shown["questions"][-1]

    def as_another(self, **held):
        """Return an attempt that claims to be another one."""
        other = Inside(self.talkers, self.assignment)
        other.caller = replace(self.caller, attempt=replace(self.caller.attempt, **held))
        return other

"""Errands: a run of a task, or work that is done once, as people and agents ask for it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from rota.doors.commands.fields import WHOLE, Json, RunKey, SpaceName, TaskRef, Text, Word
from rota.doors.commands.finding import space_of, task_of
from rota.doors.commands.shapes import Asked
from rota.doors.commands.wishes import Length, Line, Zone, length
from rota.doors.kit.office import Office
from rota.flow.define import adhoc, runs
from rota.flow.define.agents import with_agent
from rota.flow.define.policies import HIGHEST_PRIORITY
from rota.flow.observe.moments import parse_instant
from rota.model.instants import from_micros
from rota.model.runs import RunBatch, Source
from rota.model.tasks import TaskKind
from rota.model.wishes import Output
from rota.rules.programs import check_script

Tier = Literal["low", "medium", "high"]
ONE_OF = ("task", "agent", "script")


class AgentAsked(Asked):
    """Work for an agent, in words."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    agent: Word | None = None
    model_tier: Tier | None = Field(
        default=None, description="A model that the settings name for the agent."
    )
    tools: list[Word] | None = Field(default=None, max_length=1_000)
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class ScriptAsked(Asked):
    """A program to be run."""

    command: list[Text] = Field(min_length=1, max_length=1_000)
    shell: bool = Field(default=False, description="The command is one line for a shell.")
    output: Output | None = None
    timeout: Length | None = None
    metadata: dict[str, Json] | None = None


class NewRun(Asked):
    """A run of a task, or work that is done once: exactly one of task, agent and script."""

    task: TaskRef | None = None
    agent: AgentAsked | None = None
    script: ScriptAsked | None = None
    space: SpaceName | None = None
    payload: Json = None
    key: RunKey | None = None
    at: Line | None = None
    timezone: Zone | None = None
    priority: Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY), WHOLE] | None = None

    @model_validator(mode="after")
    def _one_work(self) -> NewRun:
        if len([name for name in ONE_OF if getattr(self, name) is not None]) != 1:
            message = f"say what to run: exactly one of {', '.join(ONE_OF)}"
            raise ValueError(message)
        return self


async def batch_of(office: Office, asked: NewRun) -> RunBatch:
    """Return the run that is asked for, to be queued."""
    store = office.store
    at = await _start(office, asked)
    if asked.task is not None:
        task = await task_of(office, asked.task, asked.space)
        payload = asked.payload
    else:
        space = space_of(office, asked.space)
        kind = TaskKind.AGENT if asked.agent is not None else TaskKind.SCRIPT
        task = await adhoc.task_for(store, office.caller, kind, space)
        payload = _errand(office, asked)
    template = runs.template_for(task, Source.ENQUEUE, store.now(), at, asked.priority)
    return runs.batch_of(template, payload, asked.key)


async def _start(office: Office, asked: NewRun) -> datetime | None:
    if asked.at is None:
        return None
    home = (await office.store.find_space(space_of(office, asked.space))).timezone
    now = from_micros(office.store.now())
    return parse_instant(asked.at, asked.timezone or home, now, "at")


def _errand(office: Office, asked: NewRun) -> dict[str, Any]:
    said = asked.agent or asked.script
    record = {} if said is None else said.model_dump(exclude_none=True)
    if said is not None and said.timeout is not None:
        span = length(said.timeout, "timeout")
        record["timeout"] = None if span is None else span.total_seconds()
    if asked.script is not None:
        check_script(record)
    if asked.payload is not None:
        record["payload"] = asked.payload
    return with_agent(office.agents, TaskKind.AGENT, record) if asked.agent else record

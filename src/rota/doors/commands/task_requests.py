"""What may be asked for of tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from rota.doors.commands.done import Checks, GateAsked, NextCheckAsked, plain
from rota.doors.commands.fields import (
    PLAIN,
    WHOLE,
    NewTaskName,
    SpaceName,
    Spelled,
    TaskName,
    Text,
    ThreadKey,
    Word,
)
from rota.doors.commands.shapes import Asked, OneTask
from rota.doors.commands.wishes import PolicyAsked, ScheduleAsked
from rota.flow.define import tasks
from rota.model.sites import Network
from rota.model.tasks import AfterOn, TaskKind
from rota.model.wishes import MOST_TURNS, Output, PromptBy, SessionContext
from rota.rules.done import DONE
from rota.rules.sites import BOUNDS, FIELDS, LEAST_CPUS, MOST_CPUS
from rota.rules.wishes import WISHES

Title = Annotated[str, StringConstraints(max_length=tasks.LONGEST_TITLE), PLAIN]
Call = Annotated[
    str,
    StringConstraints(max_length=200),
    Spelled(
        r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
        "write it as module:function, such as reports:daily",
    ),
]
Tool = Annotated[str, StringConstraints(min_length=1, max_length=500), PLAIN]
KIND_OF = {"instructions": TaskKind.AGENT, "command": TaskKind.SCRIPT, "call": TaskKind.PYTHON}
ROOM = (*FIELDS, "folder", *BOUNDS)
"""What a request may say about where and within which bounds a program runs."""
TOLD = (*KIND_OF, "agent", "model_tier", "shell", *WISHES, *ROOM, *DONE)
PROGRAM = "command"
"""The agent that is any program; its task has instructions and a command."""


Executor = Literal["process", "sandbox", "container", "tmux"]
Mount = Annotated[
    str,
    StringConstraints(min_length=2, max_length=4_096),
    PLAIN,
    Field(description="A folder of the host, `/path`, or `/path:rw` to write there."),
]
LARGEST = 10_000_000


class AfterAsked(Asked):
    """The task to follow, and on which ends of its runs."""

    task: TaskName
    on: AfterOn = AfterOn.SUCCESS


class Work(Asked):
    """What a task does: instructions for an agent, a program, or a callable."""

    instructions: Annotated[Text, StringConstraints(min_length=1)] | None = None
    command: list[Text] | None = Field(default=None, min_length=1, max_length=1_000)
    call: Call | None = None
    agent: Word | None = None
    model_tier: Literal["low", "medium", "high"] | None = None
    model: Word | None = None
    fallback_models: list[Word] | None = Field(default=None, max_length=20)
    tools: list[Tool] | None = Field(default=None, max_length=1_000)
    denied_tools: list[Tool] | None = Field(default=None, max_length=1_000)
    thinking: Word | None = None
    permission_mode: Word | None = None
    max_turns: Annotated[int, Field(ge=1, le=MOST_TURNS), WHOLE] | None = None
    context: SessionContext | None = Field(
        default=None,
        description="`group`: its runs go on in the session of the thread, one after the other.",
    )
    envelope: bool | None = Field(
        default=None, description="Whether the prompt has sections; not for `command` by default."
    )
    previous_result: bool | None = Field(
        default=None, description="The prompt tells what the last run came to."
    )
    answers: bool | None = Field(default=None, description="It answers what is said in its thread.")
    phrases: bool | None = None
    prompt_by: PromptBy | None = None
    shell: bool | None = Field(default=None, description="The command is one line for a shell.")
    output: Output | None = None
    executor: Executor | None = None
    image: Word | None = None
    isolate: bool | None = None
    mounts: list[Mount] | None = Field(default=None, min_length=1, max_length=100)
    network: Network | None = None
    folder: Word | None = None
    memory_mib: Annotated[int, Field(ge=16, le=LARGEST), WHOLE] | None = None
    processes: Annotated[int, Field(ge=1, le=LARGEST), WHOLE] | None = None
    cpus: Annotated[float, Field(ge=LEAST_CPUS, le=MOST_CPUS)] | None = None
    checks: Checks | None = None
    gate: GateAsked | None = None
    next_check: NextCheckAsked | None = None

    def spec(self) -> dict[str, Any]:
        """Return what the task's executor is told."""
        told = {name: getattr(self, name) for name in TOLD if getattr(self, name) is not None}
        return {name: plain(value) for name, value in told.items()}


class WholeTask(Work):
    """Everything about a task, with at most one schedule; without one it runs only when asked."""

    title: Title = ""
    space: SpaceName | None = None
    thread: ThreadKey | None = None
    schedule: ScheduleAsked | None = None
    policy: PolicyAsked | None = None
    after: AfterAsked | None = None

    @model_validator(mode="after")
    def _one_work(self) -> WholeTask:
        told = {name for name in KIND_OF if getattr(self, name) is not None}
        both = told == {"instructions", "command"} and self.agent == PROGRAM
        if len(told) != 1 and not both:
            message = f"say what to do: exactly one of {', '.join(KIND_OF)}"
            raise ValueError(message)
        if self.agent == PROGRAM and not both:
            message = f"the agent {PROGRAM} needs instructions, and a command: the program it is"
            raise ValueError(message)
        if self.model is not None and self.model_tier is not None:
            message = "name a model or a model_tier, not both"
            raise ValueError(message)
        if self.shell and told != {"command"}:
            message = "a shell goes with a command alone"
            raise ValueError(message)
        return self


class NewTask(WholeTask):
    """A task to be made; without a name it is given one."""

    name: NewTaskName | None = None


class PutTask(WholeTask):
    """What a task shall be; what is left out is as in a new one."""

    task: TaskName


class NewThreadTask(Asked):
    """A task of a conversation, in words."""

    thread_key: ThreadKey
    title: Annotated[Title, StringConstraints(min_length=1)]
    instructions: Annotated[Text, StringConstraints(min_length=1)]
    schedule: ScheduleAsked | None = None
    policy: PolicyAsked | None = None


class ChangedTask(OneTask, Work):
    """What is to change in a task; what is left out stays. A new rule replaces the old one."""

    title: Title | None = None
    schedule: ScheduleAsked | None = None
    schedule_name: TaskName = "default"
    policy: PolicyAsked | None = None
    after: AfterAsked | None = None

    @model_validator(mode="after")
    def _something(self) -> ChangedTask:
        if not self.model_fields_set - {"task", "space", "schedule_name"}:
            message = "say what to change"
            raise ValueError(message)
        return self

"""Fields of tasks as requested: policy, schedule, checks, agent."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from rota.commands.fields import (
    PLAIN,
    WHOLE,
    Json,
    NewTaskName,
    SpaceName,
    TaskName,
    Text,
    TextFormat,
    ThreadKey,
    Word,
)
from rota.commands.responses import RequestModel, TaskSelector
from rota.errors import Invalid
from rota.flow.define import tasks
from rota.flow.define.policies import HIGHEST_PRIORITY, MOST_ATTEMPTS, MOST_CATCH_UP, policy_from
from rota.flow.define.schedules import KINDS, ScheduleSpec
from rota.model.agents import MAX_TURNS, OutputFormat, PromptInput, SessionContext
from rota.model.programs import NetworkAccess
from rota.model.schedules import Fold, Gap, QuietMode
from rota.model.tasks import (
    AfterOn,
    CatchUp,
    CatchUpMode,
    OnLost,
    Overlap,
    Policy,
    Pool,
    Retry,
    TaskKind,
)
from rota.rules.checks import DONE, MAX_ARGUMENTS, MAX_CHECKS
from rota.rules.notifications import MAX_PROGRESS
from rota.rules.task_spec import AGENT_FIELDS, LIMIT_FIELDS, MAX_CPUS, MIN_CPUS, SITE_FIELDS
from rota.timing.durations import parse_duration

Line = Annotated[Text, StringConstraints(min_length=1, max_length=10_000)]
Length = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64),
    PLAIN,
    Field(description="A length of time: `30s`, `10m`, `2h`, `1d` or ISO 8601."),
]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=64), PLAIN]
RuleKinds = Literal["once", "cron", "interval", "rrule", "calendar"]
FIELD_OF = {
    "once": "at",
    "cron": "cron",
    "interval": "every",
    "rrule": "rrule",
    "calendar": "times",
}


class ScheduleInput(RequestModel):
    """When a task runs: exactly one of cron, rrule, every (1s or longer), at, times and words."""

    kind: RuleKinds | None = None
    cron: Line | None = None
    rrule: Line | None = None
    every: Length | None = None
    at: Line | None = None
    times: Line | list[Line] | None = None
    words: Line | None = None
    weekdays: Line | list[Line] | None = None
    timezone: Zone | None = None
    gap: Gap | None = None
    fold: Fold | None = None
    starts_at: Line | None = None
    ends_at: Line | None = None
    excluded: list[Line] | None = None
    quiet: list[Line] | None = None
    quiet_mode: QuietMode | None = None
    jitter: Length | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> ScheduleInput:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"give exactly one of {', '.join(KINDS)}"
            raise ValueError(message)
        if self.kind is not None and given[0] not in {FIELD_OF[self.kind], "words"}:
            message = f"the kind {self.kind} goes with {FIELD_OF[self.kind]}, not with {given[0]}"
            raise ValueError(message)
        return self

    def wish(self) -> ScheduleSpec:
        """Return it as define takes it."""
        names = ("gap", "fold", "starts_at", "ends_at", "excluded", "quiet", "quiet_mode", "jitter")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return ScheduleSpec(
            cron=self.cron,
            every=self.every,
            rrule=self.rrule,
            at=self.at,
            times=_several(self.times),
            words=self.words,
            weekdays=_several(self.weekdays) or (),
            timezone=self.timezone,
            options=options,
        )


class RetryInput(RequestModel):
    """How often a failed run is tried again, and when."""

    attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS), WHOLE] | None = None
    base: Length | None = None
    factor: float | None = Field(default=None, ge=1, le=100)
    cap: Length | None = None
    jitter: float | None = Field(default=None, ge=0, le=10)
    max_age: Length | None = None


class CatchUpInput(RequestModel):
    """Which missed slots still run."""

    mode: CatchUpMode | None = None
    window: Length | None = None
    cap: Annotated[int, Field(ge=1, le=MOST_CATCH_UP), WHOLE] | None = None
    pace: Length | None = None


class PolicyInput(RequestModel):
    """How runs of a task are queued, tried, limited and ended; what is left out stays."""

    retry: RetryInput | None = None
    timeout: Length | None = None
    idle_timeout: Length | None = None
    grace: Length | None = None
    pool: Pool | None = None
    priority: Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY), WHOLE] | None = None
    lane: Word | None = None
    group: Word | None = None
    overlap: Overlap | None = None
    catch_up: CatchUpInput | None = None
    on_lost: OnLost | None = None
    deadline: Length | None = None
    disable_after: Annotated[int, Field(ge=0, le=MOST_ATTEMPTS), WHOLE] | None = None
    until_success: bool | None = None
    deliver_to: Word | None = None
    acknowledge: bool | None = None
    progress: Annotated[int, Field(ge=0, le=MAX_PROGRESS), WHOLE] | None = None

    def over(self, base: Policy) -> Policy:
        """Return a policy with everything set that was said."""
        plain = ("timeout", "pool", "lane", "group", "overlap", "deadline")
        given = ("priority", "on_lost", "disable_after", "until_success", "acknowledge", "progress")
        names = (*plain, *given, "idle_timeout", "grace", "deliver_to")
        said: dict[str, Any] = {
            name: getattr(self, name) for name in names if name in self.model_fields_set
        }
        for name in given:
            if name in said and said[name] is None:
                raise Invalid(name, None, "leave it out, or give a value")
        if self.retry is not None:
            said["retry"] = _over(base.retry, self.retry, ("base", "cap", "max_age"), "retry")
        if self.catch_up is not None:
            said["catch_up"] = _over(base.catch_up, self.catch_up, ("window", "pace"), "catch_up")
        return policy_from(said, base)


def _over(
    base: Retry | CatchUp, said: RequestModel, lengths: tuple[str, ...], field: str
) -> object:
    changes: dict[str, Any] = {}
    for name in said.model_fields_set:
        value = getattr(said, name)
        if value is not None and name in lengths:
            value = parse_duration(value, field=f"{field}.{name}")
        changes[name] = value
    return replace(base, **changes)


def _several(value: str | list[str] | None) -> str | tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) else value


def length(value: str | None, field: str) -> timedelta | None:
    """Return a length of time that a request named."""
    return None if value is None else parse_duration(value, field=field)


Checks = Annotated[
    list[dict[str, Json]],
    Field(
        max_length=MAX_CHECKS,
        description="What must be true for a run to count as done; each check names one of "
        "file_newer, command, url, json_schema, min_length, tool_called, not_like.",
    ),
]


class GateInput(RequestModel):
    """A program that decides whether the work begins; it ends with a line `{"wake": true}`."""

    command: list[Text] = Field(min_length=1, max_length=MAX_ARGUMENTS)
    timeout: Length | None = None


class NextCheckInput(RequestModel):
    """How soon and how late an agent may have itself looked at again."""

    min: Length
    max: Length


def plain(value: object) -> Any:  # noqa: ANN401 - whatever a field holds
    """Return a value of a request as a record keeps it."""
    return value.model_dump(exclude_none=True) if isinstance(value, RequestModel) else value


Title = Annotated[str, StringConstraints(max_length=tasks.MAX_TITLE), PLAIN]
Call = Annotated[
    str,
    StringConstraints(max_length=200),
    TextFormat(
        r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
        "write it as module:function, such as reports:daily",
    ),
]
Tool = Annotated[str, StringConstraints(min_length=1, max_length=500), PLAIN]
KIND_OF = {"instructions": TaskKind.AGENT, "command": TaskKind.SCRIPT, "call": TaskKind.PYTHON}
ROOM = (*SITE_FIELDS, "folder", *LIMIT_FIELDS)
"""What a request may say about where and within which bounds a program runs."""
TOLD = (*KIND_OF, "agent", "model_tier", "shell", *AGENT_FIELDS, *ROOM, *DONE)
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


class DependencyInput(RequestModel):
    """The task to follow, and on which ends of its runs."""

    task: TaskName
    on: AfterOn = AfterOn.SUCCESS


class TaskWorkInput(RequestModel):
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
    max_turns: Annotated[int, Field(ge=1, le=MAX_TURNS), WHOLE] | None = None
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
    prompt_by: PromptInput | None = None
    shell: bool | None = Field(default=None, description="The command is one line for a shell.")
    output: OutputFormat | None = None
    executor: Executor | None = None
    image: Word | None = None
    isolate: bool | None = None
    mounts: list[Mount] | None = Field(default=None, min_length=1, max_length=100)
    network: NetworkAccess | None = None
    folder: Word | None = None
    memory_mib: Annotated[int, Field(ge=16, le=LARGEST), WHOLE] | None = None
    processes: Annotated[int, Field(ge=1, le=LARGEST), WHOLE] | None = None
    cpus: Annotated[float, Field(ge=MIN_CPUS, le=MAX_CPUS)] | None = None
    checks: Checks | None = None
    gate: GateInput | None = None
    next_check: NextCheckInput | None = None

    def spec(self) -> dict[str, Any]:
        """Return what the task's executor is told."""
        told = {name: getattr(self, name) for name in TOLD if getattr(self, name) is not None}
        return {name: plain(value) for name, value in told.items()}


class TaskInput(TaskWorkInput):
    """Everything about a task, with at most one schedule; without one it runs only when asked."""

    title: Title = ""
    space: SpaceName | None = None
    thread: ThreadKey | None = None
    schedule: ScheduleInput | None = None
    policy: PolicyInput | None = None
    after: DependencyInput | None = None

    @model_validator(mode="after")
    def _one_work(self) -> TaskInput:
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


class CreateTask(TaskInput):
    """A task to be made; without a name it is given one."""

    name: NewTaskName | None = None


class SetTask(TaskInput):
    """What a task shall be; what is left out is as in a new one."""

    task: TaskName


class CreateThreadTask(RequestModel):
    """A task of a conversation, in words."""

    thread_key: ThreadKey
    title: Annotated[Title, StringConstraints(min_length=1)]
    instructions: Annotated[Text, StringConstraints(min_length=1)]
    schedule: ScheduleInput | None = None
    policy: PolicyInput | None = None


class UpdateTask(TaskSelector, TaskWorkInput):
    """What is to change in a task; what is left out stays. A new rule replaces the old one."""

    title: Title | None = None
    schedule: ScheduleInput | None = None
    schedule_name: TaskName = "default"
    policy: PolicyInput | None = None
    after: DependencyInput | None = None

    @model_validator(mode="after")
    def _something(self) -> UpdateTask:
        if not self.model_fields_set - {"task", "space", "schedule_name"}:
            message = "say what to change"
            raise ValueError(message)
        return self

"""Request models of tasks, made from TASK_FIELDS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field, StringConstraints, create_model, model_validator

from rota.commands.fields import (
    PLAIN,
    WHOLE,
    Json,
    Length,
    Line,
    NewTaskName,
    SpaceName,
    TaskName,
    Text,
    TextFormat,
    ThreadKey,
    Title,
    Word,
    Zone,
)
from rota.commands.responses import RequestModel, TaskSelector
from rota.commands.task_fields import FieldKind, TaskCommand, TaskField, fields_at
from rota.flow.define.policies import policy_from
from rota.flow.define.schedules import KINDS, ScheduleSpec
from rota.model.tasks import AfterOn, Policy, TaskKind
from rota.rules.checks import MAX_ARGUMENTS

Model = TypeVar("Model", bound=RequestModel)

FIELD_OF = {
    "once": "at",
    "cron": "cron",
    "interval": "every",
    "rrule": "rrule",
    "calendar": "times",
}
"""The field with the rule, by kind of schedule."""
KIND_OF = {"instructions": TaskKind.AGENT, "command": TaskKind.SCRIPT, "call": TaskKind.PYTHON}


class NextCheckInput(RequestModel):
    """Limits on the delay that an agent may choose for its next run."""

    min: Length
    max: Length


TYPES: Mapping[FieldKind, Any] = {
    FieldKind.TEXT: Annotated[Text, StringConstraints(min_length=1)],
    FieldKind.LINE: Line,
    FieldKind.WORD: Word,
    FieldKind.TITLE: Title,
    FieldKind.CALL: Annotated[
        str,
        StringConstraints(max_length=200),
        TextFormat(
            r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*",
            "write it as module:function, such as reports:daily",
        ),
    ],
    FieldKind.COMMAND: Annotated[list[Text], Field(min_length=1, max_length=MAX_ARGUMENTS)],
    FieldKind.FLAG: bool,
    FieldKind.INTEGER: int,
    FieldKind.NUMBER: float,
    FieldKind.LENGTH: Length,
    FieldKind.ZONE: Zone,
    FieldKind.LINES: Line | list[Line],
    FieldKind.TASK: TaskName,
    FieldKind.THREAD: ThreadKey,
    FieldKind.TOOL: Annotated[str, StringConstraints(min_length=1, max_length=500), PLAIN],
    FieldKind.MOUNT: Annotated[str, StringConstraints(min_length=2, max_length=4_096), PLAIN],
    FieldKind.CHECKS: dict[str, Json],
    FieldKind.RANGE: NextCheckInput,
}


def with_fields(
    group: str, command: TaskCommand | None = None, **parts: type[RequestModel]
) -> Callable[[type[Model]], type[Model]]:
    """Add the fields of a group to a model; `parts` are the models of the groups within it."""

    def add(model: type[Model]) -> type[Model]:
        named: dict[str, Any] = {}
        for field in fields_at(group, command):
            name = field.path.removeprefix(f"{group}." if group else "").partition(".")[0]
            if name in parts:
                named[name] = (parts[name] | None, None)
            elif field.required:
                named[name] = (_type_of(field), Field(description=field.meaning))
            else:
                named[name] = (_type_of(field) | None, Field(None, description=field.meaning))
        return create_model(
            model.__name__,
            __base__=model,
            __doc__=model.__doc__,
            __module__=model.__module__,
            **named,
        )

    return add


def _type_of(field: TaskField) -> Any:  # noqa: ANN401 - an annotation
    if field.kind is FieldKind.CHOICE:
        choices = field.choices
        one: Any = choices if isinstance(choices, type) else Literal[tuple(choices)]
    else:
        one = TYPES[field.kind]
    if field.kind in {FieldKind.INTEGER, FieldKind.NUMBER} and field.bounds is not None:
        least, most = field.bounds
        one = Annotated[one, Field(ge=least, le=most)]
    if field.kind is FieldKind.INTEGER:
        one = Annotated[one, WHOLE]
    if not field.is_list:
        return one
    return Annotated[list[one], Field(max_length=field.many or None)]


@with_fields("schedule")
class ScheduleInput(RequestModel):
    """When a task runs: exactly one of cron, rrule, every, at, times and words."""

    if TYPE_CHECKING:
        kind: str | None = None

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
        """Return the schedule as `flow.define` takes it."""
        own: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for name, value in self:
            if name in SPEC_FIELDS and value is not None:
                own[name] = tuple(value) if isinstance(value, list) else value
            elif name != "kind" and value is not None:
                options[name] = value
        return ScheduleSpec(**own, options=options)


SPEC_FIELDS = frozenset(field.name for field in fields(ScheduleSpec))


@with_fields("policy.retry")
class RetryInput(RequestModel):
    """How often a failed run is retried, and when."""


@with_fields("policy.catch_up")
class CatchUpInput(RequestModel):
    """Which missed slots run."""


@with_fields("policy", retry=RetryInput, catch_up=CatchUpInput)
class PolicyInput(RequestModel):
    """How runs of a task are queued, retried, limited and ended; omitted fields do not change."""

    def over(self, base: Policy) -> Policy:
        """Return a policy with the given fields replaced."""
        return policy_from(self.model_dump(exclude_unset=True), base)


@with_fields("gate")
class GateInput(RequestModel):
    """A program that decides before a run whether there is work: it prints `{"wake": true}`."""


class DependencyInput(RequestModel):
    """The task after whose runs this one runs, and on which outcome."""

    task: TaskName
    on: AfterOn = AfterOn.SUCCESS


class TaskInput(RequestModel):
    """Fields of a task that every command takes."""

    if TYPE_CHECKING:
        instructions: str | None = None
        command: list[str] | None = None
        call: str | None = None
        agent: str | None = None
        model_tier: str | None = None
        model: str | None = None
        shell: bool | None = None
        checks: list[dict[str, Any]] | None = None
        title: str | None = None
        schedule: ScheduleInput | None = None
        policy: PolicyInput | None = None
        after: DependencyInput | None = None

    def spec(self) -> dict[str, Any]:
        """Return the given fields that the task's spec keeps."""
        given = {name: getattr(self, name) for name in SPEC_NAMES}
        return {name: _plain(value) for name, value in given.items() if value is not None}


def _plain(value: object) -> object:
    return value.model_dump(exclude_none=True) if isinstance(value, RequestModel) else value


ROOTS = {"schedule", "policy"}
SPEC_NAMES = tuple(
    dict.fromkeys(f.root for f in fields_at("") if not f.column and f.root not in ROOTS)
)
"""The fields that the spec of a task keeps."""
PARTS: Mapping[str, type[RequestModel]] = {
    "schedule": ScheduleInput,
    "policy": PolicyInput,
    "gate": GateInput,
    "after": DependencyInput,
}


class NewTaskInput(TaskInput):
    """All fields of a task, with at most one schedule; without one it runs on request."""

    space: SpaceName | None = None
    if TYPE_CHECKING:
        thread: str | None = None

    @model_validator(mode="after")
    def _one_work(self) -> NewTaskInput:
        given = {name for name in KIND_OF if getattr(self, name) is not None}
        both = given == {"instructions", "command"} and self.agent is not None
        if len(given) != 1 and not both:
            message = f"give exactly one of {', '.join(KIND_OF)}"
            raise ValueError(message)
        if self.model is not None and self.model_tier is not None:
            message = "give a model or a model_tier, not both"
            raise ValueError(message)
        if self.shell and given != {"command"}:
            message = "a shell needs a command, and no instructions"
            raise ValueError(message)
        return self


@with_fields("", TaskCommand.CREATE, **PARTS)
class CreateTask(NewTaskInput):
    """A task to create; the default name is derived from the title."""

    name: NewTaskName | None = None


@with_fields("", TaskCommand.APPLY, **PARTS)
class SetTask(NewTaskInput):
    """A task to create or replace; fields left out are as in a new task."""

    task: TaskName


class CreateThreadTask(RequestModel):
    """A task of a thread, with instructions for an agent."""

    thread_key: ThreadKey
    title: Annotated[Title, StringConstraints(min_length=1)]
    instructions: Annotated[Text, StringConstraints(min_length=1)]
    schedule: ScheduleInput | None = None
    policy: PolicyInput | None = None


@with_fields("", TaskCommand.EDIT, **PARTS)
class UpdateTask(TaskSelector, TaskInput):
    """Changes to a task; fields left out keep their value. A new rule replaces the old one."""

    schedule_name: TaskName = "default"

    @model_validator(mode="after")
    def _something(self) -> UpdateTask:
        if not self.model_fields_set - {"task", "space", "schedule_name"}:
            message = "give at least one field to change"
            raise ValueError(message)
        return self

"""Types of request fields, and lookup of tasks and spaces."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from rota.commands.context import RequestContext
from rota.errors import NotFound
from rota.flow.lookup import LINE_ADVICE, NAME_ADVICE, get_task
from rota.model.tasks import MAX_TITLE, Task
from rota.model.text import CONTROLS, INVISIBLE
from rota.rules.permissions import check_space, may_act_for
from rota.store.tasks import get_tasks
from rota.timing.durations import parse_duration

MAX_LISTED = 1_000
MAX_ID = 2**53 - 1
"""The largest integer that every JSON parser represents exactly."""
YEARS = (1900, 2999)
UNPRINTABLE = CONTROLS + INVISIBLE
"""Characters that names and titles may not contain, as part of a character class."""


@dataclass(frozen=True)
class TextFormat:
    """The format of a text: a pattern, and the advice for a text that does not match.

    The pattern is in the OpenAPI document, the advice in error messages.
    """

    pattern: str
    advice: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Check the text after the other validators."""
        fits = re.compile(self.pattern).fullmatch

        def check(text: str) -> str:
            if fits(text) is None:
                raise ValueError(self.advice)
            return text

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the pattern to the schema."""
        return {**handler(schema), "pattern": f"^{self.pattern}$"}


PLAIN = TextFormat(rf"[^{UNPRINTABLE}]*", LINE_ADVICE)


def _storable(text: str) -> str:
    if "\x00" in text:
        message = "must not contain NUL characters"
        raise ValueError(message)
    return text


def _finite(value: object) -> object:
    """Return a JSON value; refuse infinite numbers."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, float) and not math.isfinite(one):
            message = "contains a number that is too large"
            raise ValueError(message)
        left.extend(one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
    return value


def _integer(value: object) -> object:
    """Return an integral float as an integer, since JSON does not distinguish 5.0 from 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_integer)


def _instant(value: object) -> object:
    """Return an instant from its text; numbers are refused."""
    if not isinstance(value, str):
        return value
    if _INSTANT.fullmatch(value) is None:
        message = "use the form 2026-03-02T12:00:00Z"
        raise ValueError(message)
    instant = datetime.fromisoformat(value.upper())
    if not YEARS[0] <= instant.year <= YEARS[1]:
        message = f"use a year from {YEARS[0]} to {YEARS[1]}"
        raise ValueError(message)
    return instant


Id = Annotated[int, Field(ge=1, le=MAX_ID), WHOLE]
Limit = Annotated[int, Field(ge=1, le=MAX_LISTED), WHOLE]
SpaceName = Annotated[
    str,
    TextFormat(
        r"[a-z0-9][a-z0-9_.-]{0,63}",
        "use 1 to 64 lowercase letters, digits and _ . -, such as anna or team-2",
    ),
]
TaskName = Annotated[
    str,
    TextFormat(
        r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}",
        NAME_ADVICE,
    ),
]
NewTaskName = Annotated[TaskName, Field(json_schema_extra={"not": {"pattern": "^[0-9]+$"}})]
NAME = TextFormat(
    r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}",
    "use 1 to 128 letters, digits and _ . : -, such as daily-report",
)
TaskRef = Annotated[str, NAME]
ThreadKey = Annotated[
    str,
    TextFormat(
        rf"[A-Za-z0-9_]+:[^{UNPRINTABLE}\x20\xa0/]{{1,200}}",
        "use the form provider:route without spaces or slashes, such as telegram:chat:42",
    ),
]
Text = Annotated[
    str,
    StringConstraints(max_length=100_000),
    AfterValidator(_storable),
    Field(json_schema_extra={"not": {"pattern": r"\x00"}}),
]
Word = Annotated[str, StringConstraints(min_length=1, max_length=128), PLAIN]
Line = Annotated[Text, StringConstraints(min_length=1, max_length=10_000)]
Title = Annotated[str, StringConstraints(max_length=MAX_TITLE), PLAIN]
Length = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64),
    PLAIN,
    Field(description="A duration: `30s`, `10m`, `2h`, `1d` or ISO 8601."),
]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=64), PLAIN]
RunKey = Annotated[str, StringConstraints(min_length=1, max_length=256), PLAIN]


_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]
Json = Annotated[Any, AfterValidator(_finite)]


def parse_length(value: str | None, field: str) -> timedelta | None:
    """Parse an optional duration."""
    return None if value is None else parse_duration(value, field=field)


def resolve_space(context: RequestContext, space: str | None) -> str:
    """Return the given space, or the caller's own; raise if the caller may not act for it."""
    name = space or context.caller.space
    check_space(context.caller, name)
    return name


async def resolve_task(context: RequestContext, task: str, space: str | None) -> Task:
    """Return a task by name, or by id if no task has the number as its name."""
    try:
        return await get_task(context.store, context.caller, task, resolve_space(context, space))
    except NotFound as error:
        found = await _by_id(context, task, space)
        if found is not None:
            return found
        if error.noun == "space":
            raise NotFound("task", task, "see `rota task list`") from None
        raise


async def _by_id(context: RequestContext, task: str, space: str | None) -> Task | None:
    if not (task.isascii() and task.isdigit() and len(task) < len(str(MAX_ID))):
        return None
    for found in await context.store.read(get_tasks, [int(task)]):
        visible = may_act_for(context.caller, found.space) and space in {None, found.space}
        if found.deleted_at is None and visible:
            return found
    return None

"""What a request may say about when a task's work counts, and whether it begins."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rota.doors.commands.fields import Json, Text
from rota.doors.commands.shapes import Asked
from rota.doors.commands.wishes import Length
from rota.rules.checks import MOST_CHECKS, MOST_WORDS

Checks = Annotated[
    list[dict[str, Json]],
    Field(
        max_length=MOST_CHECKS,
        description="What must be true for a run to count as done; each check names one of "
        "file_newer, command, url, json_schema, min_length, tool_called, not_like.",
    ),
]


class GateAsked(Asked):
    """A program that decides whether the work begins; it ends with a line `{"wake": true}`."""

    command: list[Text] = Field(min_length=1, max_length=MOST_WORDS)
    timeout: Length | None = None


class NextCheckAsked(Asked):
    """How soon and how late an agent may have itself looked at again."""

    min: Length
    max: Length


def plain(value: object) -> Any:  # noqa: ANN401 - whatever a field holds
    """Return a value of a request as a record keeps it."""
    return value.model_dump(exclude_none=True) if isinstance(value, Asked) else value

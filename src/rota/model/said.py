"""What an agent said, read from its stream one thing at a time.

Every text in here is safe to show and to store: valid Unicode, without terminal sequences and
control characters, and bounded: 16,000 characters, a result as long as a line, 1 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rota.model.faults import FaultKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Words for people."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColouredText(Text):
    """Words that have colours, too, for whoever sees them on a terminal."""

    ansi: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far it is: percent from 0 to 100, where it is known."""

    percent: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool the agent uses; `summary` is one short line."""

    name: str
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was used up since the usage told before.

    `input` counts every token that went in, `cached` those of them that came from a cache. `cost`
    is in US dollars, None where the agent does not tell. With `of_session` the figures count the
    whole session, earlier attempts included.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = None
    model: str | None = None
    of_session: bool = False

    def __add__(self, other: Usage) -> Usage:
        """Return both together, with the newer model."""
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cost=sum(known) if known else None,
            model=other.model or self.model,
            of_session=self.of_session or other.of_session,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The agent's own name for this conversation, by which it can be resumed."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something a person must answer."""

    text: str
    options: tuple[str, ...] = ()
    context: str = ""
    default: str | None = None
    expires_in: float | None = None
    """In seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The answer: a text, or JSON text in `data`.

    A `silent` one is told to nobody. `next_check` is when it wants to look again, in its own words.
    Where the text begins with what was answered before, `own` is the rest of it.
    """

    text: str = ""
    data: str | None = None
    silent: bool = False
    next_check: str | None = None
    own: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What it has answered people so far, JSON text, before it goes on: not its last word."""

    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something went wrong; `until` is when a limit is lifted, where the agent tells."""

    kind: FaultKind
    detail: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A message that came while it worked, and that it has taken in."""

    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A line that it must be told to go on, or to say how it stands."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """It takes nothing more in, whatever lies on its input."""


Said: TypeAlias = (
    Text
    | Progress
    | ToolCall
    | Usage
    | Session
    | Question
    | Result
    | Answer
    | Fault
    | Taken
    | Wanted
    | Over
)

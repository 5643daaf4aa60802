"""What a task wants of its agent; stored with the task, so that nothing else ever moves it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MOST_TURNS = 10_000


class PromptBy(StrEnum):
    """How a program is given its instructions."""

    STDIN = "stdin"
    ARGV = "argv"
    LINES = "lines"
    """Line by line in JSON, and whatever is said in its thread while it works, too."""


class Output(StrEnum):
    """What counts as the result of a program that says none in a line of Rota's."""

    TEXT = "text"
    LAST_LINE = "last_line"
    LINES = "lines"


class SessionContext(StrEnum):
    """Which session a run goes on in: that of its group, the thread, or one of its own."""

    GROUP = "group"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The instructions, and every choice an agent leaves open; None leaves it to the agent.

    `tools` are the only ones it may use, `denied_tools` some it may not. `thinking` and
    `permission_mode` are the agent's own words. With the context `group` a run goes on in the
    session of its thread. `envelope` says whether everything the agent is told stands in the
    sections of a prompt or comes as it is, and `previous_result` that the last result is among it.
    The rest is for `command` alone: the words of the program, how it is told and read, and the
    names of further variables it may see.
    """

    instructions: str = ""
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    thinking: str | None = None
    permission_mode: str | None = None
    max_turns: int | None = None
    context: SessionContext = SessionContext.ISOLATED
    envelope: bool | None = None
    previous_result: bool = False
    program: tuple[str, ...] = ()
    prompt_by: PromptBy = PromptBy.STDIN
    output: Output = Output.TEXT
    variables: tuple[str, ...] = ()

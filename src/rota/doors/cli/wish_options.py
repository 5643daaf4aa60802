"""The options of a task that are its wishes to its agent, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rota.doors.cli.desk import NO_MORE, Record
from rota.doors.cli.task_options import parted
from rota.doors.cli.values import maybe_whole

MOST_TURNS = 10_000

Text = str | None
Several = list[str] | None

Model = Annotated[Text, typer.Option("--model", metavar="NAME", help="Agent: its model.")]
FallbackModel = Annotated[
    Several,
    typer.Option("--fallback-model", metavar="NAME", help="Agent: models to fall back on."),
]
Tool = Annotated[
    Several, typer.Option("--tool", metavar="NAME", help="Agent: the only tools it may use.")
]
DenyTool = Annotated[
    Several, typer.Option("--deny-tool", metavar="NAME", help="Agent: tools it may not use.")
]
Thinking = Annotated[
    Text, typer.Option("--thinking", metavar="WORD", help="Agent: how hard to think, 'high'.")
]
PermissionMode = Annotated[
    Text, typer.Option("--permission-mode", metavar="WORD", help="Agent: what it may do unasked.")
]
MaxTurns = Annotated[
    Text, typer.Option("--max-turns", metavar="N", help="Agent: at most so many turns.")
]
Context = Annotated[
    Text,
    typer.Option(
        "--context",
        metavar="WORD",
        help="Agent: runs go on in the thread's session, group, or begin anew [isolated].",
    ),
]
Envelope = Annotated[
    bool | None,
    typer.Option("--envelope/--plain", help="Agent: whether its prompt has sections."),
]
PreviousResult = Annotated[
    bool | None,
    typer.Option(
        "--previous-result/--no-previous-result",
        help="Agent: its prompt tells the last result [no].",
    ),
]
Answers = Annotated[
    bool | None,
    typer.Option("--answers/--no-answers", help="Agent: it answers what is said in its thread."),
]
Phrases = Annotated[
    bool | None,
    typer.Option("--phrases/--no-phrases", help="Agent: its answer may ask in phrases [no]."),
]
PromptBy = Annotated[
    Text,
    typer.Option("--prompt-by", metavar="WAY", help="Agent command: stdin, argv or lines [stdin]."),
]
Result = Annotated[
    Text,
    typer.Option(
        "--output", metavar="KIND", help="Program: its result is text, last_line or lines."
    ),
]
FIELDS = {
    "model": "model",
    "fallback_model": "fallback_models",
    "tool": "tools",
    "deny_tool": "denied_tools",
    "thinking": "thinking",
    "permission_mode": "permission_mode",
    "session_context": "context",
    "envelope": "envelope",
    "previous_result": "previous_result",
    "answers": "answers",
    "phrases": "phrases",
    "prompt_by": "prompt_by",
    "output": "output",
}


def wishes_of(given: Mapping[str, Any]) -> Record:
    """Return what the options ask of the agent; what they leave out is not in it."""
    left, off = parted(given)
    said = {field: left[name] for name, field in FIELDS.items() if left.get(name) is not None}
    said |= {field: NO_MORE for name, field in FIELDS.items() if name in off}
    if "max_turns" in off:
        return {**said, "max_turns": NO_MORE}
    turns = maybe_whole("max-turns", left.get("max_turns"), 1, MOST_TURNS)
    return said if turns is None else {**said, "max_turns": turns}

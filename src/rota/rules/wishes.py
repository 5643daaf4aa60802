"""Wishes: what a task's record says to its agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rota.model.tasks import Task, TaskKind
from rota.model.wishes import Output, PromptBy, SessionContext, Wish

SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")
WISHES = (
    "model",
    "fallback_models",
    "tools",
    "denied_tools",
    "thinking",
    "permission_mode",
    "max_turns",
    "context",
    "envelope",
    "previous_result",
    "answers",
    "phrases",
    "prompt_by",
    "output",
)
"""What a record may say beside the agent, its instructions and the words of a program."""
CHEAPER = "cheaper_model"
"""What a record calls the model that a run may go on with when its budget is used up."""


def wish_in(spec: Mapping[str, Any], instructions: str | None = None) -> Wish:
    """Return everything a record leaves to its agent, with other instructions if there are any."""
    own = str(spec.get("instructions", ""))
    return Wish(
        instructions=own if instructions is None else instructions,
        model=spec.get("model"),
        fallback_models=tuple(spec.get("fallback_models") or ()),
        tools=None if spec.get("tools") is None else tuple(spec["tools"]),
        denied_tools=tuple(spec.get("denied_tools") or ()),
        thinking=spec.get("thinking"),
        permission_mode=spec.get("permission_mode"),
        max_turns=spec.get("max_turns"),
        context=context_in(spec),
        envelope=spec.get("envelope"),
        previous_result=bool(spec.get("previous_result", False)),
        program=tuple(spec.get("command") or ()),
        prompt_by=PromptBy(spec.get("prompt_by") or PromptBy.STDIN),
        output=Output(spec.get("output") or Output.TEXT),
    )


def context_in(spec: Mapping[str, Any]) -> SessionContext:
    """Return which session a record wants its runs to go on in."""
    return SessionContext(spec.get("context") or SessionContext.ISOLATED)


def is_in_conversation(task: Task) -> bool:
    """Whether the runs of a task go on in the session of their thread, one after the other."""
    return task.kind is TaskKind.AGENT and context_in(task.spec) is SessionContext.GROUP


def is_session(name: str) -> bool:
    """Whether a session that an agent has told can be given back to it among its words."""
    return SESSION.fullmatch(name) is not None

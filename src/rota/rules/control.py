"""Control: the actions that Rota does itself, once a person has approved exactly that.

Who does an action is part of what is shown and hashed. No agent can say it: it stands beside the
action, where only Rota writes. What is asked for in any other way is done by whoever asks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from rota.errors import Conflict
from rota.model.instants import from_micros
from rota.model.runs import Question
from rota.rules.approvals import APPROVAL

ROTA = "rota"
"""Who does it."""


class ControlAction(StrEnum):
    """What Rota can be asked to do."""

    ENQUEUE_TASK = "enqueue_task"
    ENQUEUE_AGENTIC_TASK = "enqueue_agentic_task"
    KILL_TASK_RUN = "kill_task_run"
    QUERY_CENTRAL_DB = "query_central_db"


_ACTIONS: frozenset[str] = frozenset(ControlAction)


class Control(NamedTuple):
    """An action of Rota's own, what it is about, and until when it may be done."""

    action: ControlAction
    payload: object
    expires_at: datetime | None


def doer_of(action: str) -> str | None:
    """Return who does an action that is asked for by name, if not whoever asks."""
    return ROTA if action in _ACTIONS else None


def is_control(action: str | None) -> bool:
    """Tell whether an action, as it was shown, is one that Rota does itself."""
    try:
        shown = json.loads(action or "null")
    except ValueError:
        return False
    return isinstance(shown, dict) and shown.get("by") == ROTA


def control_of(question: Question) -> Control | None:
    """Return what Rota does itself if a question is approved; None if it does nothing."""
    if question.kind != APPROVAL or question.action is None or not is_control(question.action):
        return None  # whoever asked does it
    request = json.loads(question.action)["action"]
    return Control(ControlAction(request["action"]), request.get("payload"), expiry_in(request))


def expiry_in(request: Mapping[str, Any]) -> datetime | None:
    """Return until when a request may be granted, if it says so; without a zone it means UTC."""
    try:
        said = datetime.fromisoformat(str(request["expires_at"]))
        return said.replace(tzinfo=UTC) if said.tzinfo is None else said.astimezone(UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def check_in_time(control: Control, question: Question, now: int) -> None:
    """Refuse what has run out by its own words, whatever its question says."""
    if control.expires_at is not None and from_micros(now) >= control.expires_at:
        message = f"the action in question {question.id} has run out: it is done no more"
        raise Conflict(message)

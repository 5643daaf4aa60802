"""Ids, distinguished by the type checker."""

from __future__ import annotations

from typing import NewType

SpaceId = NewType("SpaceId", int)
TaskId = NewType("TaskId", int)
ScheduleId = NewType("ScheduleId", int)
RunId = NewType("RunId", int)
QuestionId = NewType("QuestionId", int)
DeliveryId = NewType("DeliveryId", int)
EventId = NewType("EventId", int)
SessionId = NewType("SessionId", int)
MessageId = NewType("MessageId", int)
ThreadId = NewType("ThreadId", int)
WorkerId = NewType("WorkerId", str)
Epoch = NewType("Epoch", int)

TRACE_DIGITS = 8


def trace_id(incarnation: str, run_id: int) -> str:
    """Return the name of a run in logs: the same for all its attempts, unique over databases."""
    return f"{incarnation[:TRACE_DIGITS]}-{run_id}"

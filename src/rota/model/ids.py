"""Ids, told apart by the type checker."""

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
    """Return what a run is called in every log: the same over all attempts, unlike any other's."""
    return f"{incarnation[:TRACE_DIGITS]}-{run_id}"

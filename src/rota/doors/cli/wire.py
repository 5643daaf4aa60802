"""Values as the JSON of the command line: stable keys, ISO 8601 instants, lengths in seconds."""

from __future__ import annotations

import json
from typing import Any

from rota.doors.cli.show import iso
from rota.errors import RotaError
from rota.model.codec import to_json
from rota.model.deliveries import Delivery
from rota.model.events import Event
from rota.model.plans import StoredSchedule
from rota.model.runs import Attempt, Question, Run
from rota.model.spaces import Limit, Space
from rota.model.tasks import Task
from rota.timing.rules import from_record
from rota.timing.words import describe


def task_record(task: Task, schedules: list[StoredSchedule]) -> dict[str, Any]:
    """Return a task with its schedules."""
    return {
        "name": task.name,
        "space": task.space,
        "title": task.title,
        "kind": task.kind.value,
        "route": task.route,
        "call": task.spec.get("call"),
        "enabled": task.enabled,
        "paused_until": iso(task.paused_until),
        "disabled_reason": task.disabled_reason,
        "failures": task.failures,
        "origin": task.origin,
        "after": None
        if task.after is None
        else {"task": task.after.task, "on": task.after.on.value},
        "policy": to_json(task.policy),
        "schedules": [schedule_record(schedule) for schedule in schedules],
        "created_at": iso(task.created_at),
        "updated_at": iso(task.updated_at),
    }


def schedule_record(schedule: StoredSchedule) -> dict[str, Any]:
    """Return a schedule with its rule and the rule in words."""
    record = json.loads(schedule.rule)
    return {
        "name": schedule.name,
        "words": words_of(schedule),
        "state": schedule.state.value,
        "note": schedule.note,
        "next_at": iso(schedule.next_at),
        "rule": record,
    }


def words_of(schedule: StoredSchedule) -> str:
    """Return when a schedule runs, in words."""
    try:
        return describe(from_record(json.loads(schedule.rule)))
    except RotaError as fault:  # set aside by the planner; the rest of the answer still stands
        return f"cannot be read: {fault}"


def zone_of(schedule: StoredSchedule) -> str:
    """Return the zone of a schedule's rule."""
    return str(json.loads(schedule.rule)["timezone"])


def run_record(run: Run) -> dict[str, Any]:
    """Return a run."""
    return {
        "id": run.id,
        "task": run.task,
        "space": run.space,
        "state": run.state.value,
        "place": None if run.place is None else run.place.value,
        "source": run.source.value,
        "pool": run.pool.value,
        "priority": run.priority,
        "route": run.route,
        "attempt": run.epoch,
        "cause": run.cause.value,
        "retries": run.retries,
        "losses": run.losses,
        "created_at": iso(run.created_at),
        "available_at": iso(run.available_at),
        "started_at": iso(run.started_at),
        "finished_at": iso(run.finished_at),
        "expires_at": iso(run.expires_at),
        "cancel_requested_at": iso(run.cancel_requested_at),
        "stuck": run.stuck,
        "slot_at": iso(run.slot_at),
        "slot_key": run.slot_key,
        "upstream": run.upstream_id,
        "key": run.key,
        "payload": json.loads(run.payload),
        "result": None if run.result is None else json.loads(run.result),
        "error_code": run.error_code,
        "error": run.error,
    }


def attempt_record(attempt: Attempt) -> dict[str, Any]:
    """Return an attempt."""
    return {
        "number": attempt.number,
        "cause": attempt.cause.value,
        "worker": attempt.worker,
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        "outcome": attempt.outcome,
        "error": attempt.error,
    }


def question_record(question: Question) -> dict[str, Any]:
    """Return a question."""
    return {
        "id": question.id,
        "run": question.run_id,
        "kind": question.kind,
        "question": question.question,
        "context": question.context,
        "options": list(question.options),
        "asked_at": iso(question.asked_at),
        "expires_at": iso(question.expires_at),
        "answered_at": iso(question.answered_at),
        "answer": question.answer,
        "answered_by": question.answered_by,
    }


def event_record(event: Event) -> dict[str, Any]:
    """Return an event."""
    return {"id": event.id, "at": iso(event.at), "name": event.name.value, "data": event.data}


def delivery_record(delivery: Delivery) -> dict[str, Any]:
    """Return a delivery."""
    return {
        "id": delivery.id,
        "run": delivery.run_id,
        "channel": delivery.channel,
        "target": delivery.target,
        "body": delivery.body,
        "state": delivery.state.value,
        "tries": delivery.tries,
        "created_at": iso(delivery.created_at),
        "sent_at": iso(delivery.sent_at),
        "error": delivery.error,
    }


def space_record(space: Space) -> dict[str, Any]:
    """Return a space."""
    return {
        "name": space.name,
        "role": space.role.value,
        "timezone": space.timezone,
        "created_at": iso(space.created_at),
    }


def limit_record(limit: Limit, key: str) -> dict[str, Any]:
    """Return a limit, with its key in words."""
    period = None if limit.period is None else limit.period.total_seconds()
    return {
        "scope": limit.scope.value,
        "key": key,
        "cap": limit.cap,
        "rate": limit.rate,
        "period": period,
    }

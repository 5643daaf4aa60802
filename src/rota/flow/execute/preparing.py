"""Preparing: what a task wants of its agent, and what the agent is told of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rota.flow.execute.scripts import SCRIPT, local_timeout, profile_of, script_wish, thread_of
from rota.model.messages import READER
from rota.model.programs import MIB, Bounds
from rota.model.tasks import TaskKind
from rota.model.wishes import Wish
from rota.ports.runner import Assignment
from rota.rules.wishes import wish_in

LONGEST_VARIABLE = 100 * 1024
"""A variable of an environment may have 128 KiB on Linux; a longer payload is read from a file."""
USUAL = Bounds(hard_seconds=30 * 60.0)
"""What holds for a program whose task says nothing."""
IDLE_FIRST = 30.0
"""How much later than an idle timeout a hard one comes that nobody has asked for."""


def agent_of(assignment: Assignment, usual: str) -> str:
    """Return the name of the agent that a task wants."""
    if assignment.task.kind is TaskKind.SCRIPT:
        return SCRIPT
    return str(assignment.task.spec.get("agent") or usual)


def wish_of(assignment: Assignment) -> Wish:
    """Return everything a task leaves to its agent, with what this run was given.

    A script reads the run's payload, as JSON, on its input.
    """
    spec: Mapping[str, Any] = assignment.task.spec
    if assignment.task.kind is TaskKind.SCRIPT:
        return script_wish(spec, assignment.lease.payload)
    parts = (str(spec.get("instructions", "")), given_to(assignment))
    return wish_in(spec, "\n\n".join(part for part in parts if part))


def given_to(assignment: Assignment) -> str:
    """Return what a run of an agent was given beside its instructions, as text."""
    payload = json.loads(assignment.lease.payload)
    if payload is None or is_reader(assignment):
        return ""
    if isinstance(payload, dict) and isinstance(payload.get("input"), str):
        return str(payload["input"])
    return json.dumps(payload, ensure_ascii=False)


def is_reader(assignment: Assignment) -> bool:
    """Whether a run was queued to read what was said in its thread."""
    lease = assignment.lease
    return lease.thread is not None and json.loads(lease.payload) == READER


def ids_of(assignment: Assignment, schedule: str | None = None) -> dict[str, str]:
    """Return what every program is told of the run it works for, and of the schedule it is for."""
    lease, task = assignment.lease, assignment.task
    told = {
        "ROTA_RUN_ID": str(lease.run_id),
        "ROTA_ATTEMPT": str(lease.epoch),
        "ROTA_TASK": task.name,
        "ROTA_TASK_ID": str(task.id),
        "ROTA_SPACE": task.space,
        "ROTA_TRACE_ID": assignment.trace_id,
        "ROTA_PROFILE": profile_of(assignment, schedule),
    }
    thread = thread_of(assignment)
    if thread is not None:
        told["ROTA_THREAD_KEY"] = thread
    if lease.slot_key is not None:
        told["ROTA_SLOT"] = lease.slot_key
    if schedule is not None:
        told["ROTA_SCHEDULE"] = schedule
    answers = json.dumps(assignment.answers, ensure_ascii=False)
    if assignment.answers and len(answers.encode()) <= LONGEST_VARIABLE:
        told["ROTA_ANSWERS"] = answers
    if len(lease.payload.encode()) <= LONGEST_VARIABLE:
        told["ROTA_PAYLOAD"] = lease.payload
    return told


def bounds_of(assignment: Assignment, usual: Bounds = USUAL, config: str | None = None) -> Bounds:
    """Return how much of everything an attempt may use: as its task says, else as usual.

    How long it may take is said by the task, or else by its local config.
    """
    policy, spec = assignment.task.policy, assignment.task.spec
    idle = policy.idle_timeout
    hard = usual.hard_seconds
    said = policy.timeout or local_timeout(config)
    if said is not None:
        hard = said.total_seconds()
    elif hard is not None and idle is not None:
        hard = max(hard, idle.total_seconds() + IDLE_FIRST)
    memory, processes = _whole(spec, "memory_mib"), _whole(spec, "processes")
    cpus: Any = spec.get("cpus")
    return replace(
        usual,
        hard_seconds=hard,
        idle_seconds=usual.idle_seconds if idle is None else idle.total_seconds(),
        grace_seconds=usual.grace_seconds if policy.grace is None else policy.grace.total_seconds(),
        memory_bytes=usual.memory_bytes if memory is None else memory * MIB,
        processes=usual.processes if processes is None else processes,
        cpus=usual.cpus if cpus is None else float(cpus),
    )


def _whole(spec: Mapping[str, Any], name: str) -> int | None:
    said = spec.get(name)
    return None if said is None else int(said)

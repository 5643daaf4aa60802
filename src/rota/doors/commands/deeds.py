"""Deeds: what a person approves and Rota does itself, by the commands that people have for it.

It is done with no more rights than the space of the run that asks has, and no more than whoever
approves. What they themselves may not do is refused to them, and stays open for somebody who may.
What cannot be done is an outcome, too: the run that asked is told why.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rota.doors.commands.errands import NewRun, batch_of
from rota.doors.commands.shapes import OneRun
from rota.doors.commands.sql import SqlGiven, SqlWanted, ask_sql
from rota.doors.kit.faults import fault_record
from rota.doors.kit.office import Office
from rota.doors.kit.perform import refused
from rota.errors import Invalid, Refused, SqlRefused
from rota.flow.define import runs
from rota.model.deeds import Deed
from rota.model.keys import KeyScope
from rota.model.runs import Run
from rota.rules.control import Control, ControlAction
from rota.rules.permission import check_scope, within

Model = TypeVar("Model", bound=BaseModel)

LONGEST_OUTCOME = 32 * 1024
"""How many bytes the answer to a query may have that is told to the run that asked."""
NAMES = {"task_id": "task", "run_id": "run", "tool_access": "tools"}
"""Other words for fields, which agents use that asked elsewhere before."""
SECONDS = "timeout_sec"
OF_A_TASK = ("task", "payload", "key", "at", "timezone", "priority")


async def deed_of(office: Office, run: Run, control: Control) -> Deed:
    """Return what Rota does for a run, as it may be done for whoever approves it."""
    scope, decide = _DECIDING[control.action]
    check_scope(office.caller, scope)
    space = await office.store.find_space(run.space)
    inner = replace(office, caller=within(office.caller, space.name, space.role))
    try:
        return await decide(inner, run, _fields(control.payload))
    except Refused as fault:
        return Deed(known=json.dumps({"ok": False, **fault_record(fault)}, ensure_ascii=False))


async def _run_of_task(office: Office, run: Run, said: dict[str, Any]) -> Deed:  # noqa: ARG001
    for name in said:
        if name not in OF_A_TASK:
            raise Invalid("payload", name, f"name a task, and if wanted {', '.join(OF_A_TASK[1:])}")
    return Deed(queues=await batch_of(office, _read(NewRun, {"task": None, **said})))


async def _run_of_agent(office: Office, run: Run, said: dict[str, Any]) -> Deed:  # noqa: ARG001
    return Deed(queues=await batch_of(office, _read(NewRun, {"agent": said})))


async def _end(office: Office, run: Run, said: dict[str, Any]) -> Deed:
    store, asked = office.store, _read(OneRun, said)
    found = await runs.find_run(store, office.caller, asked.run)
    why = f"cancelled by {office.caller.name}, as run {run.id} asked"
    return Deed(ends=await runs.end_of(store, found, why, office.chance))


async def _query(office: Office, run: Run, said: dict[str, Any]) -> Deed:  # noqa: ARG001
    return Deed(known=_told(await ask_sql(office, _read(SqlWanted, said))))


_Deciding = Callable[[Office, Run, dict[str, Any]], Awaitable[Deed]]
_DECIDING: dict[ControlAction, tuple[KeyScope, _Deciding]] = {
    ControlAction.ENQUEUE_TASK: (KeyScope.RUN, _run_of_task),
    ControlAction.ENQUEUE_AGENTIC_TASK: (KeyScope.RUN, _run_of_agent),
    ControlAction.KILL_TASK_RUN: (KeyScope.RUN, _end),
    ControlAction.QUERY_CENTRAL_DB: (KeyScope.SQL, _query),
}


def _fields(payload: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent has written
    """Return what an action is about, in the words of the commands."""
    if not isinstance(payload, dict):
        raise Invalid("payload", payload, "give an object with what the action is about")
    told: dict[str, Any] = payload
    said = {NAMES.get(name, name): value for name, value in told.items()}
    if SECONDS in said:
        said["timeout"] = f"{said.pop(SECONDS)}s"
    if isinstance(said.get("task"), int):
        said["task"] = str(said["task"])
    return said


def _read(takes: type[Model], said: dict[str, Any]) -> Model:
    try:
        return takes.model_validate_json(json.dumps(said), strict=True)
    except ValidationError as fault:
        raise refused(fault) from None


def _told(found: SqlGiven) -> str:
    """Return a table as JSON; rows that are too much are left off, and it says so."""
    rows = found.rows
    while True:
        truncated = found.truncated or len(rows) < len(found.rows)
        record = {"ok": True, "columns": found.columns, "rows": rows, "truncated": truncated}
        text = json.dumps(record, ensure_ascii=False)
        if len(text.encode()) <= LONGEST_OUTCOME:
            return text
        if not rows:
            raise SqlRefused("the names of the columns are too long: name them shorter")
        rows = rows[: len(rows) // 2]

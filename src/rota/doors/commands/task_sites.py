"""What a request says about where a task's programs run: read, checked and tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.doors.commands.task_requests import ROOM, Work
from rota.doors.kit.office import Office
from rota.errors import Invalid, Unavailable
from rota.model.sites import Held
from rota.model.spaces import Role
from rota.model.tasks import Task, TaskKind
from rota.rules.checks import FIELD as CHECKS
from rota.rules.checks import patterns_in
from rota.rules.done import DONE
from rota.rules.programs import check_folder
from rota.rules.sites import FIELDS, site_of
from rota.rules.wishes import WISHES


def changed_spec(stood: Mapping[str, Any], asked: Work) -> dict[str, Any]:
    """Return a task's spec with what was asked for, and without what was asked to be nothing.

    An executor says its whole site anew.
    """
    anew = FIELDS if "executor" in asked.model_fields_set else ()
    dropped = {name for name in (*WISHES, *ROOM, *DONE) if name in asked.model_fields_set}
    kept = {name: stood[name] for name in stood if name not in dropped and name not in anew}
    return {**kept, **asked.spec()}


async def check_patterns(office: Office, spec: Mapping[str, Any], space: str) -> None:
    """Refuse checks whose patterns are no regular expressions, or take too long to compile."""
    told = patterns_in(spec)
    if not told or office.probes is None:
        return
    fault = await office.probes.check_patterns(space, [pattern for _, pattern in told])
    if fault is not None:
        n, why = fault
        field, pattern = (CHECKS, len(told)) if n is None else told[n]
        raise Invalid(field, pattern, why)


async def check_site(
    office: Office, kind: TaskKind, spec: Mapping[str, Any], asked: Work, space: str
) -> None:
    """Refuse a site that the task may not have, or that it names and cannot be had here.

    What a task leaves to its space is not tried: it may run on another machine, or later.
    """
    touched = [name for name in ROOM if name in asked.model_fields_set]
    said = [name for name in touched if getattr(asked, name) is not None]
    if not touched or (kind is TaskKind.PYTHON and not said):
        return
    if kind is TaskKind.PYTHON:
        raise Invalid(said[0], getattr(asked, said[0]), "a callable runs within Rota: leave it out")
    if spec.get("folder") is not None:
        check_folder(spec["folder"])
    role = (await office.store.find_space(space)).role
    site = site_of(spec, role)
    if office.sites is None:
        return
    if any(name in FIELDS for name in said):
        await office.sites.admit(site, role)
    chosen = spec.get("executor") and spec.get("cpus")
    if chosen and (await office.sites.holds(site))["cpus"] is Held.NOT:
        message = f"{site.executor} cannot bound processors here: leave cpus out; see `rota doctor`"
        raise Unavailable(message)


async def lacks_of(office: Office, task: Task, role: Role) -> Sequence[str]:
    """Return what a task names and the daemon's machine does not have; nobody else knows."""
    if office.sites is None or office.local:
        return []
    return await office.sites.lacks(task, role)

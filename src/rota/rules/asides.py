"""Asides: what of an attempt's marks and memories counts, once it is known how its run goes on."""

from __future__ import annotations

from dataclasses import replace

from rota.model.asides import NOTHING, Aside
from rota.model.checks import Mark
from rota.model.outcomes import Report, Succeeded
from rota.model.states import RunState


def is_hushed(report: Report) -> bool:
    """Whether a success is delivered to nobody."""
    silent = isinstance(report.outcome, Succeeded) and report.outcome.silent
    return silent or (report.aside is not None and report.aside.mark is not None)


def is_quiet(report: Report) -> bool:
    """Whether the gate of an attempt woke nobody."""
    return report.aside is not None and report.aside.mark is Mark.QUIET


def aside_of(state: RunState, report: Report) -> Aside | None:
    """Return what is recorded beside the move of a run to a state.

    Only a success is marked, remembered and looked at again; only what has ended was checked.
    """
    told = report.aside or NOTHING
    if state is RunState.SUCCEEDED:
        mark = told.mark or (Mark.SILENT if is_hushed(report) else None)
        made = replace(told, mark=mark)
    else:
        ended = state is RunState.FAILED
        checked = told.checked if ended else None
        made = Aside(checks=told.checks, checked=checked, stopped=told.stopped)
    return None if made == NOTHING else made

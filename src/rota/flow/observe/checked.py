"""Checked: what is known of a run that calls itself done."""

from __future__ import annotations

from rota.model.checks import Checked, Mark
from rota.model.runs import Run
from rota.model.states import RunState

WORDS = {
    Checked.VERIFIED: "verified: its checks hold",
    Checked.UNVERIFIED: "unverified: its task has no checks",
    Checked.CONTRADICTED: "contradicted: a check does not hold",
}
CHECKABLE = frozenset({"agent", "script"})
"""The routes of work that can have checks."""
MARKS = {
    Mark.QUIET: "quiet: its gate woke nobody",
    Mark.SILENT: "silent: its result was for nobody",
}


def checked_of(run: Run) -> Checked | None:
    """Return whether a run that ended is verified; a success without checks is not.

    What came to nothing by itself, or woke nobody, is neither; nor is a callable, which has none.
    """
    if run.checked is not None or run.state is not RunState.SUCCEEDED:
        return run.checked
    told = run.route in CHECKABLE and run.mark is not Mark.QUIET
    return Checked.UNVERIFIED if told else None

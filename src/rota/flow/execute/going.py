"""Going: one attempt that is going on here."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.flow.execute.checking import Halting
from rota.flow.execute.preparing import USUAL
from rota.model.keeping import Kept
from rota.ports.runner import Assignment


@dataclass
class Going:
    """One attempt that is going on here, for a worker that holds it.

    `written` says that it may be on record, so that the next process carries it on; `resting`,
    that it waits between two tries, with no program of it alive. `gate` is what its gate has said,
    as JSON, and empty while that is not known; `budgeted` whether anything caps what it may use.
    """

    assignment: Assignment
    holder: str
    kept: Kept | None
    written: bool
    grace: float = USUAL.grace_seconds
    stopped: bool = False
    resting: bool = False
    gate: str | None = None
    budgeted: bool | None = None
    halting: Halting = field(default_factory=Halting)

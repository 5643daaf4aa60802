"""Going: one attempt that is going on here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rota.flow.execute.checking import Halting
from rota.flow.execute.preparing import USUAL
from rota.flow.execute.reporting import stopped
from rota.model.beats import Sign
from rota.model.keeping import Kept
from rota.model.outcomes import Report
from rota.ports.runner import Assignment


@dataclass
class Going:
    """One attempt that is going on here, for a worker that holds it.

    `written` says that it may be on record, so that the next process carries it on; `resting`,
    that it waits between two tries, with no program of it alive; `left`, that it was let go, so
    that its program goes on when it is cut off. `gate` is what its gate has said, as JSON, and
    empty while that is not known; `budgeted` whether anything caps what it may use. `away` is for
    how many microseconds no process was there while no program of it was alive. `begun` is whether
    a program of it may have read what it was given.
    """

    assignment: Assignment
    holder: str
    kept: Kept | None
    written: bool
    grace: float = USUAL.grace_seconds
    stopped: bool = False
    resting: bool = False
    left: bool = False
    gate: str | None = None
    budgeted: bool | None = None
    halting: Halting = field(default_factory=Halting)
    away: int = 0
    begun: bool = field(init=False)

    def __post_init__(self) -> None:
        """Take what is carried on for begun, until its end tells."""
        self.begun = self.written

    def sign(self) -> Sign:
        """Return what there is to see of it while none of its programs is heard."""
        lease = self.assignment.lease
        between = "resting" if self.resting else "concluding" if self.begun else "preparing"
        return Sign(run_id=lease.run_id, epoch=lease.epoch, state=between)

    def reported(self, report: Report) -> Report:
        """Return the report of what it came to, and whether it began: nobody else knows."""
        unbegun = not self.begun and self.assignment.lease.thread is not None
        return replace(report, unbegun=True) if unbegun else report

    def ended(self, report: Report) -> Report:
        """Return its report: one that somebody wanted stopped, and that has ended, was."""
        return self.reported(stopped(report) if self.stopped else report)

    def starts(self, now: int) -> bool:
        """Tell whether a program is to be started; one that waited goes on as if never left alone.

        What was written down and never begun was to begin at once.
        """
        if self.kept is None or self.kept.until is None:
            return self.kept is None
        late = max(0, now - self.kept.until)
        self.kept = replace(self.kept, began=self.kept.began + late)
        self.away += late
        return True

    def told(self, report: Report) -> Report:
        """Return a report that knows for how long nobody was there."""
        return replace(report, away=report.away + self.away) if self.away else report

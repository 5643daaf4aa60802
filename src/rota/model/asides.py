"""What goes with the end of an attempt beside its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.checks import Checked, Mark
from rota.model.runs import RunBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """What Rota found out about an attempt, and what the attempt left to be remembered.

    `checks` is what its checks found, as JSON. `remembered` is what its gate wants to find again,
    as JSON, and `next_check` the run that looks again; both count only with a success.
    """

    checks: str | None = None
    checked: Checked | None = None
    mark: Mark | None = None
    remembered: str | None = None
    next_check: RunBatch | None = None
    stopped: str | None = None
    """Which budget ended it."""


NOTHING = Aside()
"""Nothing beside the outcome."""

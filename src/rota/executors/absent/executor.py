"""Ends the runs of routes that nobody here can serve, at once and with a reason."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.outcomes import Failed, Report
from rota.ports.executor import Assignment

REASONS = {
    "agent": ("agent_unavailable", "no agent is installed here"),
    "script": ("script_unavailable", "programs cannot be run here"),
}


class Absent:
    """Serves routes by refusing their runs; a retry would meet the same."""

    keeps = False

    def __init__(self, routes: Sequence[str] = tuple(REASONS)) -> None:
        self._routes = list(routes)

    def routes(self) -> Sequence[str]:
        """Return the routes it refuses."""
        return self._routes

    def waited(self, run_id: int) -> float | None:  # noqa: ARG002 - nothing waits here
        """Nothing waits here."""
        return 0.0

    def let_go(self, run_id: int) -> None:
        """Nothing goes on without this process."""

    async def run(self, assignment: Assignment) -> Report:
        """Refuse a run."""
        code, message = REASONS[assignment.lease.route]
        return Report(outcome=Failed(code=code, message=message, retryable=False))

"""What answers questions in SQL."""

from __future__ import annotations

from typing import Protocol

from rota.model.inquiries import Inquiry, Table


class Inquirer(Protocol):
    """Answers read-only queries over the documented views, beside the work and never in its way.

    Raises SqlRefused for what may not be asked, SqlTimeout for what takes too long, SqlFailed for
    what went wrong underway, Busy when too many ask at once. No error quotes anybody's rows.
    """

    async def ask(self, inquiry: Inquiry) -> Table:
        """Return what a query finds, within bounds of time, rows and bytes."""

    async def close(self) -> None:
        """Let go of what answering needed."""

"""Whether the database took the last write, and why not."""

from __future__ import annotations

from rota.errors import Stale, Unavailable


class LastWrite:
    """What came of the newest write that shows whether writing is possible."""

    def __init__(self) -> None:
        self.refused: str | None = None
        """Why it was refused; None if it was done, or there was none."""

    def failed(self, fault: BaseException) -> None:
        """Note how a write ended; one that was only overtaken says nothing of the database."""
        if isinstance(fault, Unavailable) and not isinstance(fault, Stale):
            self.refused = str(fault)

    def done(self) -> None:
        """Note that something was written."""
        self.refused = None

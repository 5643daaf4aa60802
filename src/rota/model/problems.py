"""Problems: what a part of Rota currently cannot do."""

from __future__ import annotations

from typing import NamedTuple

UNWRITABLE = "store_unwritable"
DISK_FULL = "disk_full"
UNREADABLE = "store_unreachable"
FAILING = "service_failing"
LATE = "planner_late"


class Problem(NamedTuple):
    """Something that currently fails: a stable code and a sentence that everyone may read.

    The detail names files, hosts and errors; only the main space may read it.
    """

    code: str
    sentence: str
    detail: str = ""

    def whole(self) -> str:
        """Return the sentence with its detail."""
        return f"{self.sentence}: {self.detail}" if self.detail else self.sentence

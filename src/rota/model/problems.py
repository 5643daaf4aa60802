"""What a part of Rota cannot do at the moment."""

from __future__ import annotations

from typing import NamedTuple

UNWRITABLE = "store_unwritable"
DISK_FULL = "disk_full"
UNREADABLE = "store_unreachable"
FAILING = "service_failing"
LATE = "planner_late"


class Problem(NamedTuple):
    """Something that cannot be done; the code is stable, everybody may know the sentence.

    The detail names files, hosts and faults: it is for people of the main space.
    """

    code: str
    sentence: str
    detail: str = ""

    def whole(self) -> str:
        """Return the sentence with its detail."""
        return f"{self.sentence}: {self.detail}" if self.detail else self.sentence

"""Terms: how long what a home keeps goes on without it."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple


class Terms(NamedTuple):
    """How long keepers go on without hearing from this home.

    `doubt` is for slack, grace and clocks: how much later than promised one may really be gone.
    """

    seconds: float = 15 * 60.0
    doubt: float = 180.0
    renew: float = 10.0

    @property
    def promise(self) -> timedelta:
        """How long after its last renewal a home's keepers may still be alive."""
        return timedelta(seconds=self.seconds + self.doubt)


TERMS = Terms()

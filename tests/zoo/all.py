"""The zoo, whole."""

from __future__ import annotations

from tests.zoo import leases, planning, settling, timekeeping
from tests.zoo.planting import BUGS

__all__ = ["BUGS", "leases", "planning", "settling", "timekeeping"]

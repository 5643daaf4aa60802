"""The zoo, whole."""

from __future__ import annotations

from tests.zoo import keeping, leases, planning, settling, timekeeping
from tests.zoo.planting import BUGS

__all__ = ["BUGS", "keeping", "leases", "planning", "settling", "timekeeping"]

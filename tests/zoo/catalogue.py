"""Every bug of the zoo."""

from __future__ import annotations

from tests.zoo import kept_attempts, leases, plans, settlement, timing
from tests.zoo.bugs import BUGS

__all__ = ["BUGS", "kept_attempts", "leases", "plans", "settlement", "timing"]

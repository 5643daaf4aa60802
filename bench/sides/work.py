"""What a busy daemon does while it is measured: nothing, very often."""

from __future__ import annotations

import time
from typing import Any


async def noop(run: Any) -> None:  # noqa: ARG001
    return None


async def when(run: Any) -> float:  # noqa: ARG001
    """Tell when it began."""
    return time.time()

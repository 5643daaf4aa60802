"""What a busy daemon does while its API is measured: nothing, very often."""

from __future__ import annotations

from typing import Any


async def noop(run: Any) -> None:  # noqa: ARG001
    return None

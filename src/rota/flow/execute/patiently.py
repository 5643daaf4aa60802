"""Asking a store until it answers: an attempt goes on whether the store does or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rota.errors import Unavailable

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

LOOK_SECONDS = 1.0


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask the store until it answers; what is asked may be asked again."""
    while True:
        try:
            return await ask()
        except Unavailable as fault:
            log.warning("run.store_unavailable", extra={"error": str(fault)})
            await asyncio.sleep(LOOK_SECONDS)

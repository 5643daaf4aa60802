"""Asking a store until it answers: an attempt goes on whether the store does or not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

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


async def let_go_of(work: asyncio.Future[Any]) -> None:
    """Let go of work, however often it takes: an answer may come in the way of a cancellation."""
    while not work.done():
        work.cancel()
        await asyncio.wait({work}, timeout=LOOK_SECONDS)


async def to_the_end(future: asyncio.Future[Any]) -> bool:
    """Wait for something that must not be left half done; tell whether this was cancelled."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            cancelled = True
    return cancelled

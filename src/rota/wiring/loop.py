"""The event loop of Rota's own processes: uvloop where it is installed, else the standard one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

Result = TypeVar("Result")

SELDOM = (10_000, 20, 50)
"""After how many new objects, and how many rounds, the collector looks for rings among them."""


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)


def settle_memory() -> None:
    """Take what is there now for what stays: the collector never stops to look through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is, or None for asyncio's own."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory

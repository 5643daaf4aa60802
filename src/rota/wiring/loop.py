"""The event loop of Rota's own processes: uvloop where it is installed, else the standard one."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
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
    """Take what is there now for what stays: the collector never stops to look through it again.

    What loading needed and nobody needs any more goes back to the system.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)
    return_memory()


def return_memory() -> None:
    """Give back to the system what nobody needs any more, where that can be said."""
    from ctypes import CDLL  # noqa: PLC0415 - only a daemon needs it

    with suppress(AttributeError, OSError):
        CDLL(None).malloc_trim(0)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is, or None for asyncio's own."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory

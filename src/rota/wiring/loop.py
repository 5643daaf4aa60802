"""The event loop of Rota's own processes: uvloop where it is installed, else the standard one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_async(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end on a loop of its own."""
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(main)


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest loop there is, or None for asyncio's own."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return factory

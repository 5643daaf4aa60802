"""The work that is done while processes die: each attempt says when it begins and when it ends.

An attempt is known by run and epoch. What is noted here are the side effects that the database
must be able to account for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any

from rota.executors.inprocess.run_context import RunContext
from tests.tools.crash.witness import note, noted

PATIENCE_SECONDS = 3.0
STUCK_SECONDS = 1.5
LOOKS, RETRY_SECONDS = 40, 0.02

Work = Callable[[RunContext], Awaitable[object]]


class Hopeless(Exception):
    """The work was told to fail."""


def witnessed(work: Work) -> Work:
    """Note the begin of every attempt, and its end unless it was cut off."""

    @wraps(work)
    async def attempt(run: RunContext) -> object:
        _note("begin", run)
        try:
            return await work(run)
        finally:
            _note("end", run)

    return attempt


def _note(what: str, run: RunContext) -> None:
    note(what, run=run.id, epoch=run.attempt, task=run.task)


@witnessed
async def quick(_: RunContext) -> None:
    """End at once."""
    await asyncio.sleep(0)


@witnessed
async def short(_: RunContext) -> dict[str, Any]:
    """Take a moment and have a result."""
    await asyncio.sleep(0.02)
    return {"done": True}


@witnessed
async def flaky(run: RunContext) -> None:
    """Fail twice before it works."""
    if run.attempt <= 2:
        raise Hopeless


@witnessed
async def doomed(_: RunContext) -> None:
    """Fail."""
    raise Hopeless


@witnessed
async def teller(run: RunContext) -> None:
    """Send one message."""
    run.send(f"run {run.id} has something to say")


@witnessed
async def asker(run: RunContext) -> str:
    """Wait for a person once."""
    return await run.ask("shall I go on?")


@witnessed
async def patient(_: RunContext) -> None:
    """Wait to be cancelled, though not for ever."""
    await asyncio.sleep(PATIENCE_SECONDS)


@witnessed
async def spoken(run: RunContext) -> None:
    """Wait until somebody has spoken for this attempt, though not for long."""
    mine = {"what": "spoke", "run": run.id, "epoch": run.attempt}
    for _ in range(LOOKS):
        if any(mine.items() <= line.items() for line in noted(Path.cwd())):
            return
        await asyncio.sleep(RETRY_SECONDS)


def threaded(run: RunContext) -> None:
    """Work in a thread."""
    _note("begin", run)
    time.sleep(0.02)
    _note("end", run)


def stuck(run: RunContext) -> None:
    """Outlast its timeout in a thread that cannot be stopped."""
    _note("begin", run)
    time.sleep(STUCK_SECONDS)
    _note("end", run)


def apart(run: RunContext) -> None:
    """Work in a process of its own, long enough to be left behind."""
    _note("begin", run)
    time.sleep(0.7)
    _note("end", run)

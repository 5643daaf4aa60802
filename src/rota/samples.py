"""Callables of `rota up --samples`, also used by the docs."""

from __future__ import annotations

import asyncio
import random

from rota.executors.inprocess.run_context import RunContext


async def hello(run: RunContext) -> str:
    """Say hello; the simplest task."""
    return f"hello from run {run.id}"


def count_words(run: RunContext) -> dict[str, int]:
    """Count the words of the payload; a plain function, so it runs in a thread."""
    text = run.payload if isinstance(run.payload, str) else "the quick brown fox"
    return {"words": len(text.split())}


async def flaky(run: RunContext) -> str:
    """Fail at the first attempt and succeed at the second, to show a retry."""
    if run.attempt == 1:
        message = "the first attempt always fails"
        raise RuntimeError(message)
    return f"succeeded at attempt {run.attempt}"


async def summary(run: RunContext) -> None:
    """Send the result of its predecessor; runs after `count_words`."""
    words = "unknown"
    if isinstance(run.payload, dict):
        words = run.payload["after"]["result"]["words"]
    run.send(f"counted {words} words")


async def nap(run: RunContext) -> float:
    """Sleep for the seconds of the payload, or about half a second."""
    seconds = 0.25 + random.SystemRandom().random() / 2
    if isinstance(run.payload, (int, float)):
        seconds = float(run.payload)
    await asyncio.sleep(seconds)
    return round(seconds, 3)


async def approve(run: RunContext) -> str:
    """Ask a person; see `rota questions` and `rota answer`."""
    answer = await run.ask("Shall I go on?", options=("yes", "no"))
    return f"the answer was {answer}"

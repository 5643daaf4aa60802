"""Evaluates what members and agents choose in a process that is ended when it takes too long.

A pattern may take for ever to match or even to compile, and a schema to be held against a result.
One space has one such process at a time, and all spaces together a few: nobody is kept waiting for
longer than the others' turns.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from contextlib import suppress
from typing import Any

from rota.errors import Unavailable
from rota.executors.kit.executor import Interpreter

PROGRAM = "rota.executors.checks.evaluation"
SECONDS = 10.0
"""Until a process is ended that waits for a busy machine; its processor time is bounded, too."""
AT_ONCE = 2


class Evaluator:
    """Starts a process for each question."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turn_of: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, space: str, question: str, *told: object) -> Any | None:  # noqa: ANN401
        """Return what a function of `evaluation` answers, in a tuple; None if it takes too long."""
        async with self._turn_of[space], self._turns:
            out = await self._ran(json.dumps([question, *told]).encode())
        with suppress(ValueError):
            return (json.loads(out)["answer"],)
        return None

    async def _ran(self, said: bytes) -> bytes:
        pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        words = Interpreter.running().module(PROGRAM)
        try:
            child = await asyncio.create_subprocess_exec(
                *words, stdin=pipe, stdout=pipe, stderr=nowhere, env={}
            )
        except OSError as fault:
            message = f"no process could be started to evaluate a check: {fault}"
            raise Unavailable(message) from None
        try:
            async with asyncio.timeout(self._seconds):
                out, _ = await child.communicate(said)
        except TimeoutError:
            return b""
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.communicate()  # until its pipes are closed, which may be after its end
        return out

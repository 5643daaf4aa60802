"""The SQL console over a database file, by processes of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import Any

from rota.errors import Busy, RotaError, SqlFailed, SqlRefused, SqlTimeout, Unavailable
from rota.store.sql_console import (
    FAILED,
    MAX_BYTES,
    SECONDS,
    TOO_LONG,
    ConcurrencyGate,
    SqlQuery,
    SqlResult,
    check_text,
)

PROGRAM = "rota.store.sqlite.sql_console_process"
MAX_ANSWER = 8 * MAX_BYTES
"""A character may take six bytes in JSON."""
PATIENCE = SECONDS + 3.0
"""Beyond the time of a query: to start a process on a busy machine."""
KEPT_SECONDS = 30.0
"""How long a process waits for another question before it is let go."""

_FAULTS: dict[str, type[RotaError]] = {
    fault.code: fault for fault in (SqlRefused, SqlTimeout, SqlFailed, Unavailable, Busy)
}


class SqliteSqlConsole:
    """Lends each question a process, which lives on for a while if all went well."""

    def __init__(
        self, path: str, turns: ConcurrencyGate | None = None, kept: float = KEPT_SECONDS
    ) -> None:
        self._path = path
        self._turns = turns or ConcurrencyGate()
        self._kept = kept
        self._idle: dict[Process, asyncio.TimerHandle] = {}
        self._going: set[asyncio.Task[None]] = set()

    async def ask(self, inquiry: SqlQuery) -> SqlResult:
        """Return what a query finds."""
        check_text(inquiry.sql)
        asked = {
            "path": self._path,
            "sql": inquiry.sql,
            "params": inquiry.params,
            "space_id": inquiry.space_id,
        }
        async with self._turns.turn(inquiry.space_id):
            answer = await self._answer(json.dumps(asked).encode() + b"\n")
        if "code" in answer:
            raise _FAULTS.get(answer["code"], SqlFailed)(answer["message"])
        return SqlResult(
            columns=tuple(answer["columns"]),
            rows=tuple(tuple(row) for row in answer["rows"]),
            truncated=answer["truncated"],
        )

    async def _answer(self, question: bytes) -> dict[str, Any]:
        process = self._lent() or await _start()
        kept = False
        try:
            async with asyncio.timeout(PATIENCE):
                text = await _exchange(process, question)
            kept = text.endswith(b"\n")
        except TimeoutError:
            raise SqlTimeout(TOO_LONG) from None
        finally:
            if kept:
                self._keep(process)
            else:
                await _end(process)
        if process.returncode == -signal.SIGALRM:  # in the middle of what does not look up
            raise SqlTimeout(TOO_LONG)
        if not kept:
            raise SqlFailed(FAILED)
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _lent(self) -> Process | None:
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            if process.returncode is None:
                return process
        return None

    def _keep(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        self._idle[process] = loop.call_later(self._kept, self._let_go, process)

    def _let_go(self, process: Process) -> None:
        del self._idle[process]
        going = asyncio.get_running_loop().create_task(_end(process))
        self._going.add(going)
        going.add_done_callback(self._going.discard)

    async def close(self) -> None:
        """End the processes."""
        idle, self._idle = self._idle, {}
        for process, timer in idle.items():
            timer.cancel()
            await _end(process)
        await asyncio.gather(*self._going)


async def _start() -> Process:
    # Nothing of this process's environment, which may hold secrets.
    path = os.pathsep.join(part for part in sys.path if part)
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-s",
        "-P",
        "-m",
        PROGRAM,
        stdin=PIPE,
        stdout=PIPE,
        env={"PYTHONPATH": path},
        limit=MAX_ANSWER,
        start_new_session=True,
    )


async def _exchange(process: Process, question: bytes) -> bytes:
    assert process.stdin is not None  # noqa: S101 - as it was started
    assert process.stdout is not None  # noqa: S101
    with suppress(ConnectionError):  # it has ended, and the answer will say so
        process.stdin.write(question)
        await process.stdin.drain()
    return await process.stdout.readline()


async def _end(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.communicate()

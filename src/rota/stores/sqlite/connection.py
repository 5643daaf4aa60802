"""Opening SQLite: version gate, durability, migrations with a snapshot taken before."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import NoReturn

import apsw

from rota.errors import Unavailable
from rota.faultpoints import reach
from rota.stores.kit.migrating import Migration, check_current, load_migrations, pending
from rota.stores.sqlite.faults import translated
from rota.stores.sqlite.permissions import PRIVATE, create_private, narrow
from rota.stores.sqlite.session import MEMORY

log = logging.getLogger(__name__)

PACKAGE = "rota.stores.sqlite"
OLDEST_SQLITE = (3, 51, 3)
"""Earlier ones can lose data when two connections reset the write-ahead log at once."""

BUSY_TIMEOUT_MS = 10_000
AGAIN_MS = 20
CHECKPOINT_PAGES = 4_000
CACHE_KIB = 16_000
STATEMENTS = 400
"""More than there are queries, so that none has to be compiled twice."""
SETTINGS = (
    f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
    f"cache_size = -{CACHE_KIB}",
    "temp_store = memory",
    "foreign_keys = on",
    "trusted_schema = off",
)


def connect(path: str) -> apsw.Connection:
    """Return a connection with Rota's settings; every commit is on disk when it returns.

    SQLite itself must not create the file: others could read it, whatever is done afterwards.
    """
    check_version()
    if path != MEMORY:
        create_private(path)
    with translated(path):
        connection = apsw.Connection(
            path, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENTS
        )
        return _set_up(connection, "journal_mode = wal", "synchronous = full")


def connect_to_look(path: str) -> apsw.Connection:
    """Return a connection that can only read."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    address = address_to_look(path)
    with translated(path):
        return _set_up(apsw.Connection(address, flags=flags), "query_only = on")


def address_to_look(path: str) -> str:
    """Return the URI that opens a file for reading; without locks where none can be taken."""
    check_version()
    file = Path(path)
    if not file.is_file():
        message = f"there is no database {path}: check the address, or start `rota up` to make one"
        raise Unavailable(message)
    alone = not os.access(file.parent, os.W_OK) and not Path(f"{path}-wal").exists()
    return f"{file.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"


def _set_up(connection: apsw.Connection, *pragmas: str) -> apsw.Connection:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    # Plans must not depend on parameters: a bound `limit` would be compiled anew at every call.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    try:
        for pragma in (*pragmas, *SETTINGS):
            _set(connection, pragma)
    except BaseException:
        connection.close()
        raise
    return connection


def _set(connection: apsw.Connection, pragma: str) -> None:
    """Set a pragma, again where others that open a new file at this instant are in the way.

    Of two that make it a write-ahead log at once SQLite refuses one without waiting, since each
    waits for the other.
    """
    for _ in range(BUSY_TIMEOUT_MS // AGAIN_MS):
        with suppress(apsw.BusyError):
            connection.execute(f"pragma {pragma}")
            return
        sleep(AGAIN_MS / 1000)
    connection.execute(f"pragma {pragma}")


def check_version() -> None:
    """Refuse a SQLite that may lose data."""
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < OLDEST_SQLITE:
        message = (
            f"SQLite {apsw.sqlite_lib_version()} is too old (3.51.3 fixes a loss of data): "
            "install a current apsw"
        )
        raise Unavailable(message)


def migrate(connection: apsw.Connection, path: str) -> list[str]:
    """Bring the schema up to date; return the names of what was applied.

    A file that has data is copied to `<file>.before-<number>` first. Schedules are counted before
    and after each step, and a step that loses one is rolled back.
    """
    migrations = load_migrations(PACKAGE)
    current = read_version(connection)
    todo = pending(migrations, current, path)
    if not todo:
        return []
    if current > 0 and path != MEMORY:
        _snapshot(connection, Path(f"{path}.before-{todo[0].number:04}"))
    return [step.name for step in todo if apply_step(connection, step)]


def check_schema(connection: apsw.Connection, path: str) -> None:
    """Refuse a file whose schema is not this Rota's."""
    check_current(load_migrations(PACKAGE), read_version(connection), path)


def read_incarnation(connection: apsw.Connection) -> str:
    """Return the id this database was given when it was made."""
    return str(connection.execute("select value from facts where name = 'incarnation'").get)


def read_version(connection: apsw.Connection) -> int:
    """Return the number of the last migration that was applied."""
    return int(str(connection.execute("pragma user_version").get))


def apply_step(connection: apsw.Connection, step: Migration) -> bool:
    """Apply one step in its own transaction; false if another process was faster."""
    reach("migrate.begin")
    connection.execute("begin immediate")
    try:
        if read_version(connection) >= step.number:  # another process was faster
            connection.execute("rollback")
            return False
        before = _count_schedules(connection)
        connection.execute(step.sql)
        reach("migrate.applied")
        after = _count_schedules(connection)
        if before is not None and after != before:
            _refuse_loss(step, before, after)
        if before is None:
            connection.execute(
                "insert into facts (name, value) values ('incarnation', ?)",
                (secrets.token_hex(16),),
            )
        connection.execute(f"pragma user_version = {step.number}")
        reach("migrate.commit")
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    reach("migrate.committed")
    log.info("store.migrated", extra={"migration": step.name})
    return True


def _refuse_loss(step: Migration, before: int, after: int | None) -> NoReturn:
    message = f"migration {step.name} would change {before} schedules to {after}: not applied"
    raise Unavailable(message)


def _count_schedules(connection: apsw.Connection) -> int | None:
    known = connection.execute("select count(*) from sqlite_master where name = 'schedules'").get
    if not known:
        return None
    return int(
        str(connection.execute("select count(*) from schedules where deleted_at is null").get)
    )


def _snapshot(connection: apsw.Connection, target: Path) -> None:
    create_private(str(target))
    narrow(str(target), PRIVATE)
    copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        reach("snapshot.begin")
        with copy.backup("main", connection, "main") as backup:
            while not backup.done:
                backup.step(1_000)
        reach("snapshot.copied")
        verdict = copy.execute("pragma integrity_check").get
    finally:
        copy.close()
    if verdict != "ok":
        message = f"the snapshot {target} is damaged ({verdict}): nothing was migrated"
        raise Unavailable(message)
    log.info("store.snapshot_taken", extra={"path": str(target)})

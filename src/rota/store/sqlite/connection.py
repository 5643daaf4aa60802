"""Connections: open, migrate, driver errors, SQL functions.

What is written lightly is lost by a power cut alone, and a machine that had one has booted since.
So before the first light write of a process a fact that waits for the disk names the boot, and
whoever opens the file in another boot leaves a gap first. While the boot is the same, nothing is
lost, whoever was killed.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import NoReturn

import apsw

from rota.errors import Busy, RotaError, Unavailable
from rota.faultpoints import reach
from rota.store.sql_files import Migration, check_current, load_migrations, pending
from rota.store.sqlite.file_modes import PRIVATE, create_private, narrow

log = logging.getLogger(__name__)

PACKAGE = "rota.store.sqlite"
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


def connect_read_only(path: str) -> apsw.Connection:
    """Return a connection that can only read."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    address = read_only_address(path)
    with translated(path):
        return _set_up(apsw.Connection(address, flags=flags), "query_only = on")


def read_only_address(path: str) -> str:
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
    return str(connection.execute("select value from metadata where name = 'incarnation'").get)


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
                "insert into metadata (name, value) values ('incarnation', ?)",
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


NO_ROOM = frozenset({apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP})
"""The index of the write-ahead log cannot grow: the disk is full."""

_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.CantOpenError,
     "cannot open the database {}: check that its folder exists and is writable"),
    (apsw.FullError,
     "cannot write to the database {}: no room is left on its disk, free some and it goes on"),
    (apsw.ReadOnlyError,
     "cannot write to the database {}: check the rights to the file and its folder"),
    (apsw.NotADBError, "cannot read {}: it is not a database, check the address"),
    (apsw.CorruptError,
     "cannot use the database {}: it is damaged, keep a copy of it and restore a backup"),
    (apsw.IOError, "cannot use the database {}: its disk fails, check it and the system's log"),
)  # fmt: skip


def translate(fault: BaseException, path: str) -> RotaError | None:
    """Return the error a caller may act on, or None for what only a programmer can mend."""
    if isinstance(fault, apsw.BusyError):
        return Busy(f"the database {path} is busy: another process writes for too long, try again")
    if getattr(fault, "extendedresult", None) in NO_ROOM:
        fault = apsw.FullError()
    for kind, sentence in _SENTENCES:
        if isinstance(fault, kind):
            return Unavailable(sentence.format(path))
    return None


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise Rota's own error for what a caller may act on."""
    try:
        yield
    except apsw.Error as fault:
        error = translate(fault, path)
        if error is None:
            raise
        raise error from fault


_NAMES = """
    abs acos acosh asin asinh atan atan2 atanh avg ceil ceiling char coalesce concat concat_ws cos
    cosh count cume_dist date datetime degrees dense_rank exp first_value floor format glob
    group_concat hex if ifnull iif instr json json_array json_array_length json_error_position
    json_extract json_group_array json_group_object json_insert json_object json_patch json_pretty
    json_quote json_remove json_replace json_set json_type json_valid julianday lag last_value lead
    length like ln log log10 log2 lower ltrim max median min mod nth_value ntile nullif octet_length
    percent_rank pi pow power printf quote radians rank replace round row_number rtrim sign sin
    sinh sqrt strftime string_agg substr substring sum tan tanh time timediff total trim trunc
    typeof unicode unixepoch upper -> ->>
"""
FUNCTIONS = frozenset(_NAMES.split())
TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})

EVENTS_GAP = 1_000_000
"""More than are written lightly before something else waits for the disk."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


def read_boot() -> str:
    """Return what tells this boot of the machine from any other; empty where nothing does."""
    try:
        return BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def note_light(path: str, boot: str) -> None:
    """Note on disk that events may be written lightly in this boot."""
    connection = connect(path)
    try:
        with translated(path):
            _note(connection, boot)
    finally:
        connection.close()


def leave_a_gap(path: str) -> None:
    """Leave a gap before the next event."""
    connection = connect(path)
    try:
        with translated(path):
            _move(connection)
    finally:
        connection.close()


def leave_a_gap_after_a_cut(connection: apsw.Connection, boot: str) -> None:
    """Leave a gap if events were written lightly in an earlier boot; of many, one process does."""
    if _light(connection) in {None, boot}:
        return
    connection.execute("begin immediate")
    try:
        if _light(connection) not in {None, boot}:  # another process was not faster
            _move(connection)
            _note(connection, boot)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _note(connection: apsw.Connection, boot: str) -> None:
    connection.execute(
        "insert into metadata (name, value) values ('light', ?) "
        "on conflict (name) do update set value = excluded.value",
        (boot,),
    )


def _light(connection: apsw.Connection) -> object:
    return connection.execute("select value from metadata where name = 'light'").get


def _move(connection: apsw.Connection) -> None:
    connection.execute(
        "update sqlite_sequence set seq = seq + ? where name = 'events'", (EVENTS_GAP,)
    )


MEMORY = ":memory:"

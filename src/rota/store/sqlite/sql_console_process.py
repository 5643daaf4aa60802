"""Process: answers SQL over a database file.

It is a process of its own so that nothing a query does can cost the daemon more than a pipe: its
memory, its temporary files and its open files are bounded, a timer that it cannot put off ends it,
and a query that brings SQLite down brings down nothing else. It reads one question a line, and
opens the file anew for each, so no question inherits anything from the one before and nothing
holds the write-ahead log in between.

A query sees views in the temporary schema, each made of an inner view over the file, which is
attached by a name that is drawn anew every time, as are the inner views' names. The authorizer
lets only the inner views read the file. Who reads is told to it by name alone, and a query may
call a part of itself by any name it likes: it would have to guess these.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import apsw
import apsw.ext

from rota.errors import RotaError, SqlFailed, SqlRefused, SqlTimeout, Unavailable
from rota.store.sql_console import (
    FAILED,
    MAX_BYTES,
    MOST_ROWS,
    NOT_THERE,
    ONE_QUERY,
    SECONDS,
    TOO_LONG,
    VIEWS,
    about,
    plain,
)
from rota.store.sqlite.connection import FUNCTIONS, TABLE_FUNCTIONS, read_only_address, translated

GENTLY = SECONDS * 0.9
"""When a query is asked to stop; what does not listen is ended at SECONDS."""
STEPS = 5_000
"""Of SQLite's machine, between two looks at the clock."""

HEAP = 16 * 1024 * 1024
MEMORY = 64 * 1024 * 1024
TEMPORARY = 16 * 1024 * 1024
"""Bytes in one temporary file; FILES bounds how many there can be."""
FILES = 12
NICENESS = 10
BUSY_MS = 500
MEMORY_ALONE = ":memory:"
FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI

LIMITS = {
    apsw.SQLITE_LIMIT_LENGTH: 1024 * 1024,
    apsw.SQLITE_LIMIT_COLUMN: 100,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: 50,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: 20,
    apsw.SQLITE_LIMIT_VDBE_OP: 25_000,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: 20,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: 100,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}
SWITCHES = {
    apsw.SQLITE_DBCONFIG_DEFENSIVE: 1,
    apsw.SQLITE_DBCONFIG_DQS_DML: 0,
    apsw.SQLITE_DBCONFIG_DQS_DDL: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION: 0,
    apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER: 0,
    apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA: 0,
}
NAMES = frozenset(view.name for view in VIEWS)


def instant(micros: str) -> str:
    """Return the SQL of an instant in ISO 8601, to the microsecond."""
    seconds = f"strftime('%Y-%m-%dT%H:%M:%S', {micros} / 1000000, 'unixepoch')"
    return f"{seconds} || printf('.%06dZ', {micros} % 1000000)"


def bound() -> None:
    """Give up, for good, whatever answering does not need."""
    apsw.hard_heap_limit(HEAP)
    for what, most in (
        (resource.RLIMIT_DATA, MEMORY),
        (resource.RLIMIT_FSIZE, TEMPORARY),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # not every system knows every bound
            resource.setrlimit(what, (most, most))
    with suppress(OSError):
        os.nice(NICENESS)


def answer(path: str, sql: str, params: Sequence[Any], space_id: int | None) -> dict[str, Any]:
    """Return the columns and rows a query finds, or raise what the caller is told."""
    ends = time.monotonic() + GENTLY
    connection = apsw.Connection(MEMORY_ALONE, flags=FLAGS)
    try:
        with translated(path):
            _confine(connection, path, space_id)
        connection.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
        try:
            info = _prepared(connection, sql)
            return _rows(connection, info, _bound_to(info, params))
        except (apsw.InterruptError, apsw.BusyError):
            raise SqlTimeout(TOO_LONG) from None
        except apsw.AuthError:
            raise SqlRefused(NOT_THERE) from None
        except (apsw.Error, MemoryError, UnicodeError):
            raise SqlFailed(FAILED) from None
    finally:
        connection.close(True)


def _confine(connection: apsw.Connection, path: str, space_id: int | None) -> None:
    """Leave a connection nothing but the views, with the rows of one space or of all."""
    secret = f"i{secrets.token_hex(16)}"
    connection.set_busy_timeout(BUSY_MS)
    connection.execute(f"attach ? as {secret}", (read_only_address(path),))
    for pragma in ("temp_store = file", f"{secret}.cache_size = -2000", "trusted_schema = off"):
        connection.execute(f"pragma {pragma}")
    seen = "1" if space_id is None else f"{{}} = {int(space_id)}"
    for view in VIEWS:
        inner = f"{secret}_{view.name}"
        select = view.select(secret, instant, seen)
        connection.execute(f"create temp view {inner} as {select}")
        connection.execute(f"create temp view {view.name} as select * from temp.{inner}")  # noqa: S608
    hidden = _real_names(connection, secret)
    connection.execute("pragma query_only = on")
    for switch, on in SWITCHES.items():
        connection.config(switch, on)
    for limit, most in LIMITS.items():
        connection.limit(limit, most)
    connection.authorizer = _Authorizer(secret, hidden)


def _real_names(connection: apsw.Connection, secret: str) -> frozenset[str]:
    """Return what a query could name besides the views and its own parts."""
    tables = connection.execute(f"select lower(name) from {secret}.sqlite_schema").fetchall()  # noqa: S608
    modules = connection.execute("pragma module_list").fetchall()
    return frozenset(str(row[0]) for row in (*tables, *modules))


class _Authorizer:
    """Says for every step of a query whether it may be; it is asked before anything is read."""

    def __init__(self, secret: str, hidden: frozenset[str]) -> None:
        self._inner = {f"{secret}_{name}": name for name in NAMES}
        self._secret = secret
        self._hidden = hidden

    def __call__(
        self, action: int, one: str | None, two: str | None, schema: str | None, within: str | None
    ) -> int:
        if action in {apsw.SQLITE_SELECT, apsw.SQLITE_RECURSIVE}:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_FUNCTION and (two or "").lower() in FUNCTIONS:
            return apsw.SQLITE_OK
        if action == apsw.SQLITE_READ and self._readable(one or "", two, schema, within):
            return apsw.SQLITE_OK
        return apsw.SQLITE_DENY

    def _readable(
        self, table: str, column: str | None, schema: str | None, within: str | None
    ) -> bool:
        if table in TABLE_FUNCTIONS:
            return True
        if schema is None:  # nothing of it is read, and it may be a part of the query itself
            return table in NAMES or self._of_query(table.lower())
        if schema == "temp":
            return table in NAMES or (table in self._inner and within == self._inner[table])
        # A table that a view joins but of which nothing is needed is named without a reader.
        return schema == self._secret and (within in self._inner or column == "")

    def _of_query(self, name: str) -> bool:
        return name not in self._hidden and not name.startswith(("sqlite_", "pragma_"))


def _prepared(connection: apsw.Connection, sql: str) -> apsw.ext.QueryDetails:
    """Return what a query is, which runs nothing of it."""
    try:
        info = apsw.ext.query_info(connection, sql)
    except apsw.SQLError as fault:
        # Nothing was read yet: the sentence can quote nothing but the query.
        raise SqlRefused(about(str(fault))) from None
    except apsw.TooBigError:
        raise SqlRefused(plain("the query is too large")) from None
    if info.query_remaining is not None:
        raise SqlRefused(ONE_QUERY)
    if info.is_explain or not info.is_readonly or not info.has_vdbe:
        raise SqlRefused(NOT_THERE)
    return info


def _bound_to(info: apsw.ext.QueryDetails, params: Sequence[Any]) -> list[Any]:
    """Return the parameters in the order the query counts them; `$2` is the second one."""
    found = []
    for index, name in enumerate(info.bindings_names, start=1):
        number = int(name) if name is not None and name.isdecimal() else index
        if name is not None and not name.isdecimal():
            raise SqlRefused(plain("write parameters as $1, $2 and so on"))
        if not 1 <= number <= len(params):
            raise SqlRefused(plain(f"the query has a parameter ${number} that was not given"))
        found.append(params[number - 1])
    if len(params) > len(info.bindings_names):
        raise SqlRefused(plain("more parameters were given than the query has"))
    return found


def _rows(
    connection: apsw.Connection, info: apsw.ext.QueryDetails, params: Sequence[Any]
) -> dict[str, Any]:
    columns = [column[0] for column in info.description]
    rows: list[list[Any]] = []
    size, truncated = 0, False
    for found in connection.execute(info.query, params):
        row = [_shown(value) for value in found]
        size += len(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if len(rows) == MOST_ROWS or size > MAX_BYTES:
            truncated = True
            break
        rows.append(row)
    return {"columns": columns, "rows": rows, "truncated": truncated}


def _shown(value: Any) -> Any:  # noqa: ANN401 - whatever SQLite holds
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _told(asked: dict[str, Any]) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return answer(**asked)
    except (SqlRefused, SqlTimeout, SqlFailed, Unavailable) as fault:
        return _fault(fault)
    except MemoryError:
        return _fault(SqlFailed(FAILED))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _fault(fault: RotaError) -> dict[str, Any]:
    return {"code": fault.code, "message": str(fault)}


def main() -> NoReturn:
    """Answer until nobody asks any more."""
    # Without a handler the timer ends the process, in whatever C code it may be.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    bound()
    for line in sys.stdin.buffer:
        text = json.dumps(_told(json.loads(line)))
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()
    sys.exit(0)


if __name__ == "__main__":
    main()

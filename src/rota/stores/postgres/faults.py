"""What the driver raises, as Rota's own errors: one plain sentence that never shows a password."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from rota.errors import Busy, RotaError, Unavailable


class NotBegun(Exception):
    """The connection had died before the transaction could begin; nothing has happened."""


GONE: tuple[type[BaseException], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""The connection is of no further use."""

ANY: tuple[type[BaseException], ...] = (asyncpg.PostgresError, Unavailable, *GONE)
"""Whatever can come of talking to a server."""

AGAIN: tuple[type[BaseException], ...] = (
    NotBegun,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UniqueViolationError,
)
"""Another transaction was faster; the same operation on a new snapshot sees what it did."""

_ADVICE: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidPasswordError, "it refuses the password: check user and password"),
    (asyncpg.InvalidAuthorizationSpecificationError,
     "it refuses the user: check its name and rights"),
    (asyncpg.InvalidCatalogNameError, "the database does not exist: create it with createdb"),
    (asyncpg.TooManyConnectionsError, "it has no connection left: raise max_connections"),
    (asyncpg.CannotConnectNowError, "it is starting or stopping: try again in a moment"),
    (asyncpg.ReadOnlySQLTransactionError,
     "it may only be read: allow writing, or use the primary's address"),
    (asyncpg.InsufficientPrivilegeError,
     "the user lacks rights: as its owner run `create schema rota authorization <user>`"),
    (asyncpg.InsufficientResourcesError, "it has no room left: free disk or memory"),
    (asyncpg.UndefinedTableError, "Rota's tables are missing: start Rota once to create them"),
    (asyncpg.ClientConfigurationError, "the address is wrong: write postgresql://user@host/name"),
    (TimeoutError, "it did not answer in time"),
    (asyncio.CancelledError, "the request was given up"),
    (asyncpg.QueryCanceledError, "somebody cancelled the query"),
)  # fmt: skip


def place_of(address: str) -> str:
    """Return an address as it may be shown: host and database, no user and no password."""
    parts = urlsplit(address)
    query = parse_qs(parts.query)
    host = parts.hostname or unquote(query.get("host", [""])[0]) or "localhost"
    database = unquote(parts.path.lstrip("/")) or query.get("database", [""])[0]
    port = "" if parts.hostname is None or parts.port is None else f":{parts.port}"
    return f"{host}{port}/{database}"


def translate(fault: BaseException, place: str) -> RotaError | None:
    """Return the error a caller may act on, or None for what only a programmer can mend."""
    if isinstance(fault, RotaError):
        return None
    if isinstance(fault, NotBegun) and fault.__cause__ is not None:
        return translate(fault.__cause__, place)
    if isinstance(fault, (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)):
        return Busy(f"the database {place} is busy: other transactions keep winning, try again")
    for kind, advice in _ADVICE:
        if isinstance(fault, kind):
            return Unavailable(f"cannot use the database {place}: {advice}")
    if isinstance(fault, GONE):
        advice = "check that it runs and that its address is right"
        return Unavailable(f"cannot reach the database {place}: {advice}")
    return None

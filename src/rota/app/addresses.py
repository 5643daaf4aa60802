"""Addresses of stores, and the store for an address."""

from __future__ import annotations

import re
from pathlib import Path

from rota.errors import Invalid, Unavailable
from rota.ports.clock import Clock
from rota.ports.store import Store

ADVICE = "write sqlite:///path/to/file.db, postgresql://user@host/name or memory:"


def check_address(address: str) -> str:
    """Return a valid address or refuse it; nothing is opened."""
    sqlite = address.startswith("sqlite:///") and address != "sqlite:///"
    if address == "memory:" or sqlite or address.startswith(("postgresql://", "postgres://")):
        return address
    raise Invalid("store", address, ADVICE)


def hidden_password(address: str) -> str:
    """Return an address without its password, for display."""
    return re.sub(r"(//[^/@:]*):[^/@]*@", r"\1:***@", address)


def store_at(address: str, clock: Clock) -> Store:
    """Return the store for an address, not opened."""
    if address == "memory:":
        from rota.store.sqlite.store import MemoryStore  # noqa: PLC0415 - the driver is heavy

        return MemoryStore(clock)
    if address.startswith("sqlite:///"):
        from rota.store.sqlite.store import SqliteStore  # noqa: PLC0415

        path = address.removeprefix("sqlite:///")
        if not path:
            raise Invalid("store", address, ADVICE)
        return SqliteStore(str(Path(path).expanduser()), clock)
    if address.startswith(("postgresql://", "postgres://")):
        return _postgres(address, clock)
    raise Invalid("store", address, ADVICE)


def _postgres(address: str, clock: Clock) -> Store:
    try:
        from rota.store.postgres.store import PostgresStore  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        message = "PostgreSQL needs its driver: pip install 'rota[postgres]'"
        raise Unavailable(message) from fault
    return PostgresStore(address, clock)

"""Named queries and numbered migrations from .sql files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from rota.errors import SchemaMismatch

PACKAGE = "rota.store"
_NAME = re.compile(r"^-- name: (\w+)[^\n]*\n", re.MULTILINE)
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@cache
def load_queries() -> Mapping[str, str]:
    """Return every query by its name, as PostgreSQL reads it."""
    return read_queries(PACKAGE)


def read_queries(package: str) -> Mapping[str, str]:
    """Return the queries of a package by their names; a name may be given once."""
    found: dict[str, str] = {}
    folder = files(package) / "sql"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        parts = _NAME.split(file.read_text())[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                message = f"the query {name} is defined twice in {package}"
                raise ValueError(message)
            found[name] = body.strip().rstrip(";")
    return MappingProxyType(found)


_FILE = re.compile(r"^(\d{4})_\w+\.sql$")
_TABLE = re.compile(r"^create table (?:rota\.)?(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One step of the schema; applied once, in its own transaction."""

    number: int
    name: str
    sql: str


def load_migrations(package: str) -> list[Migration]:
    """Return a dialect's migrations in order."""
    found = []
    for file in (files(package) / "migrations").iterdir():
        match = _FILE.match(file.name)
        if match:
            found.append(Migration(number=int(match[1]), name=file.name[:-4], sql=file.read_text()))
    return sorted(found, key=lambda migration: migration.number)


def tables_of(migrations: list[Migration]) -> list[str]:
    """Return the tables that migrations make, each once and after those it refers to."""
    return list(dict.fromkeys(name for step in migrations for name in _TABLE.findall(step.sql)))


def check_current(migrations: list[Migration], current: int, where: str) -> None:
    """Refuse a database whose schema is not this Rota's; for those who may not change it."""
    if pending(migrations, current, where):
        newest = migrations[-1].number
        message = (
            f"the database {where} has schema {current}, this Rota works with {newest}: "
            "start `rota up` once to bring it up to date"
        )
        raise SchemaMismatch(message)


def pending(migrations: list[Migration], current: int, where: str) -> list[Migration]:
    """Return what has still to be applied; refuse a database from a newer Rota."""
    newest = migrations[-1].number
    if current > newest:
        message = (
            f"the database {where} has schema {current}, this Rota knows up to {newest}: "
            "use the newer Rota, or restore the snapshot that was taken before the upgrade"
        )
        raise SchemaMismatch(message)
    return [migration for migration in migrations if migration.number > current]

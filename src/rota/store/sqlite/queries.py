"""The queries of SQLite: those of PostgreSQL in its own spelling, and the ones that it overrides.

A query is written once, in `store/sql`, as PostgreSQL reads it. `to_sqlite` rewrites what is only
spelled differently. A query that SQLite must express in another way, or that needs another plan,
stands in `store/sqlite/sql` under the same name and takes the place of the rewritten one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache

from rota.store.sql_files import load_queries, read_queries
from rota.store.sqlite.connection import PACKAGE


@cache
def load_sqlite_queries() -> Mapping[str, str]:
    """Return every query by its name."""
    rewritten = {name: to_sqlite(sql) for name, sql in load_queries().items()}
    return {**rewritten, **load_overrides()}


def load_overrides() -> Mapping[str, str]:
    """Return the queries that SQLite expresses in another way."""
    return read_queries(PACKAGE)


def to_sqlite(sql: str) -> str:
    """Return a query of PostgreSQL as SQLite spells it, by the rewrites below and no others."""
    for old, new in _WORDS.items():
        sql = sql.replace(old, new)
    for pattern, replacement in _PATTERNS:
        sql = pattern.sub(replacement, sql)
    return sql


_WORDS = {
    "rota.": "",  # the schema of Rota's tables
    "greatest(": "max(",  # null where an argument is null, not only where all are
    "least(": "min(",
    "strpos(": "instr(",
    "json_agg(": "json_group_array(",  # `[]` of no rows, not null
    "json_build_array(": "json_array(",
    " ilike ": " like ",
}


def _name_fields(match: re.Match[str]) -> str:
    """Name the fields of JSON records as columns; SQLite flattens the subquery away."""
    parameter, alias, definitions = match.groups()
    names = [definition.split()[0] for definition in definitions.split(",")]
    columns = ", ".join(f"value ->> '{name}' as {name}" for name in names)
    return f"(select {columns} from jsonb_each({parameter}) {alias}) {alias}"  # noqa: S608 - from our files


_PATTERNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # A hint for SQLite's planner, which is a comment to PostgreSQL.
    (re.compile(r"/\* sqlite: (indexed by \w+) \*/"), r"\1"),
    # Types, which SQLite's values have. A cast that changes a value is written `cast(… as …)`.
    (re.compile(r"::(?:double precision|\w+(?:\[\])?)"), ""),
    # Row locks: a write transaction is alone.
    (re.compile(r"\s+for (?:no key )?(?:update|share)(?: of \w+)?(?: skip locked)?\b"), ""),
    # Arrays, which are bound as JSON.
    (re.compile(r"<> all\((:\w+)\)"), r"not in (select value from json_each(\1))"),
    (re.compile(r"= any\((:\w+)\)"), r"in (select value from json_each(\1))"),
    (
        re.compile(r"unnest\((:\w+)\) as (\w+)\((\w+)\)"),
        r"(select value as \3 from json_each(\1) \2) \2",
    ),
    # Sets of records, which both dialects bind as JSON.
    (re.compile(r"jsonb_to_recordset\((:\w+)\)\s+as (\w+)\(([^()]*)\)"), _name_fields),
)

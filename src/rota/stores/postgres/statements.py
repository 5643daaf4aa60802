"""Named queries in PostgreSQL's form, alone or several in one statement.

A write that nobody waits for may ride along with the next statement, as a data-modifying CTE, and
its round trip is saved. All parts of one statement read the same snapshot, so a part may join only
if it touches no table that an earlier part writes. A part that reads what a later one writes is
welcome: it reads the old state, exactly as if it had gone first. Tables are recognised by the
schema's name, which every query of this dialect spells out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rota.stores.kit.queries import PARAMETER

NOTIFY = "notify"
"""The one statement the dialect adds: topics for every process that listens."""

TELLING = "telling"
"""Stands last: the rows are those of the query before it, and topics are told with them."""

_TELLING_SQL = (
    "select made.* from made cross join (select count(pg_notify('rota', t.topic))"
    " from unnest(:topics::text[]) as t(topic)) as told"
)
_NOTIFY_SQL = "select pg_notify('rota', t.topic) from unnest(:topics::text[]) as t(topic)"
_TABLE = re.compile(r"\brota\.(\w+)")
_WRITTEN = re.compile(r"\b(?:insert into|update|delete from)\s+rota\.(\w+)")
_WITH = re.compile(r"with\s+(recursive\s+)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL with numbered parameters, and where each is found: the part and its name."""

    sql: str
    parameters: tuple[tuple[int, str], ...]


class Statements:
    """Every query of the dialect, compiled on first use."""

    def __init__(self, queries: Mapping[str, str]) -> None:
        self._queries = {**queries, NOTIFY: _NOTIFY_SQL, TELLING: _TELLING_SQL}
        self._touched = {n: frozenset(_TABLE.findall(q)) for n, q in self._queries.items()}
        self._written = {n: frozenset(_WRITTEN.findall(q)) for n, q in self._queries.items()}
        self._compiled: dict[tuple[str, ...], Statement] = {}

    def may_join(self, query: str, riders: Sequence[str]) -> bool:
        """Tell whether a query may share a statement with writes that stand before it."""
        touched = self._touched[query]
        return all(touched.isdisjoint(self._written[rider]) for rider in riders)

    def join(self, names: tuple[str, ...]) -> Statement:
        """Return one statement for queries that may share it; its rows are those of the last."""
        statement = self._compiled.get(names)
        if statement is None:
            told = names[-1] == TELLING
            queries = [self._queries[name] for name in names]
            statement = self._compiled[names] = _join(queries, told=told)
        return statement


def _join(queries: Sequence[str], *, told: bool) -> Statement:
    numbers: dict[tuple[int, str], int] = {}
    parts = [_number(query, part, numbers) for part, query in enumerate(queries)]
    *riders, last = parts
    if riders:
        opening = _WITH.match(last)
        recursive = "" if opening is None else opening[1] or ""
        names = [f"ride_{part}" for part in range(len(riders))]
        if told:
            names[-1] = "made"
        ctes = ", ".join(f"{name} as ({sql})" for name, sql in zip(names, riders, strict=True))
        rest = f" {last}" if opening is None else f", {last[opening.end() :]}"
        last = f"with {recursive}{ctes}{rest}"
    return Statement(last, tuple(numbers))


def _number(query: str, part: int, numbers: dict[tuple[int, str], int]) -> str:
    def number(match: re.Match[str]) -> str:
        return f"${numbers.setdefault((part, match[1]), len(numbers) + 1)}"

    return PARAMETER.sub(number, query)

"""A question in SQL, and the table it is answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

SECONDS = 2.0
"""How long a query may take; then it is stopped, whatever it is doing."""
MOST_ROWS = 1_000
MOST_BYTES = 1024 * 1024
"""Of the rows as JSON."""
LONGEST_SQL = 20_000
MOST_PARAMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """One query; `space_id` is whose rows it may see, none meaning everybody's."""

    sql: str
    params: tuple[Scalar, ...] = ()
    space_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What a query found; `truncated` says that there was more than is given."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool

"""The reference page of SQL, made from the list of views."""

from __future__ import annotations

from rota.model.inquiries import LONGEST_SQL, MOST_PARAMS, MOST_ROWS, SECONDS
from rota.stores.kit.sql_views import VIEWS, SqlView

INTRODUCTION = f"""\
`POST /v1/sql` answers one read-only query over the views below. It needs a key with the scope
`sql`. A key of a member space sees the rows of that space; a main key sees everybody's.

```
curl -s "$ROTA_URL/v1/sql" -H "Authorization: Bearer $ROTA_KEY" \\
  -H "Content-Type: application/json" -d @- <<'END'
{{"sql": "select state, count(*) as n from runs where task = $1 group by state",
 "params": ["report"]}}
END
```

The answer is `{{"request_id", "columns", "rows", "truncated", "seconds"}}`; a row is a list in the
order of the columns. Values are JSON: text, numbers, null; bytes are text such as `\\x00ff`.

- One `SELECT` (or `WITH … SELECT`, `VALUES`), in the dialect of the database, of at most
  {LONGEST_SQL:,} characters. Parameters are `$1`, `$2` and so on, at most {MOST_PARAMS}.
- At most {SECONDS:.0f} seconds, {MOST_ROWS:,} rows and 1 MiB of rows; `truncated` says that there
  was more.
- Two queries at once, one of each space. Others wait a moment, then get `503 busy`.
- Functions are those that work on their arguments alone. On PostgreSQL nothing that begins with
  `pg_` can be named, strings have no escapes, and of several common table expressions only the
  first can list its columns behind its name.
- Instants are text such as `2026-11-15T07:00:00.000000Z`, in UTC: they compare and sort as they
  are.

| code | meaning |
|---|---|
| `sql_refused` | it asks for something that is not to be had, or cannot be understood |
| `sql_timeout` | it took too long and was stopped |
| `sql_failed` | it went wrong underway, for example a division by zero or too much memory |

On SQLite it works at once. A store in memory cannot be asked. On PostgreSQL it is off until a role
of its own exists: run what `rota sql role` prints as a superuser, and set `sql_url` to an address
with that role; a replica will do. [The SQL door](../decisions/sql-door.md) says why.
"""  # noqa: S608 - it shows a query


def sql_page(made: str) -> str:
    """Return the page; `made` says how it is kept current."""
    return (
        "\n\n".join(["# SQL", made, INTRODUCTION.rstrip(), *(_section(view) for view in VIEWS)])
        + "\n"
    )


def _section(view: SqlView) -> str:
    rows = [f"| `{c.name}` | {c.kind.value} | {c.about} |" for c in view.columns]
    table = "\n".join(["| column | kind | meaning |", "|---|---|---|", *rows])
    return f"## `{view.name}`\n\n{view.about}\n\n{table}"

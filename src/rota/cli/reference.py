"""Generates the reference pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota.agent_api.operations import AvailableOperation, available_operations
from rota.api.asgi import PATH
from rota.api.event_stream import FOLLOWING
from rota.app.plugins import find_plugins, variable_of
from rota.app.settings import MEANINGS, SettingsFile
from rota.cli.command_line import render_pages
from rota.commands.catalogue import Operation, commands_of, every_command
from rota.commands.errors import CODES
from rota.commands.runs import open_artifact
from rota.commands.task_fields import TASK_FIELDS, TaskCommand, TaskField
from rota.faultpoints import OPERATIONS, PLACES, STAGES
from rota.model.events import EVENT_MEANINGS
from rota.model.keys import KeyScope
from rota.store.sql_console import LONGEST_SQL, MOST_PARAMS, MOST_ROWS, SECONDS, VIEWS, SqlView
from rota.timing.durations import format_duration

SQL_INTRODUCTION = f"""\
`POST /v1/sql` runs one read-only query over the views below. It needs a key with the scope `sql`.
A key of a member space sees the rows of that space; a key of a main space sees all rows.

```
curl -s "$ROTA_URL/v1/sql" -H "Authorization: Bearer $ROTA_KEY" \\
  -H "Content-Type: application/json" -d @- <<'END'
{{"sql": "select state, count(*) as n from runs where task = $1 group by state",
 "params": ["report"]}}
END
```

The response is `{{"request_id", "columns", "rows", "truncated", "seconds"}}`. A row is a list in
the order of the columns. Values are JSON: text, numbers or null. Bytes are text such as `\\x00ff`.

- One `SELECT` (or `WITH … SELECT`, `VALUES`), in the dialect of the database, of at most
  {LONGEST_SQL:,} characters. Parameters are `$1`, `$2` and so on, at most {MOST_PARAMS}.
- At most {SECONDS:.0f} seconds, {MOST_ROWS:,} rows and 1 MiB of rows; `truncated` is true if there
  were more.
- Two queries at once, one for each space. Others wait briefly, then get `503 busy`.
- Only functions that depend on their arguments alone are allowed. On PostgreSQL a query cannot use
  names that begin with `pg_` or escapes in strings, and of several common table expressions only
  the first can have a column list.
- Instants are text in UTC such as `2026-11-15T07:00:00.000000Z`, so they sort and compare as text.

| code | meaning |
|---|---|
| `sql_refused` | the query uses something that is not allowed, or cannot be parsed |
| `sql_timeout` | the query took too long and was stopped |
| `sql_failed` | the query failed, for example by a division by zero or too much memory |

SQL works on SQLite without setup, and not on a store in memory. On PostgreSQL it needs a role of
its own: run what `rota sql role` prints as a superuser, and set `sql_url` to an address with that
role, for example of a replica. See [the decision](../decisions/sql-console.md).
"""  # noqa: S608 - it shows a query


def sql_page(made: str) -> str:
    """Return the page; `made` says how it is kept current."""
    return (
        "\n\n".join(["# SQL", made, SQL_INTRODUCTION.rstrip(), *(_section(view) for view in VIEWS)])
        + "\n"
    )


def _section(view: SqlView) -> str:
    rows = [f"| `{c.name}` | {c.kind.value} | {c.about} |" for c in view.columns]
    table = "\n".join(["| column | kind | meaning |", "|---|---|---|", *rows])
    return f"## `{view.name}`\n\n{view.about}\n\n{table}"


OPERATIONS_INTRODUCTION = """\
The operations that a program can use while it works for a run, as MCP tools at `/mcp` or as
commands in its mailbox: [how to](../how-to/agent-api.md). An operation is a command of
[the API](http.md) with the same fields. Fields in brackets are optional. Omitted fields with a star
default to the task, run or thread of the program. The answer is `{"ok": true, …}` with the fields
of the API.
"""


OUTSIDE = """\
Clients with a key, through `rota mcp` or at `/mcp`, can use the operations that need no run, within
the scopes of their key, and these:
"""


def verbs_page(made: str) -> str:
    """Return the page; `made` says how it is kept current."""
    inside = available_operations(attempt=True)
    outside = [
        found for name, found in available_operations(attempt=False).items() if name not in inside
    ]
    tables = f"{_table(list(inside.values()))}\n\n{OUTSIDE}\n{_table(outside)}"
    return f"# Agent operations\n\n{made}\n\n{OPERATIONS_INTRODUCTION}\n{tables}\n"


def _table(offers: list[AvailableOperation]) -> str:
    rows = [_operation_row(found) for found in offers]
    return "\n".join(["| operation | command | fields | |", "|---|---|---|---|", *rows])


def _operation_row(found: AvailableOperation) -> str:
    schema = found.schema(attempt=False)
    needed = set(schema.get("required", ()))
    fields = []
    for name in schema["properties"]:
        shown = f"`{name}`" + ("\\*" if name in found.verb.own else "")
        fields.append(shown if name in needed else f"[{shown}]")
    verb, command = found.verb, found.command
    return f"| `{verb.name}` | `{command.name}` | {' '.join(fields)} | {verb.about} |"


CLI_MADE = "`python -m rota.cli.reference` generates this page; a test keeps it current."

EXIT_CODES = """\
| exit code | meaning |
|---|---|
| 0 | success; for `rota up`: orderly shutdown |
| 1 | failure or unexpected error; for `rota run --wait`: the run failed, was cancelled or \
expired; for `rota verify`: an inconsistency was found |
| 2 | invalid request |
| 3 | not found, or not visible to this key |
| 4 | unknown key, or the key lacks a permission |
| 5 | conflict: it exists and differs, or its state does not allow the operation |
| 6 | the daemon or the database is not available |
| 7 | for `rota run --wait`: the run waits for a person |
| 8 | for `rota run --wait`: the run has not ended in time |
| 130 | interrupted; for `rota up`: a second Ctrl-C stopped everything at once |
"""

ASKING = """\
A command uses the daemon if one is running, and the database otherwise, with the same output. The
address of the daemon comes from `--url`, from `ROTA_URL`, or from the home folder. The key is
`ROTA_KEY`, or `admin.key` of the home folder, which is sent only to this machine. With `--store` or
`ROTA_STORE` a command uses that database. `up`, `once`, `verify`, `backup`, `restore` and `check`
never use the daemon, and neither does `--call`, because a callable cannot be named over HTTP.

If a home folder or database is named explicitly and does not exist, the command fails. Only
commands that create something create the home folder: `up`, `once`, `restore`, `add`, `apply`,
`run` without a task, `task create`, `space create`, `key create`, `secret set`, `limit set` and
`notify set`. The default home folder, `~/.rota`, counts as empty until then.

Results go to standard output, everything else to standard error. With `--json` the output is the
record of the [API](http.md). `--dry-run` validates a change and rolls it back. Commands ask for
confirmation only on a terminal; `--yes` confirms in advance. `NO_COLOR` disables colors.

Text from programs and people cannot control a terminal. On standard output and standard error,
control characters (C0 and C1, except line ends and tabs), direction marks, and invisible or private
characters are written as `\\uXXXX`. In JSON this is the same text. Letters, accents and emoji stay
unchanged, including the joiners U+200C and U+200D. `rota logs` keeps the colors of programs on a
terminal. Files of `rota artifacts … -o -`, the pane of `rota attach` and the protocol of `rota mcp`
are passed through unchanged. Titles and names with such a character are refused.
"""

READING = (
    "Rota reads the settings once, from `rota.toml` in the home folder (`--home`, `ROTA_HOME`, or "
    "`~/.rota`). A variable overrides the file, and `--store` overrides both. `rota check` reports "
    "all invalid settings without starting anything."
)

PLUGINS = """\
## Settings of plug-ins

Executors, agents and channels have settings of their own, in a table of the file by their kind and
name, such as `[executors.container]`, or in a variable that begins with both.
"""

LIMITS = (
    "Limits apply to agents and scripts; callables created on the command line count only against "
    "slots and named groups. Each start of `rota up` writes the limits that are set here, and "
    "writes a default only if there is no limit yet."
)

ERRORS = """\
An error is one sentence on standard error, `rota: …`. With `--json` it is
`{"error": {"code", "message", "field"}}`; `field` is present if one is invalid.
"""


ALONE = (
    "On PostgreSQL an operation of one statement is a transaction by itself, so at `commit` it is "
    "already committed."
)


def cli_page() -> str:
    """Return the page of the command line."""
    parts = ["# The command line", CLI_MADE, ASKING.rstrip(), EXIT_CODES.rstrip(), ERRORS.rstrip()]
    parts += [
        f"## `{command}`\n\n```text\n{text.rstrip()}\n```"
        for command, text in render_pages().items()
    ]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Return the page of the settings."""
    rows = [
        f"| `{name}` | `ROTA_{name.upper()}` | {_shown(usual)} | {MEANINGS[name]} |"
        for name, info in SettingsFile.model_fields.items()
        for usual in [info.get_default(call_default_factory=True)]
    ]
    table = "\n".join(["| setting | variable | default | meaning |", "|---|---|---|---|", *rows])
    parts = ["# Settings", CLI_MADE, READING, LIMITS, table, PLUGINS.rstrip(), _plugin_table()]
    return "\n\n".join(parts) + "\n"


def _plugin_table() -> str:
    """Return the settings of the plug-ins that are installed here."""
    rows = [
        f"| `[{kind}s.{name}]` | `{field.name}` | `{variable_of(kind, name, field.name)}`"
        f" | {field.metadata.get('about', '')} |"
        for (kind, name), plugin in find_plugins().all().items()
        for field in (() if plugin.settings is None else fields(plugin.settings))
    ]
    head = ["| table | setting | variable | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def events_page() -> str:
    """Return the page of the events."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in EVENT_MEANINGS.items()]
    table = "\n".join(["| event | meaning |", "|---|---|", *rows])
    told = "Rota records these events in commit order. `rota run RUN` shows those of a run."
    return f"# Events\n\n{CLI_MADE}\n\n{told}\n\n{table}\n"


def fault_points_page() -> str:
    """Return the page of the fault points."""
    actions = "`kill` (SIGKILL), `stop` (SIGSTOP), `sleep` (one second), `raise`, `exit`"
    told = (
        "Fault points are for tests of Rota itself. `ROTA_FAULT=name:hit:action` performs the "
        f"action when the process reaches the point for the hit-th time. The actions are "
        f"{actions}. Without `ROTA_FAULT` the points do nothing. `make test-crash` uses all of "
        "them."
    )
    stages = [f"| `{stage}` | {meaning} |" for stage, meaning in STAGES.items()]
    places = [f"| `{name}` | {meaning} |" for name, meaning in PLACES.items()]
    operations = ", ".join(f"`{name}`" for name in OPERATIONS)
    return "\n\n".join(
        [
            "# Fault points",
            CLI_MADE,
            told,
            "## In every writing transaction",
            f"A point is named `operation.stage`. The operations: {operations}.",
            "\n".join(["| stage | state |", "|---|---|", *stages]),
            ALONE,
            "## At single places",
            "\n".join(["| point | state |", "|---|---|", *places]) + "\n",
        ]
    )


TASK_FIELDS_INTRODUCTION = """\
Every field of a task. A field is given as an option of `rota task create` and `rota task edit`, as
a key of a table of a `rota apply` [file](../how-to/task-files.md), and in `POST`, `PUT` and `PATCH`
requests to `/v1/tasks`. A name with dots is a key of a nested table or object.
"""


def task_fields_page() -> str:
    """Return the page of the fields of tasks."""
    head = ["| field | option | type | default | commands | meaning |", "|---|---|---|---|---|---|"]
    rows = [_task_field_row(field) for field in TASK_FIELDS]
    table = "\n".join([*head, *rows])
    return f"# Task fields\n\n{CLI_MADE}\n\n{TASK_FIELDS_INTRODUCTION}\n{table}\n"


def _task_field_row(field: TaskField) -> str:
    kind: str = field.kind
    if field.choices:
        kind = ", ".join(f"`{choice}`" for choice in field.choices)
    elif field.bounds is not None:
        kind = f"{field.kind} from {field.bounds[0]:,} to {field.bounds[1]:,}"
    if field.is_list:
        kind = f"{kind}; several"
    option = f"`{field.option}`" if field.option else ""
    given = [command for command in TaskCommand if command in field.commands]
    commands = "all" if len(given) == len(TaskCommand) else ", ".join(given)
    return f"| `{field.path}` | {option} | {kind} | {field.default} | {commands} | {field.help} |"


REFERENCE_PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "fault-points.md": fault_points_page,
    "task-fields.md": task_fields_page,
    "sql.md": partial(sql_page, CLI_MADE),
    "agent-operations.md": partial(verbs_page, CLI_MADE),
}


def _shown(value: object) -> str:
    if value is None or value in ("", {}):
        return ""
    return f"`{format_duration(value) if isinstance(value, timedelta) else value}`"


FILE = "http.md"
GIVES = open_artifact.__doc__
HTTP_MADE = "`python -m rota.cli.reference` generates this page; a test keeps it current."
BEGIN = """\
`rota up` serves the API on `http://127.0.0.1:7682`, or on another port if that one is in use;
`api.json` in the home folder has the address. `GET /v1/openapi.json` describes every request and
response exactly (OpenAPI 3.1).

```
curl -H "Authorization: Bearer $(cat ~/.rota/admin.key)" http://127.0.0.1:7682/v1/tasks
```

- **Health.** `/healthz` answers while the process runs. `/readyz` answers 200, or 503 with `error`
  and a list of `reasons` (`code`, `message`) while the daemon cannot do its work.
- **Keys.** Every request except `/healthz` and `/readyz` needs `Authorization: Bearer rota_…`. The
  `admin.key` of the home folder has full access. `POST /v1/keys` creates other keys and shows each
  once. A key gives access to one space, unless its role is `main`. Everything in other spaces is
  not found (404).
- **Writing.** A request that is repeated with the same `Idempotency-Key` is executed once; with
  another body it is a conflict. `Rota-Dry-Run: true` validates a change and rolls it back (204).
  `If-Match` with the `ETag` of a task refuses the change if the task has changed (412).
  `GET /v1/audit` lists who changed what.
- **Bodies** have at most 1 MiB and 20,000 values (counted from 64 KiB on) and must arrive within
  30 s. A message with files has at most 14 MiB and needs a `Content-Length`. A space can send
  14 MiB in bodies of more than 64 KiB at once; a body of unknown length counts as 1 MiB. Responses
  429 and 503 have a `Retry-After`.
- **Connections.** 2,000 connections can be open. A further one closes the longest idle connection
  without a key, or else one of the space with the most connections. A member space can have 500
  requests in progress (429 `too_many_requests`) and 250 event streams (503 `too_many_streams`); all
  member spaces together can have 900 of 1,000 streams.
- **Lists** are newest first; pass `next` of one page as `before` of the following one.
- **Errors** are `{"error": {"code", "message", "field"?, "hint"?}}`. The code is stable, and the
  message is one sentence for people. The log contains refused requests (`api.refused`), at most 5 a
  second; `left_out` in the next line counts the others."""

LIVE = """\
`text/event-stream`: `event` is the name of the event, `data` its record, and `id` its cursor. A
client that reconnects with `Last-Event-ID` (or `?after=`) misses nothing and gets nothing twice.
Without a cursor, `/v1/events` starts now, and the stream of a run with its first event. An event
`reset` means that the stream cannot continue at the cursor: it is older than the stored events, the
database was restored, or the client did not read fast enough. Revoking a key ends its streams. The
total rate for all clients is limited: with many clients events arrive later, and none is left out.

```
curl -N -H "Authorization: Bearer $(cat ~/.rota/admin.key)" http://127.0.0.1:7682/v1/events
```"""
METRICS = """\
`GET /metrics` returns metrics in the format of Prometheus, for a key of the role `main` with the
scope `read`, or with the setting `metrics_open` for every client on this machine. Runs, deliveries
and lateness are counted for the whole database, from the first request on. Queue, slots and ledger
show the current state. No label contains the name of a task or space."""

SCOPES = {
    KeyScope.READ: "read everything in the space",
    KeyScope.RUN: "queue, cancel, retry and answer runs",
    KeyScope.DEFINE: "create, change and delete tasks, schedules and task state",
    KeyScope.ADMIN: "manage spaces, keys, limits and the daemon",
    KeyScope.SQL: "run read-only SQL queries",
}


def http_page() -> str:
    """Return the page of the HTTP API."""
    scopes = [f"| `{scope}` | {meaning} |" for scope, meaning in SCOPES.items()]
    codes = [
        f"| `{kind.code}` | {means.status} | {_first_sentence(kind.__doc__)} |"
        for kind, means in CODES.items()
    ]
    parts = [
        "# The HTTP API",
        HTTP_MADE,
        BEGIN,
        "\n".join(["| scope | permits |", "|---|---|", *scopes]),
        "\n".join(["| code | status | meaning |", "|---|---|---|", *codes]),
    ]
    head = ["| request | scope | what it does |", "|---|---|---|"]
    groups = dict.fromkeys(command.group for command in every_command())
    for group in groups:
        rows = [_http_row(command) for command in commands_of(group)]
        if group == "runs":
            rows.append(f"| `GET {PATH}` | `{KeyScope.READ}` | {_first_sentence(GIVES)} |")
        parts.append(f"## {group.replace('_', ' ').capitalize()}\n\n" + "\n".join([*head, *rows]))
    follows = [
        f"| `GET {route.path}` | `{KeyScope.READ}` | {_first_sentence(route.about)} |"
        for route in FOLLOWING
    ]
    parts += ["## Live\n\n" + "\n".join([*head, *follows]), LIVE, f"## Metrics\n\n{METRICS}"]
    return "\n\n".join(parts) + "\n"


def _http_row(command: Operation) -> str:
    summary = command.about.partition("\n")[0].rstrip(".")
    return f"| `{command.method} {command.path}` | `{command.scope}` | {summary} |"


def _first_sentence(text: str | None) -> str:
    return (text or "").partition("\n")[0].rstrip(".")


def write_all() -> None:
    """Write every page of the reference."""
    folder = Path("docs/reference")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(http_page(), encoding="utf-8")
    for file_name, render in REFERENCE_PAGES.items():
        (folder / file_name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    write_all()

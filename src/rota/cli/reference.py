"""Generates the reference pages and the help pages."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota.agent_api.operations import AvailableOperation, available_operations
from rota.api.asgi import PATH
from rota.api.event_stream import FOLLOWING
from rota.app.settings import MEANINGS, SettingsFile
from rota.cli.command_line import MODULES, build_app
from rota.cli.help_pages import PAGES, page_name
from rota.commands.catalogue import Operation, commands_of, every_command
from rota.commands.errors import TOLD
from rota.commands.runs import open_artifact
from rota.faultpoints import OPERATIONS, PLACES, STAGES
from rota.model.events import EVENT_MEANINGS
from rota.model.keys import KeyScope
from rota.store.sql_console import LONGEST_SQL, MOST_PARAMS, MOST_ROWS, SECONDS, VIEWS, SqlView
from rota.timing.durations import format_duration

SQL_INTRODUCTION = f"""\
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
        "\n\n".join(["# SQL", made, SQL_INTRODUCTION.rstrip(), *(_section(view) for view in VIEWS)])
        + "\n"
    )


def _section(view: SqlView) -> str:
    rows = [f"| `{c.name}` | {c.kind.value} | {c.about} |" for c in view.columns]
    table = "\n".join(["| column | kind | meaning |", "|---|---|---|", *rows])
    return f"## `{view.name}`\n\n{view.about}\n\n{table}"


OPERATIONS_INTRODUCTION = """\
What a program that works for a run may ask for, as MCP tools at `/mcp`:
[how to](../how-to/talking-back.md). A verb is a command of [the API](http.md) and has its fields,
which are told there; those in brackets may be left out. Of what is left out by a run, those with a
star mean its own task, run or conversation. `{"ok": true, …}` has the fields that the API gives.
"""


OUTSIDE = """\
Clients that come with a key, through `rota mcp` or to `/mcp`, have the verbs that need no run, as
far as the scopes of their key go, and these beside, which no run has:
"""


def verbs_page(made: str) -> str:
    """Return the page; `made` says how it is kept current."""
    inside = available_operations(attempt=True)
    outside = [
        found for name, found in available_operations(attempt=False).items() if name not in inside
    ]
    tables = f"{_table(list(inside.values()))}\n\n{OUTSIDE}\n{_table(outside)}"
    return f"# Verbs\n\n{made}\n\n{OPERATIONS_INTRODUCTION}\n{tables}\n"


def _table(offers: list[AvailableOperation]) -> str:
    rows = [_operation_row(found) for found in offers]
    return "\n".join(["| verb | command | fields | |", "|---|---|---|---|", *rows])


def _operation_row(found: AvailableOperation) -> str:
    schema = found.schema(attempt=False)
    needed = set(schema.get("required", ()))
    fields = []
    for name in schema["properties"]:
        shown = f"`{name}`" + ("\\*" if name in found.verb.own else "")
        fields.append(shown if name in needed else f"[{shown}]")
    verb, command = found.verb, found.command
    return f"| `{verb.name}` | `{command.name}` | {' '.join(fields)} | {verb.about} |"


CLI_MADE = "This page is made by `python -m rota.cli.reference`; a test keeps it current."

EXIT_CODES = """\
| exit code | meaning |
|---|---|
| 0 | done; for `rota up`: stopped in order |
| 1 | failed, or unexpected; for `rota run --wait`: the run failed, was cancelled or expired; \
for `rota verify`: something does not hold |
| 2 | refused: something in the request must change |
| 3 | there is no such thing, or not for this key |
| 4 | denied: nobody knows this key, or it may not do this |
| 5 | it exists already and differs, or its state does not allow it |
| 6 | the daemon or the database cannot be reached or used now |
| 7 | for `rota run --wait`: the run waits for a person |
| 8 | for `rota run --wait`: it has not ended in time |
| 130 | interrupted; for `rota up`: a second Ctrl-C stopped everything at once |
"""

ASKING = """\
A command asks the daemon when there is one, and works on the database when there is none; the
answers are the same. The daemon is the one at `--url`, else at `ROTA_URL`, else the one that has
left word in the home folder and answers. Its key is `ROTA_KEY`, else `admin.key` of the home
folder, which is sent to this machine only. Whoever names a database, by `--store` or `ROTA_STORE`,
gets that database. `up`, `once`, `verify`, `backup`, `restore` and `check` always work here, and so
does `--call`, since a callable is not named over HTTP.

A home or a database that was named and is not there is refused, so that one that is misspelt is
not made. Only what makes something makes the home as well: `up`, `once`, `restore`, `add`,
`apply`, `run` without a task, `task create`, `space create`, `key create`, `secret set`,
`limit set` and `notify set`. The usual home, `~/.rota`, is read as an empty one until then.

Answers go to standard output, everything else to standard error. With `--json` an answer is the
record that the [API](http.md) gives. `--dry-run` tries a change and takes it back. Nobody is asked
anything unless at a terminal, and `--yes` answers. `NO_COLOR` takes the colours away.

What programs, people and strangers wrote cannot steer a terminal: control characters (C0 and C1,
but for the ends of lines and tabs), what turns the direction of text, and what cannot be seen or
means nothing outside one font are written as `\\uXXXX`, on standard output and standard error,
piped or not. In JSON that is the same text. Letters, accents and emoji of any language stay as they
are, with the joiners (U+200C, U+200D) that some are written with. Only the colours of programs
are kept, in `rota logs` on a terminal. As they are, byte for byte, come files of
`rota artifacts … -o -`, the pane of `rota attach`, and the protocol of `rota mcp`. Titles and names
that hold such a character are refused when they are made.
"""

READING = (
    "Read once, from `rota.toml` in the home folder (`--home`, else `ROTA_HOME`, else `~/.rota`). "
    "A variable wins over the file, and `--store` over both. `rota check` tells everything that is "
    "wrong without starting anything."
)

LIMITS = (
    "Limits count agents and scripts; callables created on the command line count only against "
    "slots and named groups. A limit that is set here is written at every start of `rota up`; "
    "a default only where no limit stands yet."
)

ERRORS = """\
An error is one sentence on standard error, `rota: …`. With `--json` it is
`{"error": {"code", "message", "field"}}`, the field only where one is wrong.
"""


ALONE = (
    "On PostgreSQL an operation of one statement is a transaction by itself: at `commit` it has "
    "happened already."
)


def cli_page() -> str:
    """Return the page of the command line."""
    parts = ["# The command line", CLI_MADE, ASKING.rstrip(), EXIT_CODES.rstrip(), ERRORS.rstrip()]
    for name, text in render_pages():
        command = name.removesuffix(".txt").replace("-", " ")
        parts.append(f"## `{command}`\n\n```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Return the page of the settings."""
    rows = [
        f"| `{name}` | `ROTA_{name.upper()}` | {_shown(usual)} | {MEANINGS[name]} |"
        for name, info in SettingsFile.model_fields.items()
        for usual in [info.get_default(call_default_factory=True)]
    ]
    table = "\n".join(["| setting | variable | default | meaning |", "|---|---|---|---|", *rows])
    return f"# Settings\n\n{CLI_MADE}\n\n{READING}\n\n{LIMITS}\n\n{table}\n"


def events_page() -> str:
    """Return the page of the events."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in EVENT_MEANINGS.items()]
    table = "\n".join(["| event | meaning |", "|---|---|", *rows])
    told = "Every fact that Rota records, in the order it happened: `rota run RUN` shows a run's."
    return f"# Events\n\n{CLI_MADE}\n\n{told}\n\n{table}\n"


def fault_points_page() -> str:
    """Return the page of the fault points."""
    actions = "`kill` (SIGKILL), `stop` (SIGSTOP), `sleep` (one second), `raise`, `exit`"
    told = (
        "For tests of Rota itself. `ROTA_FAULT=name:hit:action` hurts the process when it comes to "
        f"a point for the hit-th time; the actions are {actions}. Unset, the points do nothing. "
        "`make test-crash` uses every one of them."
    )
    stages = [f"| `{stage}` | {meaning} |" for stage, meaning in STAGES.items()]
    places = [f"| `{name}` | {meaning} |" for name, meaning in PLACES.items()]
    operations = ", ".join(f"`{name}`" for name in OPERATIONS)
    return "\n\n".join(
        [
            "# Fault points",
            CLI_MADE,
            told,
            "## In every transaction that writes",
            f"A point is named `operation.stage`. The operations: {operations}.",
            "\n".join(["| stage | what is true there |", "|---|---|", *stages]),
            ALONE,
            "## In one place each",
            "\n".join(["| point | what is true there |", "|---|---|", *places]) + "\n",
        ]
    )


REFERENCE_PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "fault-points.md": fault_points_page,
    "sql.md": partial(sql_page, CLI_MADE),
    "verbs.md": partial(verbs_page, CLI_MADE),
}


def _shown(value: object) -> str:
    if value is None or value in ("", {}):
        return ""
    return f"`{format_duration(value) if isinstance(value, timedelta) else value}`"


def render_pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every help page."""
    app = build_app()
    yield page_name([]), _help([])
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    for name in MODULES:
        yield page_name([name]), _help([name])
        group = groups.get(name)
        for info in group.registered_commands if group is not None else ():
            verb = str(info.name or getattr(info.callback, "__name__", ""))
            yield page_name([name, verb]), _help([name, verb])


def _help(words: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        build_app()(args=[*words, "--help"], prog_name="rota", standalone_mode=False)
    return out.getvalue()


def write_pages(folder: Path) -> None:
    """Write every page to a folder and take away those that no command has any more."""
    folder.mkdir(exist_ok=True)
    pages = dict(render_pages())
    for old in folder.glob("*.txt"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


FILE = "http.md"
GIVES = open_artifact.__doc__
HTTP_MADE = "This page is made by `python -m rota.cli.reference`; a test keeps it current."
BEGIN = """\
`rota up` serves the API on `http://127.0.0.1:7682`, or on another port if that one is taken;
`api.json` in the home folder says where. `GET /v1/openapi.json` describes every request and answer
exactly (OpenAPI 3.1).

```
curl -H "Authorization: Bearer $(cat ~/.rota/admin.key)" http://127.0.0.1:7682/v1/tasks
```

- **Health.** `/healthz` says that the process answers. `/readyz` answers 200, or 503 with
  `error` and a list of `reasons` (`code`, `message`) while it cannot do its work.
- **Keys.** Every request but `/healthz` and `/readyz` carries `Authorization: Bearer rota_…`. The
  home folder's `admin.key` opens everything; others are made by `POST /v1/keys` and shown once. A
  key belongs to a space and opens only that, unless its role is `main`. What belongs to somebody
  else is not found (404).
- **Writing.** `Idempotency-Key` lets the same request come twice and be carried out once; with
  another body it is a conflict. `Rota-Dry-Run: true` tries a change and takes it back (204).
  `If-Match` with the `ETag` of a task changes only what the caller has seen (412). Who changed what
  is told by `GET /v1/audit`.
- **Bodies** have at most 1 MiB and 20,000 values (counted from 64 KiB on) and come within 30 s; a
  message with files has 14 MiB, if its `Content-Length` says so. Of bodies of more than 64 KiB a
  space has 14 MiB under way at once; what does not say how long it is counts as 1 MiB. 429 and 503
  say in `Retry-After` when to come again.
- **Shares.** 2,000 connections are open at most: one more closes the one that was idle for longest
  of those that have shown no key, else of the space that has the most. A member space has 500
  requests under way (429 `too_many_requests`) and 250 streams of events (503 `too_many_streams`),
  all member spaces together 900 streams of 1,000.
- **Lists** are newest first; `next` of one page is `before` of the following one.
- **Errors** are `{"error": {"code", "message", "field"?, "hint"?}}`; the code is stable and the
  message one sentence for people. The log tells of refused requests (`api.refused`), at most 5 a
  second; the next line says in `left_out` how many more there were."""

LIVE = """\
`text/event-stream`: `event` is the event's name, `data` its record, `id` its cursor. A client that
comes again with `Last-Event-ID` (or `?after=`) misses nothing and gets nothing twice. Without a
cursor `/v1/events` begins now, and a run with its first event. One event `reset` says that this
cannot be: the cursor is older than what is kept, the database was restored, or the client has not
read what was sent to it. A key that is revoked ends its streams. Many clients together are sent a
bounded number of bytes a second: then events come later, and none is left out.

```
curl -N -H "Authorization: Bearer $(cat ~/.rota/admin.key)" http://127.0.0.1:7682/v1/events
```"""
METRICS = """\
`GET /metrics` gives figures in the form that Prometheus reads, to a key of the role `main` with the
scope `read`; with the setting `metrics_open` to whoever asks from this machine. Runs, deliveries
and lateness are counted from the first time on that somebody asks, for the whole database; queue,
slots and ledger are what stands in it. No label names a task or a space."""

SCOPES = {
    KeyScope.READ: "look at everything of the space",
    KeyScope.RUN: "queue, cancel, retry and answer runs",
    KeyScope.DEFINE: "create, change and delete tasks, schedules and what tasks remember",
    KeyScope.ADMIN: "spaces, keys, limits, and the daemon itself",
    KeyScope.SQL: "ask the database in SQL, read-only",
}


def http_page() -> str:
    """Return the page of the HTTP API."""
    scopes = [f"| `{scope}` | {meaning} |" for scope, meaning in SCOPES.items()]
    codes = [
        f"| `{kind.code}` | {means.status} | {_first_sentence(kind.__doc__)} |"
        for kind, means in TOLD.items()
    ]
    parts = [
        "# The HTTP API",
        HTTP_MADE,
        BEGIN,
        "\n".join(["| scope | opens |", "|---|---|", *scopes]),
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
    """Write every page of the reference, and the help of every command."""
    folder = Path("docs/reference")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(http_page(), encoding="utf-8")
    for file_name, render in REFERENCE_PAGES.items():
        (folder / file_name).write_text(render(), encoding="utf-8")
    write_pages(Path(PAGES))


if __name__ == "__main__":
    write_all()

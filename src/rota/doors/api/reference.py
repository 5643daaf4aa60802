"""The reference page of the HTTP API, made from the catalogue."""

from __future__ import annotations

from pathlib import Path

from rota.doors.api.downloads import PATH
from rota.doors.api.streams import FOLLOWING
from rota.doors.commands.artifacts import open_artifact
from rota.doors.kit.catalogue import Command, commands_of, every_command
from rota.doors.kit.faults import TOLD
from rota.model.keys import KeyScope

FILE = "http.md"
GIVES = open_artifact.__doc__
MADE = "This page is made by `python -m rota.doors.api.reference`; a test keeps it current."
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
  is told by `GET /v1/requests`.
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
        MADE,
        BEGIN,
        "\n".join(["| scope | opens |", "|---|---|", *scopes]),
        "\n".join(["| code | status | meaning |", "|---|---|---|", *codes]),
    ]
    head = ["| request | scope | what it does |", "|---|---|---|"]
    groups = dict.fromkeys(command.group for command in every_command())
    for group in groups:
        rows = [_row(command) for command in commands_of(group)]
        if group == "artifacts":
            rows.append(f"| `GET {PATH}` | `{KeyScope.READ}` | {_first_sentence(GIVES)} |")
        parts.append(f"## {group.capitalize()}\n\n" + "\n".join([*head, *rows]))
    follows = [
        f"| `GET {route.path}` | `{KeyScope.READ}` | {_first_sentence(route.about)} |"
        for route in FOLLOWING
    ]
    parts += ["## Live\n\n" + "\n".join([*head, *follows]), LIVE, f"## Metrics\n\n{METRICS}"]
    return "\n\n".join(parts) + "\n"


def _row(command: Command) -> str:
    summary = command.about.partition("\n")[0].rstrip(".")
    return f"| `{command.method} {command.path}` | `{command.scope}` | {summary} |"


def _first_sentence(text: str | None) -> str:
    return (text or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    (Path("docs/reference") / FILE).write_text(http_page(), encoding="utf-8")

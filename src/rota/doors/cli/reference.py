"""The reference pages of the command line, the settings and the events, made from the code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota.doors.cli.rendering import render_pages
from rota.doors.inside.reference import verbs_page
from rota.doors.kit.sql_page import sql_page
from rota.faultpoints import OPERATIONS, PLACES, STAGES
from rota.model.events import EVENT_MEANINGS
from rota.timing.durations import format_duration
from rota.wiring.settings import MEANINGS, Wanted

MADE = "This page is made by `python -m rota.doors.cli.reference`; a test keeps it current."

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
    parts = ["# The command line", MADE, ASKING.rstrip(), EXIT_CODES.rstrip(), ERRORS.rstrip()]
    for name, text in render_pages():
        command = name.removesuffix(".txt").replace("-", " ")
        parts.append(f"## `{command}`\n\n```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Return the page of the settings."""
    rows = [
        f"| `{name}` | `ROTA_{name.upper()}` | {_shown(usual)} | {MEANINGS[name]} |"
        for name, info in Wanted.model_fields.items()
        for usual in [info.get_default(call_default_factory=True)]
    ]
    table = "\n".join(["| setting | variable | default | meaning |", "|---|---|---|---|", *rows])
    return f"# Settings\n\n{MADE}\n\n{READING}\n\n{LIMITS}\n\n{table}\n"


def events_page() -> str:
    """Return the page of the events."""
    rows = [f"| `{name}` | {meaning} |" for name, meaning in EVENT_MEANINGS.items()]
    table = "\n".join(["| event | meaning |", "|---|---|", *rows])
    told = "Every fact that Rota records, in the order it happened: `rota run RUN` shows a run's."
    return f"# Events\n\n{MADE}\n\n{told}\n\n{table}\n"


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
            MADE,
            told,
            "## In every transaction that writes",
            f"A point is named `operation.stage`. The operations: {operations}.",
            "\n".join(["| stage | what is true there |", "|---|---|", *stages]),
            ALONE,
            "## In one place each",
            "\n".join(["| point | what is true there |", "|---|---|", *places]) + "\n",
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "fault-points.md": fault_points_page,
    "sql.md": partial(sql_page, MADE),
    "verbs.md": partial(verbs_page, MADE),
}


def _shown(value: object) -> str:
    if value is None or value in ("", {}):
        return ""
    return f"`{format_duration(value) if isinstance(value, timedelta) else value}`"


if __name__ == "__main__":
    folder = Path("docs/reference")
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, render in PAGES.items():
        (folder / file_name).write_text(render(), encoding="utf-8")

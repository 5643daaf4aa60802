"""The reference pages of the command line, the settings and the events, made from the code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from rota.doors.cli.rendering import render_pages
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
| 1 | cannot be done now, or unexpected; for `rota verify`: something does not hold |
| 2 | refused: something in the request must change; for `rota verify`: it could not look |
| 130 | interrupted; for `rota up`: a second Ctrl-C stopped everything at once |
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
    parts = ["# The command line", MADE, EXIT_CODES.rstrip(), ERRORS.rstrip()]
    for name, text in render_pages():
        command = name.removesuffix(".txt").replace("-", " ")
        parts.append(f"## `{command}`\n\n```text\n{text.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """Return the page of the settings."""
    rows = [
        f"| `{name}` | `ROTA_{name.upper()}` | {_shown(info.default)} | {MEANINGS[name]} |"
        for name, info in Wanted.model_fields.items()
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
}


def _shown(value: object) -> str:
    if value is None or value == "":
        return ""
    return f"`{format_duration(value) if isinstance(value, timedelta) else value}`"


if __name__ == "__main__":
    folder = Path("docs/reference")
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, render in PAGES.items():
        (folder / file_name).write_text(render(), encoding="utf-8")

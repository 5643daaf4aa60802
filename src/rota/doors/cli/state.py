"""`rota state`: what a task keeps from run to run."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.naming import real_name
from rota.doors.cli.show import compact, wall
from rota.doors.cli.values import DryRun, SpaceName, TaskName, Yes, json_value, whole
from rota.errors import Invalid
from rota.flow.observe.telling import first_line

MOST_LISTED = 1_000
SHORT = 60

Key = Annotated[str, typer.Argument(metavar="KEY", help="Under which name.")]

nouns = typer.Typer(
    help="State: values that a task keeps from run to run.\n\n"
    "Example: rota state set report last-day '\"2026-11-15\"'",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="state")


@nouns.command("list")
def list_all(
    context: typer.Context,
    task: TaskName,
    after: Annotated[str, typer.Option("--after", metavar="KEY", help="Go on after this.")] = "",
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "100",
    space: SpaceName = None,
) -> None:
    """List what a task keeps, by key.

    Example: rota state list report
    """
    desk = Desk(context)
    task = real_name(desk, task, space)
    most = whole("limit", limit, 1, MOST_LISTED)
    found = _ask(desk, "GET", task, None, {"after": after or None, "limit": most, "space": space})
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            value["key"],
            wall(value["updated_at"], zone),
            value["updated_by"],
            first_line(compact(value["value"]), SHORT),
        ]
        for value in found["values"]
    ]
    columns = ["key", f"changed ({zone})", "by", "value"]
    desk.out.table(columns, rows, f"{task} keeps nothing.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --after {found['next']}")


@nouns.command("get")
def get(context: typer.Context, task: TaskName, key: Key, space: SpaceName = None) -> None:
    """Write a value that a task keeps, as JSON.

    Example: rota state get report last-day
    """
    desk = Desk(context)
    found = _ask(desk, "GET", task, key, {"space": space})
    desk.out.record(found)
    desk.out.line(compact(found["value"]))


@nouns.command("set")
def change(
    context: typer.Context,
    task: TaskName,
    key: Key,
    value: Annotated[
        str, typer.Argument(metavar="JSON", help="The value; - reads it, @FILE a file.")
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Keep a value for a task, whatever stood under its key.

    Example: rota state set report last-day '"2026-11-15"'
    """
    desk = Desk(context)
    read = json_value("value", value)
    if read is None:
        raise Invalid("value", value, "null is no value: rota state delete forgets one")
    task = real_name(desk, task, space)
    kept = _ask(desk, "PUT", task, key, {"value": read, "space": space}, dry_run=dry_run)
    desk.out.record(kept)
    desk.out.line(f"Kept {kept['key']} for {task}.")


@nouns.command()
def delete(
    context: typer.Context,
    task: TaskName,
    key: Key,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Forget a value of a task.

    Example: rota state delete report last-day
    """
    desk = Desk(context)
    task = real_name(desk, task, space)
    desk.out.confirm(f"Forget {key} of {task}?", yes=yes or dry_run)
    gone = _ask(desk, "DELETE", task, key, {"space": space}, dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(f"Forgot {key} of {task}.")


def _ask(
    desk: Desk, method: str, task: str, key: str | None, said: Record, *, dry_run: bool = False
) -> Record:
    rest = "" if key is None else f"/{quote(key, safe='')}"
    return desk.task(method, task, rest, said, dry_run=dry_run, noun="state")

"""`rota state` and `rota seen`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import (
    DryRun,
    Limit,
    SpaceName,
    TaskName,
    Yes,
    json_value,
    page,
    resolve_task_name,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import Column, compact, wall_time
from rota.errors import Invalid
from rota.flow.observe.time_text import count_text, first_line

SHORT = 60
Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the value")]
COLUMNS = (
    Column("key", "key"),
    Column("changed", "updated_at", is_time=True),
    Column("by", "updated_by"),
    Column("value", lambda entry: first_line(compact(entry["value"]), SHORT)),
)

state_app = typer.Typer(
    help="Manage the values that a task keeps between runs.\n\n"
    "Example: rota state set report last-day '\"2026-11-15\"'",
    rich_markup_mode=None,
)


@state_app.command("list")
def list_state(
    context: typer.Context,
    task: TaskName,
    after: Annotated[
        str | None, typer.Option("--after", metavar="KEY", help="List only keys after this one")
    ] = None,
    limit: Limit = "100",
    space: SpaceName = None,
) -> None:
    """List the values of a task, by key.

    Example: rota state list report
    """
    cli = CliContext(context)
    task = resolve_task_name(cli, task, space)
    query = {**page(limit), "after": after, "space": space}
    found = cli.task("GET", task, "/state", query)
    cli.show_list(
        found, "values", COLUMNS, f"No values of {task} found.", space=space, more="--after"
    )


@state_app.command("get")
def get(context: typer.Context, task: TaskName, key: Key, space: SpaceName = None) -> None:
    """Write a value of a task as JSON.

    Example: rota state get report last-day
    """
    cli = CliContext(context)
    found = cli.task("GET", task, _part("state", key), {"space": space})
    cli.out.record(found)
    cli.out.line(compact(found["value"]))


@state_app.command("set")
def set_value(
    context: typer.Context,
    task: TaskName,
    key: Key,
    value: Annotated[
        str,
        typer.Argument(metavar="JSON", help="Value; - reads standard input, @FILE a file"),
    ],
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Store a value of a task, replacing an earlier one.

    Example: rota state set report last-day '"2026-11-15"'
    """
    cli = CliContext(context)
    read = json_value("value", value)
    if read is None:
        raise Invalid("value", value, "null cannot be stored: use `rota state delete`")
    task = resolve_task_name(cli, task, space)
    body = {"value": read, "space": space}
    stored = cli.task("PUT", task, _part("state", key), body, dry_run=dry_run)
    cli.out.record(stored)
    cli.out.line(f"Stored {stored['key']} of {task}.")


@state_app.command()
def delete(
    context: typer.Context,
    task: TaskName,
    key: Key,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Delete a value of a task.

    Example: rota state delete report last-day
    """
    cli = CliContext(context)
    task = resolve_task_name(cli, task, space)
    cli.out.confirm(f"Delete {key} of {task}?", yes=yes or dry_run)
    body = {"space": space}
    cli.out.record(cli.task("DELETE", task, _part("state", key), body, dry_run=dry_run))
    cli.out.line(f"Deleted {key} of {task}.")


def _part(kind: str, name: str) -> str:
    return f"/{kind}/{quote(name, safe='')}"


Provider = Annotated[
    str | None,
    typer.Option("--provider", metavar="NAME", help="Provider of the items [default: default]"),
]

seen_app = typer.Typer(
    help="Manage the items that a task has seen, so that it handles each once.\n\n"
    "Example: rota seen mark inbox mail-4711",
    rich_markup_mode=None,
)


@seen_app.command()
def mark(
    context: typer.Context,
    task: TaskName,
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="Items to mark as seen")],
    provider: Provider = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON", help="Data to store with the items")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Mark items as seen, and show which are new.

    Example: rota seen mark inbox mail-4711 mail-4712
    """
    cli = CliContext(context)
    common = {"provider": provider, "data": json_value("data", data)}
    given = {name: value for name, value in common.items() if value is not None}
    body = {"items": [{"item": item, **given} for item in items], "space": space}
    found = cli.task("POST", task, "/seen", body, dry_run=dry_run)
    cli.out.record(found)
    for item in found["items"]:
        cli.out.line(f"{item['item']}: {'new' if item['new'] else f'seen {_count(item)}'}")


@seen_app.command()
def show(
    context: typer.Context,
    task: TaskName,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Item to show")],
    provider: Provider = None,
    space: SpaceName = None,
) -> None:
    """Show a seen item; exits with 3 if the task has not seen it.

    Example: rota seen show inbox mail-4711
    """
    cli = CliContext(context)
    query = {"provider": provider, "space": space}
    found = cli.task("GET", task, _part("seen", item), query)
    cli.out.record(found)
    zone = cli.zone(space)
    cli.out.pairs(
        [
            ("item", found["item"]),
            ("provider", found["provider"]),
            ("seen", _count(found)),
            (f"first ({zone})", wall_time(found["first_seen_at"], zone)),
            (f"last ({zone})", wall_time(found["last_seen_at"], zone)),
            ("data", "" if found["data"] is None else compact(found["data"])),
        ]
    )


def _count(item: Record) -> str:
    return count_text(item["count"], "time")


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(state_app, name="state")
    app.add_typer(seen_app, name="seen")

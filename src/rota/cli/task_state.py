"""`rota state` and `rota seen`."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.cli.arguments import (
    DryRun,
    SpaceName,
    TaskName,
    Yes,
    json_value,
    resolve_task_name,
    whole_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import compact, wall_time
from rota.errors import Invalid
from rota.flow.observe.time_text import count_text, first_line

MAX_LISTED = 1_000
SHORT = 60

Key = Annotated[str, typer.Argument(metavar="KEY", help="Under which name.")]

state_app = typer.Typer(
    help="State: values that a task keeps from run to run.\n\n"
    "Example: rota state set report last-day '\"2026-11-15\"'",
    rich_markup_mode=None,
)


@state_app.command("list")
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
    desk = CliContext(context)
    task = resolve_task_name(desk, task, space)
    most = whole_number("limit", limit, 1, MAX_LISTED)
    found = _ask_state(
        desk, "GET", task, None, {"after": after or None, "limit": most, "space": space}
    )
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(space)
    rows = [
        [
            value["key"],
            wall_time(value["updated_at"], zone),
            value["updated_by"],
            first_line(compact(value["value"]), SHORT),
        ]
        for value in found["values"]
    ]
    columns = ["key", f"changed ({zone})", "by", "value"]
    desk.out.table(columns, rows, f"{task} keeps nothing.")
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --after {found['next']}")


@state_app.command("get")
def get(context: typer.Context, task: TaskName, key: Key, space: SpaceName = None) -> None:
    """Write a value that a task keeps, as JSON.

    Example: rota state get report last-day
    """
    desk = CliContext(context)
    found = _ask_state(desk, "GET", task, key, {"space": space})
    desk.out.record(found)
    desk.out.line(compact(found["value"]))


@state_app.command("set")
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
    desk = CliContext(context)
    read = json_value("value", value)
    if read is None:
        raise Invalid("value", value, "null is no value: rota state delete forgets one")
    task = resolve_task_name(desk, task, space)
    kept = _ask_state(desk, "PUT", task, key, {"value": read, "space": space}, dry_run=dry_run)
    desk.out.record(kept)
    desk.out.line(f"Kept {kept['key']} for {task}.")


@state_app.command()
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
    desk = CliContext(context)
    task = resolve_task_name(desk, task, space)
    desk.out.confirm(f"Forget {key} of {task}?", yes=yes or dry_run)
    gone = _ask_state(desk, "DELETE", task, key, {"space": space}, dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(f"Forgot {key} of {task}.")


def _ask_state(
    desk: CliContext,
    method: str,
    task: str,
    key: str | None,
    said: Record,
    *,
    dry_run: bool = False,
) -> Record:
    rest = "/state" if key is None else f"/state/{quote(key, safe='')}"
    return desk.task(method, task, rest, said, dry_run=dry_run)


Provider = Annotated[
    str | None, typer.Option("--provider", metavar="NAME", help="Whose item it is [default].")
]

seen_app = typer.Typer(
    help="Seen items: what a task has come across, so that nothing is done twice.\n\n"
    "Example: rota seen mark inbox mail-4711",
    rich_markup_mode=None,
)


@seen_app.command()
def mark(
    context: typer.Context,
    task: TaskName,
    items: Annotated[list[str], typer.Argument(metavar="ITEM...", help="What was come across.")],
    provider: Provider = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="JSON", help="What to keep with the items.")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Count items as seen once more, and say which are new.

    Example: rota seen mark inbox mail-4711 mail-4712
    """
    desk = CliContext(context)
    more = {"provider": provider, "data": json_value("data", data)}
    said = {name: value for name, value in more.items() if value is not None}
    wanted = {"items": [{"item": item, **said} for item in items], "space": space}
    found = _ask_seen(desk, "POST", task, None, wanted, dry_run=dry_run)
    desk.out.record(found)
    for item in found["items"]:
        desk.out.line(f"{item['item']}: {'new' if item['new'] else f'seen {_often(item)}'}")


@seen_app.command()
def show(
    context: typer.Context,
    task: TaskName,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="What was come across.")],
    provider: Provider = None,
    space: SpaceName = None,
) -> None:
    """Show an item as a task has seen it; one that is not known is not found (exit code 3).

    Example: rota seen show inbox mail-4711
    """
    desk = CliContext(context)
    found = _ask_seen(desk, "GET", task, item, {"provider": provider, "space": space})
    desk.out.record(found)
    zone = desk.zone(space)
    desk.out.pairs(
        [
            ("item", found["item"]),
            ("provider", found["provider"]),
            ("seen", _often(found)),
            (f"first ({zone})", wall_time(found["first_seen_at"], zone)),
            (f"last ({zone})", wall_time(found["last_seen_at"], zone)),
            ("data", "" if found["data"] is None else compact(found["data"])),
        ]
    )


def _often(item: Record) -> str:
    return count_text(item["count"], "time")


def _ask_seen(
    desk: CliContext,
    method: str,
    task: str,
    item: str | None,
    said: Record,
    *,
    dry_run: bool = False,
) -> Record:
    rest = "/seen" if item is None else f"/seen/{quote(item, safe='')}"
    return desk.task(method, task, rest, said, dry_run=dry_run)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(state_app, name="state")
    app.add_typer(seen_app, name="seen")

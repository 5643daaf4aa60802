"""`rota seen`: what a task has come across already."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.show import compact, wall
from rota.doors.cli.values import DryRun, SpaceName, TaskName, json_value
from rota.flow.observe.telling import counted

Provider = Annotated[
    str | None, typer.Option("--provider", metavar="NAME", help="Whose item it is [default].")
]

nouns = typer.Typer(
    help="Seen items: what a task has come across, so that nothing is done twice.\n\n"
    "Example: rota seen mark inbox mail-4711",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="seen")


@nouns.command()
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
    desk = Desk(context)
    more = {"provider": provider, "data": json_value("data", data)}
    said = {name: value for name, value in more.items() if value is not None}
    wanted = {"items": [{"item": item, **said} for item in items], "space": space}
    found = _ask(desk, "POST", task, None, wanted, dry_run=dry_run)
    desk.out.record(found)
    for item in found["items"]:
        desk.out.line(f"{item['item']}: {'new' if item['new'] else f'seen {_often(item)}'}")


@nouns.command()
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
    desk = Desk(context)
    found = _ask(desk, "GET", task, item, {"provider": provider, "space": space})
    desk.out.record(found)
    zone = desk.zone(space)
    desk.out.pairs(
        [
            ("item", found["item"]),
            ("provider", found["provider"]),
            ("seen", _often(found)),
            (f"first ({zone})", wall(found["first_seen_at"], zone)),
            (f"last ({zone})", wall(found["last_seen_at"], zone)),
            ("data", "" if found["data"] is None else compact(found["data"])),
        ]
    )


def _often(item: Record) -> str:
    return counted(item["count"], "time")


def _ask(
    desk: Desk, method: str, task: str, item: str | None, said: Record, *, dry_run: bool = False
) -> Record:
    rest = "" if item is None else f"/{quote(item, safe='')}"
    return desk.task(method, task, rest, said, dry_run=dry_run, noun="seen")

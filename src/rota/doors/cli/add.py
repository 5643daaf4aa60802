"""`rota add`: a task for an agent, said in one line."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.idle_words import tell_if_idle
from rota.doors.cli.show import wall_named
from rota.doors.cli.task_options import LOCAL_THREAD, thread_of
from rota.doors.cli.task_words import tell_defined
from rota.doors.cli.values import DryRun, SpaceName, text_or_input

FIRES = 3


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("add")(add)


def add(
    context: typer.Context,
    when: Annotated[str, typer.Argument(metavar="WHEN", help="In words, or a cron line.")],
    what: Annotated[str, typer.Argument(metavar="WHAT", help="Instructions; - reads them.")],
    thread: Annotated[
        str | None,
        typer.Option("--in", metavar="THREAD", help="Conversation, 'cli:tax' [ROTA_THREAD_KEY]."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name [made of WHAT].")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of WHEN [the space's].")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Give an agent something to do, at times said in words.

    Results go to the conversation, or stay with the runs if there is none but this terminal.

    Example: rota add "weekdays 7:00" "Summarise my inbox" --in cli:inbox
    """
    desk = Desk(context, makes=True)
    schedule = {"words": when} | ({} if timezone is None else {"timezone": timezone})
    place = thread_of(desk, thread, space)
    away = not place.startswith(f"{LOCAL_THREAD}:")
    wanted = {
        "name": name,
        "instructions": text_or_input(what),
        "schedule": schedule,
        "thread": place,
        "policy": {"deliver_to": place} if away else None,
        "space": space,
    }
    if dry_run and not desk.out.as_json:
        _preview(desk, schedule, space)
    tell_defined(desk.out, desk.call("POST", "/v1/tasks", wanted, dry_run=dry_run), "Added")
    tell_if_idle(desk)


def _preview(desk: Desk, schedule: dict[str, str], space: str | None) -> None:
    wanted = {"schedule": schedule, "n": FIRES, "space": space}
    seen = desk.call("POST", "/v1/schedules/preview", wanted)
    desk.out.line(seen["words"])
    for fire in seen["fires"]:
        desk.out.line(f"  {wall_named(fire, seen['timezone'])}")

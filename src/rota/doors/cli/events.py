"""`rota events`: what happens, as it happens."""

from __future__ import annotations

import sys
import time
from typing import Annotated
from urllib.parse import urlencode

import typer

from rota.doors.cli.desk import AGAIN_SECONDS, Desk
from rota.doors.cli.remote import Told
from rota.doors.cli.run_words import event_row
from rota.doors.cli.values import LARGEST, maybe_whole
from rota.doors.kit.faults import INTERRUPTED
from rota.errors import Unavailable

SETTLED = "run.settled"
RESET = "reset"
WIDTH = 18


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("events")(events)


def events(
    context: typer.Context,
    follow: Annotated[  # noqa: ARG001 - there is nothing else to do
        bool, typer.Option("-f", "--follow", help="Go on until Ctrl-C, as it always does.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Only of this run, from its first.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Go on after this event.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """Tell events as they happen; a daemon that restarts is waited for, and none is left out.

    With --json every event is a line, with its cursor.

    Example: rota events -f
    """
    desk = Desk(context)
    number = maybe_whole("run", run, 1, LARGEST)
    path = "/v1/events" if number is None else f"/v1/runs/{number}/events"
    if space is not None and number is None:
        path += "?" + urlencode({"space": space})
    last, begun = after, False
    try:
        while True:
            daemon = desk.daemon()
            if daemon is None and not begun:
                message = f"no daemon works for {desk.around.home}: start `rota up`"
                raise Unavailable(message)
            try:
                for told in daemon.follow(path, last) if daemon is not None else ():
                    if not begun:
                        desk.out.talk("Following; Ctrl-C ends it.")
                    last, begun = told.id, True
                    _tell(desk, told)
                    if number is not None and told.name == SETTLED:
                        return
            except Unavailable:
                if not begun:
                    raise
            time.sleep(AGAIN_SECONDS)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _tell(desk: Desk, told: Told) -> None:
    if told.data is None:
        return
    desk.out.entry({"cursor": told.id, **told.data})
    if told.name == RESET:
        desk.out.talk(f"Something may be missing here: {told.data.get('reason', '')}")
    elif not desk.out.as_json:
        name, at, data = event_row(told.data, desk.zone())
        of = f"run {told.data['run']}" if told.data.get("run") else ""
        desk.out.line(f"{at}  {name:<{WIDTH}}  {of:<9}  {data}".rstrip())
    sys.stdout.flush()

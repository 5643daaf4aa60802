"""`rota open`: where the API is."""

from __future__ import annotations

import sys

import typer

from rota.doors.cli.desk import Desk
from rota.errors import Unavailable


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("open")(show)


def show(context: typer.Context) -> None:
    """Write the address of the API; on a terminal, open it in a browser too.

    Example: rota open
    """
    desk = Desk(context)
    found = desk.daemon()
    if found is None:
        message = f"no daemon works for {desk.around.home}: start `rota up`"
        raise Unavailable(message)
    desk.out.record({"url": found.url})
    desk.out.line(found.url)
    if sys.stdout.isatty() and not desk.out.as_json:
        import webbrowser  # noqa: PLC0415 - slow to load

        webbrowser.open(found.url)

"""`rota worker` and `rota machine`: who works, and where."""

from __future__ import annotations

from datetime import timedelta

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import instant
from rota.doors.cli.status import NOBODY
from rota.doors.cli.values import now
from rota.flow.observe.telling import span

workers = typer.Typer(
    help="Workers: processes that run what is queued.\n\nExample: rota worker list",
    rich_markup_mode=None,
)
machines = typer.Typer(
    help="Machines: hosts on which workers are.\n\nExample: rota machine list",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(workers, name="worker")
    app.add_typer(machines, name="machine")


@workers.command("list")
def list_workers(context: typer.Context) -> None:
    """List workers, and what each can run.

    Example: rota worker list
    """
    desk = Desk(context)
    found = desk.call("GET", "/v1/workers")
    desk.out.record(found)
    rows = [
        [
            worker["id"],
            f"{worker['host']}, process {worker['pid']}",
            "alive" if worker["alive"] else "gone",
            f"{worker['running']} of {worker['slots']}",
            _ago(worker["seen_at"]),
            ", ".join(worker["routes"]),
        ]
        for worker in found["workers"]
    ]
    desk.out.table(["worker", "where", "state", "busy", "seen", "runs"], rows, NOBODY)


@machines.command("list")
def list_machines(context: typer.Context) -> None:
    """List the hosts on which workers are.

    Example: rota machine list
    """
    desk = Desk(context)
    found = desk.call("GET", "/v1/machines")
    desk.out.record(found)
    rows = [
        [
            machine["host"],
            f"{machine['alive']} of {machine['workers']} alive",
            f"{machine['running']} of {machine['slots']}",
            _ago(machine["seen_at"]),
        ]
        for machine in found["machines"]
    ]
    desk.out.table(["machine", "workers", "busy", "seen"], rows, NOBODY)


def _ago(at: str) -> str:
    return f"{span(max(now() - instant(at), timedelta()))} ago"

"""`rota worker` and `rota machine`: who works, and where."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.idle_words import NOBODY
from rota.doors.cli.requests import MOST_LISTED
from rota.doors.cli.show import instant, iso, wall
from rota.doors.cli.status import gone_words, in_sight
from rota.doors.cli.tables import NOTHING
from rota.doors.cli.values import now, whole
from rota.flow.observe.telling import first_line, span
from rota.model.programs import MIB
from rota.timing.durations import parse_duration

workers = typer.Typer(
    help="Workers: processes that run what is queued.\n\nExample: rota worker list",
    rich_markup_mode=None,
)
machines = typer.Typer(
    help="Machines: hosts on which workers are, and how busy.\n\nExample: rota machine list",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(workers, name="worker")
    app.add_typer(machines, name="machine")


@workers.command("list")
def list_workers(context: typer.Context) -> None:
    """List the workers that are alive, and what each can run; the record has all of them.

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
        for worker in in_sight(found["workers"])
    ]
    desk.out.table(["worker", "where", "state", "busy", "seen", "runs"], rows, NOBODY)
    if gone := gone_words(found["workers"]):
        desk.out.line(gone)


@machines.command("list")
def list_machines(context: typer.Context) -> None:
    """List the hosts on which workers are, and how busy each is as a whole.

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
            *_load(machine),
            _ago(machine["seen_at"]),
        ]
        for machine in found["machines"]
    ]
    desk.out.table(["machine", "workers", "busy", "cpu", "memory", "seen"], rows, NOBODY)


@machines.command("history")
def list_readings(
    context: typer.Context,
    since: Annotated[
        str, typer.Option("--since", metavar="SPAN", help="How far back: 30m, 6h, 7d.")
    ] = "1h",
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="Only of this machine.")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "60",
) -> None:
    """Show how machines were doing: one line for each heartbeat of a daemon, newest first.

    Example: rota machine history --since 6h
    """
    desk = Desk(context)
    wanted = {
        "since": iso(now() - parse_duration(since, field="since")),
        "host": host,
        "limit": whole("limit", limit, 1, MOST_LISTED),
    }
    found = desk.call("GET", "/v1/machines/readings", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(None)
    rows = [
        [
            wall(reading["at"], zone),
            reading["host"],
            str(reading["running"]),
            str(reading["agents"]),
            str(reading["spaces"]),
            *_load(reading),
        ]
        for reading in found["readings"]
    ]
    heads = [f"at ({zone})", "machine", "running", "agents", "spaces", "cpu", "memory"]
    desk.out.table(heads, rows, "No daemon has told of its machine since then.")


@machines.command("agents")
def list_heartbeats(
    context: typer.Context,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "100",
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """Show what was last heard of everything that runs, longest unheard first.

    Example: rota machine agents
    """
    desk = Desk(context)
    wanted = {"limit": whole("limit", limit, 1, MOST_LISTED), "space": space}
    found = desk.call("GET", "/v1/heartbeats", wanted)
    desk.out.record(found)
    rows = [
        [
            str(one["run"]),
            one["task"],
            one["executor"] or "function",
            one["silence"] or one["state"],
            _ago(one["heard_at"]),
            _mebibytes(one["memory_bytes"]),
            first_line(one["last_line"]),
        ]
        for one in found["heartbeats"]
    ]
    heads = ["run", "task", "where", "state", "heard", "memory", "last line"]
    desk.out.table(heads, rows, "Nothing runs of which a heartbeat has told yet.")


def _load(told: dict[str, Any]) -> list[str]:
    cpu, total = told["cpu_percent"], told["memory_total"]
    memory = _mebibytes(told["memory_bytes"])
    return [
        NOTHING if cpu is None else f"{cpu:.0f} %",
        memory if total is None else f"{memory} of {_mebibytes(total)}",
    ]


def _mebibytes(count: int | None) -> str:
    return NOTHING if count is None else f"{count / MIB:,.0f} MiB"


def _ago(at: str) -> str:
    return f"{span(max(now() - instant(at), timedelta()))} ago"

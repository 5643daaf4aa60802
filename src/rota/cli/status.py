"""`rota status`, `watch`, `worker` and `machine`."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.arguments import Limit, SpaceFilter, now, page, whole_number
from rota.cli.context import CliContext, Record
from rota.cli.display import (
    NOTHING,
    Column,
    Display,
    instant,
    iso,
    rich_table,
    wall_time_with_zone,
)
from rota.cli.run_text import run_columns, run_row
from rota.cli.terminal_filter import painted
from rota.errors import RotaError, Unavailable
from rota.flow.observe.time_text import count_text, duration_text, first_line
from rota.model.programs import MIB
from rota.model.text import visible
from rota.timing.durations import parse_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

SLOT_COLUMNS = ("run", "task", "space", "for", "worker")
WORKER_COLUMNS = ("worker", "state", "slots", "seen", "roles")
MAX_SLOTS = 20
LATE = timedelta(seconds=1)
"""Delay of an unplanned slot from which it is shown as late."""
NO_WORKERS = "No worker is running: start `rota up`."


def status(context: typer.Context) -> None:
    """Show the queue, the workers and warnings.

    Example: rota status --json
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/status")
    cli.out.record(found)
    show_status(cli.out, found)


def show_status(out: Display, status: Record) -> None:
    """Write the queue, the workers and warnings."""
    out.pairs(queue_pairs(status))
    out.line()
    out.table(WORKER_COLUMNS, worker_rows(status), idle_text(status) or NO_WORKERS)
    if gone := gone_text(status["workers"]):
        out.line(gone)
    rows = slot_rows(status)
    if rows:
        out.line()
        out.table(SLOT_COLUMNS, rows, "")
        if status["slots"]["used"] > len(rows):
            more = status["slots"]["used"] - len(rows)
            out.line(f"and {more} more: see `rota runs --state running`")
    if status["warnings"]:
        out.line()
    for warning in status["warnings"]:
        out.line(f"! {warning['code']}: {warning['message']}")


def queue_pairs(status: Record) -> list[tuple[str, str]]:
    """Return the counts of the queue with their names."""
    queue = status["queue"]
    due = status["next_due"]
    next_due = "" if due is None else f", {_next_text(due, status['at'])}"
    paused = status["paused_since"]
    since = "" if paused is None else f"for {_until(status['at'], paused)}: rota resume-all"
    return [
        ("paused", since),
        ("ready", _with_age(queue, "ready")),
        ("delayed", str(queue["delayed"])),
        ("held", f"{queue['held']} by their lanes" if queue["held"] else ""),
        ("running", _with_age(queue, "running")),
        ("waiting", _with_age(queue, "waiting")),
        ("schedules", f"{status['schedules']['active']}{next_due}"),
    ]


def worker_rows(status: Record) -> list[list[str]]:
    """Return the visible workers as rows."""
    return [
        [
            worker["id"],
            _worker_state(worker),
            _busy_text(worker),
            f"{duration_text(instant(status['at']) - instant(worker['seen_at']))} ago",
            ",".join(worker["roles"]),
        ]
        for worker in visible_workers(status["workers"])
    ]


def visible_workers(workers: list[Record]) -> list[Record]:
    """Return the workers that are alive, and lost ones that still have runs."""
    return [worker for worker in workers if worker["alive"] or worker["running"]]


def gone_text(workers: list[Record]) -> str:
    """Return how many workers are not shown; empty if all are."""
    gone = len(workers) - len(visible_workers(workers))
    return f"{count_text(gone, 'worker')} {'is' if gone == 1 else 'are'} gone." if gone else ""


def slot_rows(status: Record) -> list[list[str]]:
    """Return the worker slots in use as rows, longest first."""
    return [
        [
            str(slot["run"]),
            slot["task"],
            slot["space"],
            duration_text(max(instant(status["at"]) - instant(slot["since"]), timedelta())),
            slot["worker"] or "",
        ]
        for slot in status["slots"]["running"][:MAX_SLOTS]
    ]


def _worker_state(worker: Record) -> str:
    return "alive" if worker["alive"] else "gone"


def _busy_text(one: Record) -> str:
    return f"{one['running']} of {one['slots']}"


def _with_age(queue: Record, name: str) -> str:
    count, age = queue[name], queue["oldest_seconds"].get(name)
    if age is None or not count:
        return str(count)
    return f"{count}, oldest {duration_text(timedelta(seconds=age))}"


def _next_text(due: str, at: str) -> str:
    late = instant(at) - instant(due)
    return f"next in {_until(due, at)}" if late < LATE else f"next due {duration_text(late)} ago"


def _until(due: str, at: str) -> str:
    return duration_text(max(instant(due) - instant(at), timedelta()))


REFRESH_SECONDS = 1.0
MAX_RUNS = 200


def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show it once and exit")] = False,
    runs: Annotated[
        str, typer.Option("--runs", metavar="N", help="Number of newest runs to show")
    ] = "15",
) -> None:
    """Show the queue, the workers and the newest runs, refreshed until Ctrl-C.

    Example: rota watch
    """
    cli = CliContext(context)
    limit = whole_number("runs", runs, 1, MAX_RUNS)
    if once or cli.out.as_json or not sys.stdout.isatty():
        _show_once(cli, limit)
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.live import Live  # noqa: PLC0415

    try:
        with Live(
            console=Console(file=painted(sys.stdout)), screen=True, auto_refresh=False
        ) as live:
            while True:
                live.update(_screen(cli, limit), refresh=True)
                time.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:
        return


def _show_once(cli: CliContext, limit: int) -> None:
    status = cli.call("GET", "/v1/status")
    found = cli.call("GET", "/v1/runs", {"limit": limit})
    cli.out.record({"status": status, "runs": found["runs"]})
    if cli.out.as_json:
        return
    zone = cli.zone()
    show_status(cli.out, status)
    cli.out.line()
    cli.out.table(
        run_columns(zone), [run_row(run, zone) for run in found["runs"]], "No runs found."
    )


def _screen(cli: CliContext, limit: int) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415 - slow to load
    from rich.text import Text  # noqa: PLC0415

    try:
        zone = cli.zone()
        status = cli.call("GET", "/v1/status")
        found = cli.call("GET", "/v1/runs", {"limit": limit})["runs"]
    except Unavailable as error:
        cli.reconnect()
        return Text(visible(f"{error}; retrying"), style="yellow")
    queue = "   ".join(f"{name} {value}" for name, value in queue_pairs(status) if value)
    lines = [visible(f"! {w['code']}: {w['message']}") for w in status["warnings"]]
    warnings = [Text(line, style="yellow") for line in lines]
    workers: Any = Text(visible(idle_text(status) or NO_WORKERS), style="yellow")
    rows = worker_rows(status)
    if rows:
        workers = rich_table(WORKER_COLUMNS, rows)
    return Group(
        Text(
            f"Rota  {wall_time_with_zone(status['at'], zone)}   press Ctrl-C to exit", style="bold"
        ),
        Text(queue),
        *warnings,
        Text(),
        workers,
        Text(),
        rich_table(run_columns(zone), [run_row(run, zone) for run in found]),
    )


worker_app = typer.Typer(
    help="Show workers: processes that execute runs.\n\nExample: rota worker list",
    rich_markup_mode=None,
)
machine_app = typer.Typer(
    help="Show the hosts of workers and their load.\n\nExample: rota machine list",
    rich_markup_mode=None,
)


@worker_app.command("list")
def list_workers(context: typer.Context) -> None:
    """List live workers and what each can run; the JSON output has all workers.

    Example: rota worker list
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/workers")
    cli.out.record(found)
    rows = [
        [
            worker["id"],
            f"{worker['host']}, process {worker['pid']}",
            _worker_state(worker),
            _busy_text(worker),
            _ago(worker["seen_at"]),
            ", ".join(worker["routes"]),
        ]
        for worker in visible_workers(found["workers"])
    ]
    columns = ["worker", "host", "state", "slots", "seen", "routes"]
    cli.out.table(columns, rows, NO_WORKERS)
    if gone := gone_text(found["workers"]):
        cli.out.line(gone)


@machine_app.command("list")
def list_machines(context: typer.Context) -> None:
    """List the hosts of workers with their load.

    Example: rota machine list
    """
    cli = CliContext(context)
    columns = (
        Column("machine", "host"),
        Column("workers", lambda one: f"{one['alive']} of {one['workers']} alive"),
        Column("slots", _busy_text),
        Column("cpu", _cpu_text),
        Column("memory", _memory_text),
        Column("seen", lambda one: _ago(one["seen_at"])),
    )
    cli.show_list(cli.call("GET", "/v1/machines"), "machines", columns, NO_WORKERS)


@machine_app.command("samples")
def list_samples(
    context: typer.Context,
    since: Annotated[
        str, typer.Option("--since", metavar="LENGTH", help="How far back, such as 30m, 6h or 7d")
    ] = "1h",
    host: Annotated[
        str | None, typer.Option("--host", metavar="NAME", help="List only those of a machine")
    ] = None,
    limit: Limit = "60",
) -> None:
    """List samples of the load of machines, newest first.

    Example: rota machine samples --since 6h
    """
    cli = CliContext(context)
    begin = iso(now() - parse_duration(since, field="since"))
    found = cli.call("GET", "/v1/machines/samples", {**page(limit), "since": begin, "host": host})
    columns = (
        Column("at", "at", is_time=True),
        Column("machine", "host"),
        Column("running", "running"),
        Column("agents", "agents"),
        Column("spaces", "spaces"),
        Column("cpu", _cpu_text),
        Column("memory", _memory_text),
    )
    cli.show_list(found, "samples", columns, "No samples found in this period.", more=None)


@machine_app.command("attempts")
def list_heartbeats(
    context: typer.Context, limit: Limit = "100", space: SpaceFilter = None
) -> None:
    """List running attempts with their last heartbeats, oldest heartbeat first.

    Example: rota machine attempts
    """
    cli = CliContext(context)
    found = cli.call("GET", "/v1/heartbeats", {**page(limit), "space": space})
    columns = (
        Column("run", "run"),
        Column("task", "task"),
        Column("executor", lambda one: one["executor"] or "inprocess"),
        Column("state", lambda one: one["missed_reason"] or one["state"]),
        Column("heartbeat", lambda one: _ago(one["seen_at"])),
        Column("memory", lambda one: _mebibytes(one["memory_bytes"])),
        Column("last line", lambda one: first_line(one["last_line"])),
    )
    cli.show_list(found, "heartbeats", columns, "No running attempts with a heartbeat found.")


def _cpu_text(load: Record) -> str:
    cpu = load["cpu_percent"]
    return NOTHING if cpu is None else f"{cpu:.0f} %"


def _memory_text(load: Record) -> str:
    used, total = _mebibytes(load["memory_bytes"]), load["memory_total"]
    return used if total is None else f"{used} of {_mebibytes(total)}"


def _mebibytes(count: int | None) -> str:
    return NOTHING if count is None else f"{count / MIB:,.0f} MiB"


def _ago(at: str) -> str:
    return f"{duration_text(max(now() - instant(at), timedelta()))} ago"


def idle_text(status: Record) -> str:
    """Return why no worker claims runs; empty if one does."""
    idle = str(status.get("idle") or "")
    return idle and f"{idle[0].upper()}{idle[1:]}."


def warn_if_idle(cli: CliContext) -> bool:
    """Write why no worker claims runs, and what to do about it; return whether that is so."""
    text = "" if cli.out.as_json else find_idle_reason(cli)
    if text:
        cli.out.talk(text)
    return bool(text)


def find_idle_reason(cli: CliContext) -> str:
    """Return why no worker claims runs; empty if one does, or if the caller may not know."""
    try:
        return idle_text(cli.call("GET", "/v1/status"))
    except RotaError:  # not every caller may read the status, and a daemon may be restarting
        return ""


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("status")(status)
    app.command("watch")(watch)
    app.add_typer(worker_app, name="worker")
    app.add_typer(machine_app, name="machine")

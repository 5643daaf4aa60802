"""`rota status`, `watch`, `worker` and `machine`."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.arguments import now, whole_number
from rota.cli.context import CliContext, Record
from rota.cli.display import (
    NOTHING,
    Display,
    instant,
    iso,
    rich_table,
    wall_time,
    wall_time_with_zone,
)
from rota.cli.keys import MAX_LISTED
from rota.cli.run_text import run_columns, run_row
from rota.cli.terminal_filter import painted
from rota.errors import RotaError, Unavailable
from rota.flow.observe.time_text import count_text, duration_text, first_line
from rota.model.programs import MIB
from rota.model.text import visible
from rota.timing.durations import parse_duration

if TYPE_CHECKING:
    from rich.console import RenderableType

SLOTS = ("run", "task", "space", "for", "worker")
MOST_SHOWN = 20
LATE = timedelta(seconds=1)
"""From when on a slot that is not planned yet is told as late."""
COLUMNS = ("worker", "state", "busy", "seen", "roles")


def status(context: typer.Context) -> None:
    """Show the queue, the workers, and warnings.

    Example: rota status --json
    """
    desk = CliContext(context)
    seen = desk.call("GET", "/v1/status")
    desk.out.record(seen)
    tell_status(desk.out, seen)


def tell_status(out: Display, seen: Record) -> None:
    """Tell how the whole is doing."""
    out.pairs(queue_pairs(seen))
    out.line()
    out.table(COLUMNS, worker_rows(seen), idle_words(seen) or NOBODY)
    if gone := gone_words(seen["workers"]):
        out.line(gone)
    rows = slot_rows(seen)
    if rows:
        out.line()
        out.table(SLOTS, rows, "")
        if seen["slots"]["used"] > len(rows):
            out.line(f"and {seen['slots']['used'] - len(rows)} more: rota runs --state running")
    if seen["warnings"]:
        out.line()
    for warning in seen["warnings"]:
        out.line(f"! {warning['code']}: {warning['message']}")


def queue_pairs(seen: Record) -> list[tuple[str, str]]:
    """Return how full the queue is, in words."""
    queue = seen["queue"]
    due = seen["next_due"]
    ahead = "" if due is None else f", {_next(due, seen['at'])}"
    paused = seen["paused_since"]
    since = "" if paused is None else f"for {_until(seen['at'], paused)}: rota resume-all"
    return [
        ("paused", since),
        ("ready", _with_age(queue, "ready")),
        ("delayed", str(queue["delayed"])),
        ("held", f"{queue['held']} in their lanes" if queue["held"] else ""),
        ("running", _with_age(queue, "running")),
        ("waiting", _with_age(queue, "waiting")),
        ("schedules", f"{seen['schedules']['active']}{ahead}"),
    ]


def worker_rows(seen: Record) -> list[list[str]]:
    """Return who works, or is gone and has not let go of its work."""
    return [
        [
            worker["id"],
            "alive" if worker["alive"] else "gone",
            f"{worker['running']} of {worker['slots']}",
            f"{duration_text(instant(seen['at']) - instant(worker['seen_at']))} ago",
            ",".join(worker["roles"]),
        ]
        for worker in in_sight(seen["workers"])
    ]


def in_sight(workers: list[Record]) -> list[Record]:
    """Return the workers that are alive, and those that are gone with work in their hands."""
    return [worker for worker in workers if worker["alive"] or worker["running"]]


def gone_words(workers: list[Record]) -> str:
    """Return how many workers are gone and not shown; empty if none is."""
    gone = len(workers) - len(in_sight(workers))
    return f"{count_text(gone, 'worker')} {'is' if gone == 1 else 'are'} gone." if gone else ""


def slot_rows(seen: Record) -> list[list[str]]:
    """Return what is in the slots, the longest first."""
    return [
        [
            str(slot["run"]),
            slot["task"],
            slot["space"],
            duration_text(max(instant(seen["at"]) - instant(slot["since"]), timedelta())),
            slot["worker"] or "",
        ]
        for slot in seen["slots"]["running"][:MOST_SHOWN]
    ]


def _with_age(queue: Record, name: str) -> str:
    count, age = queue[name], queue["oldest_seconds"].get(name)
    if age is None or not count:
        return str(count)
    return f"{count}, oldest {duration_text(timedelta(seconds=age))}"


def _next(due: str, at: str) -> str:
    late = instant(at) - instant(due)
    return f"next in {_until(due, at)}" if late < LATE else f"next due {duration_text(late)} ago"


def _until(due: str, at: str) -> str:
    return duration_text(max(instant(due) - instant(at), timedelta()))


REFRESH_SECONDS = 1.0
MOST_RUNS = 200


def watch(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show it once and end.")] = False,
    runs: Annotated[str, typer.Option("--runs", metavar="N", help="So many runs.")] = "15",
) -> None:
    """Watch the queue, the workers and the newest runs until Ctrl-C.

    Example: rota watch
    """
    desk = CliContext(context)
    most = whole_number("runs", runs, 1, MOST_RUNS)
    if once or desk.out.as_json or not sys.stdout.isatty():
        _show_once(desk, most)
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.live import Live  # noqa: PLC0415

    try:
        with Live(
            console=Console(file=painted(sys.stdout)), screen=True, auto_refresh=False
        ) as live:
            while True:
                live.update(_screen(desk, most), refresh=True)
                time.sleep(REFRESH_SECONDS)
    except KeyboardInterrupt:
        return


def _show_once(desk: CliContext, most: int) -> None:
    status = desk.call("GET", "/v1/status")
    found = desk.call("GET", "/v1/runs", {"limit": most})
    desk.out.record({"status": status, "runs": found["runs"]})
    if desk.out.as_json:
        return
    zone = desk.zone()
    tell_status(desk.out, status)
    desk.out.line()
    desk.out.table(run_columns(zone), [run_row(run, zone) for run in found["runs"]], "No runs.")


def _screen(desk: CliContext, most: int) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415 - slow to load
    from rich.text import Text  # noqa: PLC0415

    try:
        zone = desk.zone()
        status = desk.call("GET", "/v1/status")
        found = desk.call("GET", "/v1/runs", {"limit": most})["runs"]
    except Unavailable as fault:
        desk.ask_anew()
        return Text(visible(f"{fault}; trying again"), style="yellow")
    queue = "   ".join(f"{name} {value}" for name, value in queue_pairs(status) if value)
    told = [visible(f"! {w['code']}: {w['message']}") for w in status["warnings"]]
    warnings = [Text(words, style="yellow") for words in told]
    workers: Any = Text(visible(idle_words(status) or NOBODY), style="yellow")
    rows = worker_rows(status)
    if rows:
        workers = rich_table(("worker", "state", "busy", "seen", "roles"), rows)
    return Group(
        Text(f"Rota  {wall_time_with_zone(status['at'], zone)}   Ctrl-C ends", style="bold"),
        Text(queue),
        *warnings,
        Text(),
        workers,
        Text(),
        rich_table(run_columns(zone), [run_row(run, zone) for run in found]),
    )


workers = typer.Typer(
    help="Workers: processes that run what is queued.\n\nExample: rota worker list",
    rich_markup_mode=None,
)
machines = typer.Typer(
    help="Machines: hosts on which workers are, and how busy.\n\nExample: rota machine list",
    rich_markup_mode=None,
)


@workers.command("list")
def list_workers(context: typer.Context) -> None:
    """List the workers that are alive, and what each can run; the record has all of them.

    Example: rota worker list
    """
    desk = CliContext(context)
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
    desk = CliContext(context)
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


@machines.command("samples")
def list_samples(
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

    Example: rota machine samples --since 6h
    """
    desk = CliContext(context)
    wanted = {
        "since": iso(now() - parse_duration(since, field="since")),
        "host": host,
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
    }
    found = desk.call("GET", "/v1/machines/samples", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    zone = desk.zone(None)
    rows = [
        [
            wall_time(sample["at"], zone),
            sample["host"],
            str(sample["running"]),
            str(sample["agents"]),
            str(sample["spaces"]),
            *_load(sample),
        ]
        for sample in found["samples"]
    ]
    heads = [f"at ({zone})", "machine", "running", "agents", "spaces", "cpu", "memory"]
    desk.out.table(heads, rows, "No daemon has told of its machine since then.")


@machines.command("attempts")
def list_heartbeats(
    context: typer.Context,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "100",
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """Show what was last heard of everything that runs, longest unheard first.

    Example: rota machine attempts
    """
    desk = CliContext(context)
    wanted = {"limit": whole_number("limit", limit, 1, MAX_LISTED), "space": space}
    found = desk.call("GET", "/v1/heartbeats", wanted)
    desk.out.record(found)
    rows = [
        [
            str(one["run"]),
            one["task"],
            one["executor"] or "function",
            one["missed_reason"] or one["state"],
            _ago(one["seen_at"]),
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
    return f"{duration_text(max(now() - instant(at), timedelta()))} ago"


NOBODY = "No worker is running: start `rota up`."


def idle_words(seen: Record) -> str:
    """Return why nobody takes work, by a status; empty if somebody does."""
    idle = str(seen.get("idle") or "")
    return idle and f"{idle[0].upper()}{idle[1:]}."


def tell_if_idle(desk: CliContext) -> bool:
    """Say that nobody takes what was just asked for, and what to do; return whether that is so."""
    words = "" if desk.out.as_json else look_if_idle(desk)
    if words:
        desk.out.talk(words)
    return bool(words)


def look_if_idle(desk: CliContext) -> str:
    """Return why nobody takes what was asked for; empty if somebody does."""
    try:
        return idle_words(desk.call("GET", "/v1/status"))
    except RotaError:  # the key may lack the scope, and a daemon may be restarting
        return ""


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("status")(status)
    app.command("watch")(watch)
    app.add_typer(workers, name="worker")
    app.add_typer(machines, name="machine")

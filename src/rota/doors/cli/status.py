"""`rota status`: how full the queue is, who works, and what to look at."""

from __future__ import annotations

from datetime import timedelta

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.idle_words import NOBODY, idle_words
from rota.doors.cli.show import Output, instant
from rota.flow.observe.telling import counted, span

SLOTS = ("run", "task", "space", "for", "worker")
MOST_SHOWN = 20
LATE = timedelta(seconds=1)
"""From when on a slot that is not planned yet is told as late."""
COLUMNS = ("worker", "state", "busy", "seen", "roles")


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("status")(status)


def status(context: typer.Context) -> None:
    """Show the queue, the workers, and warnings.

    Example: rota status --json
    """
    desk = Desk(context)
    seen = desk.call("GET", "/v1/status")
    desk.out.record(seen)
    tell_status(desk.out, seen)


def tell_status(out: Output, seen: Record) -> None:
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
        ("later", str(queue["later"])),
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
            f"{span(instant(seen['at']) - instant(worker['seen_at']))} ago",
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
    return f"{counted(gone, 'worker')} {'is' if gone == 1 else 'are'} gone." if gone else ""


def slot_rows(seen: Record) -> list[list[str]]:
    """Return what is in the slots, the longest first."""
    return [
        [
            str(slot["run"]),
            slot["task"],
            slot["space"],
            span(max(instant(seen["at"]) - instant(slot["since"]), timedelta())),
            slot["worker"] or "",
        ]
        for slot in seen["slots"]["running"][:MOST_SHOWN]
    ]


def _with_age(queue: Record, name: str) -> str:
    count, age = queue[name], queue["oldest_seconds"].get(name)
    if age is None or not count:
        return str(count)
    return f"{count}, oldest {span(timedelta(seconds=age))}"


def _next(due: str, at: str) -> str:
    late = instant(at) - instant(due)
    return f"next in {_until(due, at)}" if late < LATE else f"next due {span(late)} ago"


def _until(due: str, at: str) -> str:
    return span(max(instant(due) - instant(at), timedelta()))

"""`rota status`: how full the queue is, who works, and what to look at."""

from __future__ import annotations

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import iso
from rota.flow.observe.status import Status, Thresholds, view_status
from rota.flow.observe.telling import span
from rota.ports.store import Store


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("status")(status)


def status(context: typer.Context) -> None:
    """Show the queue, the workers, and warnings.

    Example: rota status --json
    """
    desk = Desk(context)
    settings = desk.settings()
    bounds = Thresholds(queue=settings.queue_warning, running=settings.running_warning)

    async def work(store: Store) -> Status:
        return await view_status(store, bounds)

    seen = desk.ask(work)
    desk.out.record(_record(seen))
    queue, now = seen.queue, seen.now
    desk.out.pairs(
        [
            ("ready", _with_age(queue.ready, seen.ages.get("ready"))),
            ("later", str(queue.later)),
            ("held", f"{queue.held} behind their lane" if queue.held else ""),
            ("running", _with_age(queue.running, seen.ages.get("running"))),
            ("waiting", _with_age(queue.waiting, seen.ages.get("waiting"))),
            ("schedules", str(queue.schedules)),
        ]
    )
    desk.out.line()
    rows = [
        [
            worker.id,
            "fenced" if worker.fenced else "gone" if worker.lease_until < now else "alive",
            f"{worker.running} of {worker.slots}",
            f"{span(now - worker.seen_at)} ago",
            worker.roles,
        ]
        for worker in seen.workers
    ]
    nobody = "Nobody works: start `rota up`."
    desk.out.table(["worker", "state", "busy", "seen", "roles"], rows, nobody)
    if seen.warnings:
        desk.out.line()
    for warning in seen.warnings:
        desk.out.line(f"! {warning.code}: {warning.sentence}")


def _with_age(count: int, age: float | None) -> str:
    if age is None or not count:
        return str(count)
    from datetime import timedelta  # noqa: PLC0415

    return f"{count}, oldest {span(timedelta(seconds=age))}"


def _record(seen: Status) -> dict[str, object]:
    queue = seen.queue
    return {
        "at": iso(seen.now),
        "queue": {
            "ready": queue.ready,
            "later": queue.later,
            "held": queue.held,
            "running": queue.running,
            "waiting": queue.waiting,
            "stuck": queue.stuck,
            "oldest_seconds": seen.ages,
        },
        "schedules": {"active": queue.schedules, "quarantined": queue.quarantined},
        "unserved_routes": list(queue.unserved_routes),
        "next_due": iso(seen.next_due),
        "workers": [
            {
                "id": worker.id,
                "host": worker.host,
                "pid": worker.pid,
                "roles": worker.roles.split(","),
                "routes": list(worker.routes),
                "slots": worker.slots,
                "running": worker.running,
                "alive": not worker.fenced and worker.lease_until >= seen.now,
                "started_at": iso(worker.started_at),
                "seen_at": iso(worker.seen_at),
            }
            for worker in seen.workers
        ],
        "warnings": [{"code": w.code, "message": w.sentence} for w in seen.warnings],
    }

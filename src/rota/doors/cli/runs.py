"""`rota runs`, `rota run`, `rota cancel`, `rota backfill`."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import typer

from rota.doors.cli.desk import Desk
from rota.doors.cli.show import NOTHING, Output, iso, wall, wall_named
from rota.doors.cli.values import maybe_whole, now, run_number, whole
from rota.doors.cli.wire import (
    attempt_record,
    delivery_record,
    event_record,
    question_record,
    run_record,
)
from rota.flow.define import runs
from rota.flow.observe.moments import parse_instant
from rota.flow.observe.runs import RunView, list_runs, view_run
from rota.flow.observe.telling import counted, first_line, span
from rota.model.ids import RunId
from rota.model.instants import from_micros
from rota.model.runs import Run
from rota.model.states import RunState
from rota.ports.store import Store
from rota.rules.permission import LOCAL
from rota.timing.options import choice

MOST_LISTED = 1_000
LAST = 2**62

Number = Annotated[str, typer.Argument(metavar="RUN", help="The run's number.")]
SpaceName = Annotated[str, typer.Option("--space", metavar="NAME", help="Whose task it is.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("runs")(list_all)
    app.command("run")(show)
    app.command("cancel")(cancel)
    app.command("backfill")(backfill)


def list_all(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Only of this task.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state", metavar="STATE", help="queued, running, waiting, succeeded, failed …"
        ),
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "20",
    before: Annotated[
        str | None, typer.Option("--before", metavar="RUN", help="Only runs older than this one.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """List runs, newest first.

    Example: rota runs --task report --state failed
    """
    desk = Desk(context)
    wanted = None if state is None else choice(RunState, state, "state")
    most = whole("limit", limit, 1, MOST_LISTED)
    older = maybe_whole("before", before, 1, LAST)

    async def work(store: Store) -> tuple[list[Run], str]:
        zone = (await store.find_space(space or "main")).timezone
        before_id = None if older is None else RunId(older)
        found = await list_runs(
            store, LOCAL, task=task, space=space, state=wanted, before=before_id, limit=most
        )
        return found, zone

    found, zone = desk.ask(work)
    desk.out.record([run_record(run) for run in found])
    rows = [
        [
            str(run.id),
            run.task,
            run.state.value,
            wall(run.started_at or run.available_at, zone),
            _took(run),
            run.source.value,
            _said(run),
        ]
        for run in found
    ]
    columns = ["run", "task", "state", f"start ({zone})", "took", "source", "result"]
    desk.out.table(columns, rows, "No runs.")


def show(context: typer.Context, run: Number) -> None:
    """Show one run: its attempts, events, messages and questions.

    Example: rota run 12
    """
    desk = Desk(context)
    number = run_number(run)
    view, zone = desk.ask(lambda store: _view(store, number))
    record = run_record(view.run)
    record["attempts"] = [attempt_record(attempt) for attempt in view.attempts]
    record["events"] = [event_record(event) for event in view.events]
    record["deliveries"] = [delivery_record(delivery) for delivery in view.deliveries]
    record["questions"] = [question_record(question) for question in view.questions]
    desk.out.record(record)
    _tell_run(desk.out, view, zone)


async def _view(store: Store, number: int) -> tuple[RunView, str]:
    view = await view_run(store, LOCAL, number)
    return view, (await store.find_space(view.run.space)).timezone


def cancel(context: typer.Context, run: Number) -> None:
    """End a run that has not begun, or ask whoever works on it to stop.

    Example: rota cancel 12
    """
    desk = Desk(context)
    number = run_number(run)
    chance = random.SystemRandom()
    found = desk.ask(lambda store: runs.cancel_run(store, LOCAL, number, chance))
    desk.out.record(run_record(found))
    asked = "is asked to stop" if found.state is RunState.RUNNING else "is cancelled"
    desk.out.line(f"Run {found.id} of {found.task} {asked}.")


@dataclass(frozen=True, slots=True)
class _Filled:
    start: datetime
    end: datetime
    run_ids: list[RunId]
    zone: str


def backfill(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")],
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="From this time …")],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="… to this one.")] = "now",
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of both.")
    ] = None,
    space: SpaceName = "main",
) -> None:
    """Queue a run for every slot of a span that has none; slots that ran are left alone.

    Example: rota backfill report --from 2026-11-01 --to 2026-11-08
    """
    desk = Desk(context)

    async def work(store: Store) -> _Filled:
        zone = timezone or (await store.find_space(space)).timezone
        today = from_micros(store.now())
        first = parse_instant(start, zone, today, "from")
        last = parse_instant(end, zone, today, "to")
        # A slot at the very beginning of the span belongs to it.
        ids = await runs.backfill(
            store, LOCAL, task, first - timedelta(microseconds=1), last, space
        )
        return _Filled(first, last, ids, zone)

    done = desk.ask(work)
    desk.out.record({"runs": done.run_ids, "from": iso(done.start), "to": iso(done.end)})
    between = f"{wall_named(done.start, done.zone)} and {wall_named(done.end, done.zone)}"
    desk.out.line(f"Queued {counted(len(done.run_ids), 'run')} for slots between {between}.")


def _said(run: Run) -> str:
    return first_line(run.result if run.state is RunState.SUCCEEDED else run.error, 60)


def _took(run: Run) -> str:
    if run.started_at is None:
        return NOTHING
    return span((run.finished_at or now()) - run.started_at)


def _tell_run(out: Output, view: RunView, zone: str) -> None:
    run = view.run
    where = "" if run.place is None else f" ({run.place})"
    out.pairs(
        [
            ("run", f"{run.id} of {run.task}"),
            ("state", f"{run.state}{where}{', stuck' if run.stuck else ''}"),
            (
                "source",
                run.source.value + (f" of run {run.upstream_id}" if run.upstream_id else ""),
            ),
            ("slot", "" if run.slot_at is None else wall_named(run.slot_at, zone)),
            ("created", wall_named(run.created_at, zone)),
            ("started", "" if run.started_at is None else wall_named(run.started_at, zone)),
            ("finished", "" if run.finished_at is None else wall_named(run.finished_at, zone)),
            ("took", "" if run.started_at is None else _took(run)),
            ("payload", "" if run.payload == "null" else run.payload),
            ("result", run.result or ""),
            ("error", "" if run.state is RunState.SUCCEEDED else run.error or ""),
        ]
    )
    _section(
        out,
        ["attempt", "cause", "outcome", f"started ({zone})", "took", "error"],
        [
            [
                str(a.number),
                a.cause.value,
                a.outcome,
                wall(a.started_at, zone),
                span(a.ended_at - a.started_at),
                first_line(a.error, 60),
            ]
            for a in view.attempts
        ],
    )
    _section(
        out,
        ["event", f"at ({zone})", "data"],
        [[e.name.value, wall(e.at, zone), first_line(str(e.data or ""))] for e in view.events],
    )
    _section(
        out,
        ["question", "asked", "answer"],
        [[str(q.id), first_line(q.question), q.answer or NOTHING] for q in view.questions],
    )
    _section(
        out,
        ["message", "to", "state", "body"],
        [
            [str(d.id), f"{d.channel}:{d.target}", d.state.value, first_line(d.body, 60)]
            for d in view.deliveries
        ],
    )


def _section(out: Output, columns: list[str], rows: list[list[str]]) -> None:
    if rows:
        out.line()
        out.table(columns, rows, "")

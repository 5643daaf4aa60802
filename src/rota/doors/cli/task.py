"""`rota task`: create, list, show, edit, run, enable, disable, pause, delete."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli import task_options as opt
from rota.doors.cli.calls import check_call
from rota.doors.cli.desk import Desk
from rota.doors.cli.show import wall, wall_named
from rota.doors.cli.task_words import (
    policy_words,
    said,
    schedule_lines,
    state_of,
    tell_defined,
    when_of,
)
from rota.doors.cli.values import json_value
from rota.doors.cli.wire import run_record, task_record
from rota.errors import Invalid
from rota.flow.define import runs, schedules, tasks
from rota.flow.define.names import get_task
from rota.flow.observe.moments import parse_instant
from rota.flow.observe.tasks import TaskView, list_tasks, view_task
from rota.model.instants import from_micros
from rota.model.plans import StoredSchedule
from rota.model.tasks import Policy, Task
from rota.ports.store import Store
from rota.rules.permission import LOCAL

ROUTE = "python"

Name = Annotated[str, typer.Argument(metavar="TASK", help="The task's name.")]

nouns = typer.Typer(
    help="Tasks: what to do, when, and under which rules.\n\n"
    "Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="task")


@nouns.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits and _ . : / -")],
    call: opt.Call = None,
    cron: opt.Cron = None,
    rrule: opt.RRule = None,
    every: opt.Every = None,
    once_at: opt.OnceAt = None,
    at_times: opt.AtTimes = None,
    weekdays: opt.Weekdays = None,
    timezone: opt.Timezone = None,
    title: opt.Title = None,
    retry: opt.RetryCount = None,
    retry_base: opt.RetryBase = None,
    timeout: opt.Timeout = None,
    priority: opt.Priority = None,
    pool: opt.PoolName = None,
    overlap: opt.OverlapMode = None,
    catch_up: opt.CatchUpMode = None,
    on_lost: opt.OnLost = None,
    disable_after: opt.DisableAfter = None,
    deadline: opt.Deadline = None,
    group: opt.Group = None,
    lane: opt.Lane = None,
    after: opt.AfterTask = None,
    on: opt.AfterEnd = None,
    deliver_to: opt.DeliverTo = None,
    jitter: opt.Jitter = None,
    exclude: opt.Exclude = None,
    quiet: opt.Quiet = None,
    quiet_mode: opt.QuietMode = None,
    starts_at: opt.StartsAt = None,
    ends_at: opt.EndsAt = None,
    gap: opt.Gap = None,
    fold: opt.Fold = None,
    unchecked: opt.Unchecked = False,
    space: opt.SpaceName = "main",
) -> None:
    """Create a task, with at most one schedule; without one it runs only when asked.

    Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'
    """
    given = dict(locals())
    desk = Desk(context)
    if call is None:
        raise Invalid("call", "", "say what to run: --call module:function")
    wish, policy = opt.wish_of(given), opt.policy_of(given, Policy(metered=False))
    following = opt.after_of(given)
    check_call(call, unchecked=unchecked)

    async def work(store: Store) -> TaskView:
        await tasks.put_task(
            store,
            LOCAL,
            name,
            space=space,
            title=title or "",
            route=ROUTE,
            spec={"call": call},
            policy=policy,
            after=following,
            wish=wish,
        )
        return await view_task(store, LOCAL, name, space)

    view = desk.ask(work)
    tell_defined(desk.out, view, "created")


@nouns.command("list")
def list_all(
    context: typer.Context,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """List tasks with their schedules and the next run.

    Example: rota task list --json
    """
    desk = Desk(context)

    async def work(store: Store) -> tuple[list[tuple[Task, list[StoredSchedule]]], str]:
        zone = (await store.find_space(space or "main")).timezone
        return await list_tasks(store, LOCAL, space), zone

    found, zone = desk.ask(work)
    desk.out.record([task_record(task, own) for task, own in found])
    several = len({task.space for task, _ in found}) > 1
    rows = [
        [
            f"{task.space}/{task.name}" if several else task.name,
            state_of(task),
            when_of(task, own),
            wall(min((s.next_at for s in own if s.next_at), default=None), zone),
            task.title or str(task.spec.get("call", task.route)),
        ]
        for task, own in found
    ]
    columns = ["task", "state", "when", f"next ({zone})", "what"]
    desk.out.table(columns, rows, "No tasks yet: rota task create NAME --call module:function")


@nouns.command()
def show(context: typer.Context, name: Name, space: opt.SpaceName = "main") -> None:
    """Show one task: its schedules, policy, tally and newest runs.

    Example: rota task show report
    """
    desk = Desk(context)
    view = desk.ask(lambda store: view_task(store, LOCAL, name, space))
    record = task_record(view.task, view.schedules)
    record["counts"] = view.counts
    record["recent"] = [run_record(run) for run in view.recent]
    desk.out.record(record)
    task, zone = view.task, view.space.timezone
    desk.out.pairs(
        [
            ("task", f"{task.name}{'  ' + task.title if task.title else ''}"),
            ("space", task.space),
            ("runs", str(task.spec.get("call", task.route))),
            (
                "state",
                state_of(task) + (f": {task.disabled_reason}" if task.disabled_reason else ""),
            ),
            ("until", wall_named(task.paused_until, zone) if state_of(task) == "paused" else ""),
            *[("when", schedule_lines(view, schedule, zone)) for schedule in view.schedules],
            ("after", "" if task.after is None else f"{task.after.task}, on {task.after.on}"),
            ("policy", policy_words(task.policy)),
            ("so far", ", ".join(f"{n} {state}" for state, n in sorted(view.counts.items()))),
        ]
    )
    if view.recent:
        desk.out.line()
        rows = [[str(r.id), r.state.value, wall(r.started_at, zone), said(r)] for r in view.recent]
        desk.out.table(["run", "state", f"started ({zone})", "result"], rows, "")


@nouns.command()
def edit(
    context: typer.Context,
    name: Name,
    call: opt.Call = None,
    cron: opt.Cron = None,
    rrule: opt.RRule = None,
    every: opt.Every = None,
    once_at: opt.OnceAt = None,
    at_times: opt.AtTimes = None,
    weekdays: opt.Weekdays = None,
    timezone: opt.Timezone = None,
    title: opt.Title = None,
    retry: opt.RetryCount = None,
    retry_base: opt.RetryBase = None,
    timeout: opt.Timeout = None,
    priority: opt.Priority = None,
    pool: opt.PoolName = None,
    overlap: opt.OverlapMode = None,
    catch_up: opt.CatchUpMode = None,
    on_lost: opt.OnLost = None,
    disable_after: opt.DisableAfter = None,
    deadline: opt.Deadline = None,
    group: opt.Group = None,
    lane: opt.Lane = None,
    after: opt.AfterTask = None,
    on: opt.AfterEnd = None,
    deliver_to: opt.DeliverTo = None,
    jitter: opt.Jitter = None,
    exclude: opt.Exclude = None,
    quiet: opt.Quiet = None,
    quiet_mode: opt.QuietMode = None,
    starts_at: opt.StartsAt = None,
    ends_at: opt.EndsAt = None,
    gap: opt.Gap = None,
    fold: opt.Fold = None,
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="NAME", help="Which schedule; a new name adds one.")
    ] = "default",
    drop_schedule: Annotated[
        str | None, typer.Option("--drop-schedule", metavar="NAME", help="Take this one away.")
    ] = None,
    unchecked: opt.Unchecked = False,
    space: opt.SpaceName = "main",
) -> None:
    """Change what is given and leave the rest; a new rule replaces the schedule's old one.

    Example: rota task edit report --cron '30 7 * * 1-5' --retry 3
    """
    given = dict(locals())
    desk = Desk(context)
    wish, following = opt.wish_of(given), opt.after_of(given)
    if call is not None:
        check_call(call, unchecked=unchecked)
    if drop_schedule is not None and wish is not None:
        raise Invalid("drop-schedule", drop_schedule, "cannot go together with a new rule")

    async def work(store: Store) -> TaskView:
        task = await get_task(store, LOCAL, name, space)
        policy = opt.policy_of(given, task.policy)
        if drop_schedule is not None:
            await schedules.drop_schedule(store, LOCAL, name, space, drop_schedule)
        await tasks.put_task(
            store,
            LOCAL,
            name,
            space=space,
            title=task.title if title is None else title,
            kind=task.kind,
            route=task.route,
            spec={**task.spec, **({} if call is None else {"call": call})},
            policy=policy,
            after=following or task.after,
            replace=True,
            wish=wish,
            schedule=schedule,
        )
        return await view_task(store, LOCAL, name, space)

    view = desk.ask(work)
    tell_defined(desk.out, view, "changed")


@nouns.command()
def run(
    context: typer.Context,
    name: Name,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="What the run is given.")
    ] = None,
    space: opt.SpaceName = "main",
) -> None:
    """Queue a run now, also of a disabled task; its schedules do not move.

    Example: rota task run report --payload '{"day": "2026-11-15"}'
    """
    desk = Desk(context)
    value = json_value("payload", payload)
    run_id = desk.ask(lambda store: runs.run_now(store, LOCAL, name, space, payload=value)).run_id
    desk.out.record({"run": run_id})
    desk.out.line(f"Queued run {run_id} of {name}. Follow it: rota run {run_id}")


@nouns.command()
def enable(context: typer.Context, name: Name, space: opt.SpaceName = "main") -> None:
    """Let a task's slots run again, from now on.

    Example: rota task enable report
    """
    desk = Desk(context)

    async def work(store: Store) -> TaskView:
        await tasks.enable_task(store, LOCAL, name, space)
        return await view_task(store, LOCAL, name, space)

    view = desk.ask(work)
    tell_defined(desk.out, view, "enabled")


@nouns.command()
def disable(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people.")] = "",
    space: opt.SpaceName = "main",
) -> None:
    """Stop a task's slots from running; what runs goes on, what was asked for stays.

    Example: rota task disable report --reason "the source is down"
    """
    desk = Desk(context)

    async def work(store: Store) -> TaskView:
        await tasks.disable_task(store, LOCAL, name, space, reason=reason)
        return await view_task(store, LOCAL, name, space)

    view = desk.ask(work)
    desk.out.record(task_record(view.task, view.schedules))
    desk.out.line(f"Disabled {name}. Its slots are skipped until: rota task enable {name}")


@nouns.command()
def pause(
    context: typer.Context,
    name: Name,
    until: Annotated[
        str, typer.Option("--until", metavar="TIME", help="'2h', 'tomorrow 9:00' or ISO 8601.")
    ],
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of --until.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people.")] = "",
    space: opt.SpaceName = "main",
) -> None:
    """Disable a task until a time.

    Example: rota task pause report --until "tomorrow 9:00"
    """
    desk = Desk(context)

    async def work(store: Store) -> TaskView:
        zone = timezone or (await store.find_space(space)).timezone
        end = parse_instant(until, zone, from_micros(store.now()), "until")
        await tasks.disable_task(store, LOCAL, name, space, reason=reason, until=end)
        return await view_task(store, LOCAL, name, space)

    view = desk.ask(work)
    desk.out.record(task_record(view.task, view.schedules))
    end = wall_named(view.task.paused_until, timezone or view.space.timezone)
    desk.out.line(f"Paused {name} until {end}.")


@nouns.command()
def delete(context: typer.Context, name: Name, space: opt.SpaceName = "main") -> None:
    """Take a task out of use: queued runs are cancelled, running ones told to stop.

    Its history stays until retention, and its name may be used again.

    Example: rota task delete report
    """
    desk = Desk(context)
    task = desk.ask(lambda store: tasks.delete_task(store, LOCAL, name, space))
    desk.out.record({"deleted": task.name, "space": task.space})
    desk.out.line(f"Deleted {name}.")

"""`rota task`: create, list, show, edit, run, enable, disable, pause, delete; and `rota ls`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli.desk import Desk, Record
from rota.doors.cli.done_words import done_pairs
from rota.doors.cli.idle_words import tell_if_idle
from rota.doors.cli.naming import real_name
from rota.doors.cli.run_now import PAYLOAD, queue_run
from rota.doors.cli.show import wall, wall_named
from rota.doors.cli.task_define import create, edit
from rota.doors.cli.task_words import (
    agent_words,
    deleted_words,
    next_of,
    policy_words,
    said,
    schedule_lines,
    site_words,
    tell_defined,
    warnings_of,
    what_of,
    when_of,
    work_of,
)
from rota.doors.cli.values import (
    LARGEST,
    DryRun,
    SpaceName,
    TaskName,
    Yes,
    maybe_whole,
    whole,
)
from rota.errors import Invalid
from rota.flow.observe.telling import counted

MOST_LISTED = 1_000
MOST_FIRES = 100

nouns = typer.Typer(
    help="Tasks: what to do, when, and under which rules.\n\n"
    "Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'",
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(nouns, name="task")
    app.command("ls")(list_all)


nouns.command()(create)


@nouns.command("list")
def list_all(
    context: typer.Context,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="enabled or disabled [all].")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="agent, script or python.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="KEY", help="Only of this conversation.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="Only those that speak of this.")
    ] = None,
    limit: Annotated[str, typer.Option("--limit", metavar="N", help="At most N.")] = "100",
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Go on after this task.")
    ] = None,
    space: Annotated[
        str | None, typer.Option("--space", metavar="NAME", help="Only of this space.")
    ] = None,
) -> None:
    """List tasks with their schedules and the next run, newest first.

    Example: rota ls --text inbox
    """
    desk = Desk(context)
    wanted = {
        "state": state,
        "kind": kind,
        "thread": thread,
        "text": text,
        "limit": whole("limit", limit, 1, MOST_LISTED),
        "before": maybe_whole("before", before, 1, LARGEST),
        "space": space,
    }
    found = desk.call("GET", "/v1/tasks", wanted)
    desk.out.record(found)
    if desk.out.as_json:
        return
    tasks = found["tasks"]
    zone = desk.zone(space)
    several = len({task["space"] for task in tasks}) > 1
    rows = [
        [
            f"{task['space']}/{task['name']}" if several else task["name"],
            task["state"],
            when_of(task),
            wall(next_of(task), zone),
            what_of(task),
        ]
        for task in tasks
    ]
    columns = ["task", "state", "when", f"next ({zone})", "what"]
    desk.out.table(columns, rows, 'No tasks: rota add "weekdays 7:00" "Summarise my inbox"')
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


@nouns.command()
def show(context: typer.Context, name: TaskName, space: SpaceName = None) -> None:
    """Show one task: its schedules, policy, tally and newest runs.

    Example: rota task show report
    """
    desk = Desk(context)
    task = desk.task("GET", name, said={"space": space})
    desk.out.record(task)
    if desk.out.as_json:
        return
    zone = desk.zone(task["space"])
    reason = f": {task['disabled_reason']}" if task["disabled_reason"] else ""
    paused = task["state"] == "paused"
    desk.out.pairs(
        [
            ("task", f"{task['name']}{'  ' + task['title'] if task['title'] else ''}"),
            ("id", str(task["id"])),
            ("space", task["space"]),
            ("thread", task["thread"] or ""),
            ("does", work_of(task)),
            ("agent", agent_words(task)),
            ("runs in", "" if task["site"] is None else site_words(task)),
            ("state", task["state"] + reason),
            ("until", wall_named(task["paused_until"], zone) if paused else ""),
            *[("when", schedule_lines(task, schedule)) for schedule in task["schedules"]],
            (
                "after",
                ""
                if task["after"] is None
                else f"{task['after']['task']}, on {task['after']['on']}",
            ),
            *done_pairs(task),
            ("policy", policy_words(task["policy"])),
            ("results to", task["policy"].get("deliver_to") or ""),
            ("warning", "\n".join([*warnings_of(task), *filter(None, [task["warning"]])])),
            ("now", _now(task["activity"])),
            ("so far", ", ".join(f"{n} {state}" for state, n in sorted(task["counts"].items()))),
        ]
    )
    if task["recent"]:
        desk.out.line()
        rows = [
            [str(r["id"]), r["state"], wall(r["started_at"], zone), said(r)] for r in task["recent"]
        ]
        desk.out.table(["run", "state", f"started ({zone})", "result"], rows, "")


def _now(activity: Record) -> str:
    """Return what a task is doing."""
    run = activity["run"]
    if activity["state"] == "free":
        return ""
    if activity["question"] is not None:
        return f"run {run} asks: {activity['question']}"
    place = activity["position"]
    return f"run {run} is {activity['state']}{'' if place is None else f', number {place}'}"


@nouns.command("next")
def next_fires(
    context: typer.Context,
    name: TaskName,
    count: Annotated[str, typer.Option("-n", metavar="N", help="How many.")] = "5",
    space: SpaceName = None,
) -> None:
    """Tell when a task runs next.

    Example: rota task next report -n 3
    """
    desk = Desk(context)
    most = whole("n", count, 1, MOST_FIRES)
    found = desk.task("GET", name, "/next", {"n": most, "space": space})
    desk.out.record(found)
    rows = [[fire["local"], fire["schedule"]] for fire in found["fires"]]
    desk.out.table(["at", "schedule"], rows, f"{found['task']} has nothing planned.")


nouns.command()(edit)


@nouns.command()
def run(
    context: typer.Context,
    name: TaskName,
    payload: Annotated[str | None, typer.Option("--payload", metavar="JSON", help=PAYLOAD)] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a run now, also of a disabled task; its schedules do not move.

    `rota run` can do more: it waits for the end.

    Example: rota task run report --payload '{"day": "2026-11-15"}'
    """
    desk = Desk(context)
    name = real_name(desk, name, space)
    done = queue_run(desk, name, {"payload": payload, "space": space}, dry_run=dry_run)
    desk.out.record(done)
    desk.out.line(f"Queued run {done['run']} of {name}. Follow it: rota logs {done['run']} -f")
    tell_if_idle(desk)


@nouns.command()
def enable(
    context: typer.Context, name: TaskName, dry_run: DryRun = False, space: SpaceName = None
) -> None:
    """Let a task's slots run again, from now on.

    Example: rota task enable report
    """
    desk = Desk(context)
    tell_defined(
        desk.out, desk.task("POST", name, "/enable", {"space": space}, dry_run=dry_run), "Enabled"
    )


@nouns.command()
def disable(
    context: typer.Context,
    name: TaskName,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people.")] = "",
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Stop a task's slots from running; what runs goes on, what was asked for stays.

    Example: rota task disable report --reason "the source is down"
    """
    desk = Desk(context)
    wanted = {"reason": reason, "space": space}
    task = desk.task("POST", name, "/disable", wanted, dry_run=dry_run)
    desk.out.record(task)
    told = task["name"]
    desk.out.line(f"Disabled {told}. Its slots are skipped until: rota task enable {told}")


@nouns.command()
def pause(
    context: typer.Context,
    name: TaskName,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="'2h', 'tomorrow 9:00' or ISO 8601."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of --until.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for people.")] = "",
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Disable a task until a time; without one it is `rota task disable`.

    Example: rota task pause report --until "tomorrow 9:00"
    """
    if until is None:
        advice = f"say until when: --until 2h; for good it is `rota task disable {name}`"
        raise Invalid("until", "", advice)
    desk = Desk(context)
    wanted = {"reason": reason, "until": until, "timezone": timezone, "space": space}
    task = desk.task("POST", name, "/disable", wanted, dry_run=dry_run)
    desk.out.record(task)
    if not desk.out.as_json:
        end = wall_named(task["paused_until"], timezone or desk.zone(task["space"]))
        desk.out.line(f"Paused {task['name']} until {end}.")


@nouns.command()
def delete(
    context: typer.Context,
    name: TaskName,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Take a task out of use: queued runs are cancelled, running ones told to stop.

    Its history stays until retention, and its name may be used again.

    Example: rota task delete report
    """
    desk = Desk(context)
    name = real_name(desk, name, space)
    question = f"Delete the task {name}, and cancel its runs?"
    desk.out.confirm(question, yes=yes or dry_run)
    told = _would_go(desk, name, space) if dry_run else ""
    if told:
        desk.out.line(told)
    gone = desk.task("DELETE", name, said={"space": space}, dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(deleted_words(gone))


def _would_go(desk: Desk, name: str, space: str | None) -> str:
    """Return what deleting a task would take away, and what stays."""
    about: Record = {"task": desk.reference(name, space), "space": space}
    schedules = len(desk.call("GET", "/v1/schedules", about)["schedules"])
    runs = {
        state: len(desk.call("GET", "/v1/runs", {**about, "state": state})["runs"])
        for state in ("queued", "waiting", "running")
    }
    ended = counted(runs["queued"] + runs["waiting"], "run")
    return (
        f"Deleting {name} takes away {counted(schedules, 'schedule')}, cancels {ended} "
        f"that wait, and asks {counted(runs['running'], 'run')} to stop. Its history stays."
    )

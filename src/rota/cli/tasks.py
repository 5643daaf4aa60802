"""`rota task`, `ls`, `add` and `apply`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from rota.cli.arguments import (
    Before,
    Count,
    DryRun,
    Limit,
    Payload,
    Reason,
    SpaceFilter,
    SpaceName,
    TaskName,
    ThreadFilter,
    Timezone,
    Yes,
    page,
    resolve_task_name,
    text_or_input,
    whole_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import Column, wall_time, wall_time_with_zone
from rota.cli.runs import queue_run
from rota.cli.status import warn_if_idle
from rota.cli.task_options import LOCAL_THREAD, default_thread, task_body, with_task_options
from rota.cli.task_text import (
    agent_text,
    condition_pairs,
    deleted_text,
    next_of,
    policy_text,
    schedule_text,
    show_change,
    site_text,
    summarise_result,
    warnings_of,
    what_of,
    when_of,
    work_of,
)
from rota.commands.task_fields import TaskCommand
from rota.errors import Invalid, NotFound, Refused, RotaError
from rota.flow.observe.time_text import count_text
from rota.rules.task_spec import check_new_name

Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Accept a function that cannot be imported here")
]


@with_task_options(TaskCommand.CREATE)
def create(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Letters, digits and _ . : / - [default: made of the title]"
        ),
    ] = None,
    *,
    typed: Record,
    unchecked: Unchecked = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Create a task, with at most one schedule; without one it runs when requested.

    Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'
    """
    cli = CliContext(context, creates_home=True)
    body = task_body(typed)
    call = body.get("call")
    if call is None and body.get("instructions") is None and body.get("command") is None:
        raise Invalid("call", "", "give one of --instructions, --command and --call")
    _check(call, unchecked=unchecked)
    thread = default_thread(cli, body.get("thread"), space)
    body |= {"name": name, "space": space, "thread": thread}
    task = cli.call("POST", "/v1/tasks", body, dry_run=dry_run, here=call is not None)
    show_change(cli.out, task, "Created")
    warn_if_idle(cli)


@with_task_options(TaskCommand.EDIT)
def edit(
    context: typer.Context,
    name: TaskName,
    *,
    typed: Record,
    schedule: Annotated[
        str,
        typer.Option("--schedule", metavar="NAME", help="Schedule to change; a new name adds one"),
    ] = "default",
    drop_schedule: Annotated[
        str | None, typer.Option("--drop-schedule", metavar="NAME", help="Schedule to remove")
    ] = None,
    unchecked: Unchecked = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Change the given fields of a task; a new rule replaces that of the schedule.

    Example: rota task edit report --cron '30 7 * * 1-5' --retry 3
    """
    cli = CliContext(context)
    body = task_body(typed)
    if drop_schedule is not None:
        if body:
            raise Invalid("drop-schedule", drop_schedule, "cannot be combined with other changes")
        cli.task("DELETE", name, f"/schedules/{drop_schedule}", {"space": space}, dry_run=dry_run)
        show_change(cli.out, cli.task("GET", name, body={"space": space}), "Changed")
        return
    call = body.get("call")
    _check(call, unchecked=unchecked)
    if not body:
        message = "give at least one change: see `rota task edit --help`"
        raise Refused(message)
    body |= {"space": space, "schedule_name": schedule if "schedule" in body else None}
    changed = cli.task("PATCH", name, body=body, dry_run=dry_run, here=call is not None)
    show_change(cli.out, changed, "Changed")


def _check(call: str | None, *, unchecked: bool) -> None:
    if call is not None:
        from rota.cli.arguments import check_call  # noqa: PLC0415 - slow to load

        check_call(call, unchecked=unchecked)


MAX_FIRES = 100

task_app = typer.Typer(
    help="Manage tasks: what to run, when, and with which policy.\n\n"
    "Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'",
    rich_markup_mode=None,
)


task_app.command()(create)
NO_TASKS = 'No tasks found. To add one: rota add "weekdays 7:00" "Summarise my inbox"'


@task_app.command("list")
def list_tasks(
    context: typer.Context,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="STATE", help="List only enabled or disabled tasks"),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="List only tasks of a kind [possible values: agent, script, python]",
        ),
    ] = None,
    thread: ThreadFilter = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help="List only tasks that contain a text"),
    ] = None,
    limit: Limit = "100",
    before: Before = None,
    space: SpaceFilter = None,
) -> None:
    """List tasks with their schedules and next times, newest first.

    Example: rota ls --text inbox
    """
    cli = CliContext(context)
    query = {
        **page(limit, before),
        "state": state,
        "kind": kind,
        "thread": thread,
        "text": text,
        "space": space,
    }
    found = cli.call("GET", "/v1/tasks", query)
    several = len({task["space"] for task in found["tasks"]}) > 1
    columns = (
        Column("task", lambda task: f"{task['space']}/{task['name']}" if several else task["name"]),
        Column("state", "state"),
        Column("when", when_of),
        Column("next", next_of, is_time=True),
        Column("what", what_of),
    )
    cli.show_list(found, "tasks", columns, NO_TASKS, space=space)


@task_app.command()
def show(context: typer.Context, name: TaskName, space: SpaceName = None) -> None:
    """Show a task with its schedules, policy, run counts and newest runs.

    Example: rota task show report
    """
    cli = CliContext(context)
    task = cli.task("GET", name, body={"space": space})
    cli.out.record(task)
    if cli.out.as_json:
        return
    zone = cli.zone(task["space"])
    cli.out.pairs(_pairs(task, zone))
    if task["recent"]:
        cli.out.line()
        rows = [
            [str(r["id"]), r["state"], wall_time(r["started_at"], zone), summarise_result(r)]
            for r in task["recent"]
        ]
        cli.out.table(["run", "state", f"started ({zone})", "result"], rows, "")


def _pairs(task: Record, zone: str) -> list[tuple[str, str]]:
    reason = f": {task['disabled_reason']}" if task["disabled_reason"] else ""
    paused = task["state"] == "paused"
    after = task["after"]
    warnings = [*warnings_of(task), *filter(None, [task["warning"]])]
    return [
        ("task", f"{task['name']}{'  ' + task['title'] if task['title'] else ''}"),
        ("id", str(task["id"])),
        ("space", task["space"]),
        ("thread", task["thread"] or ""),
        ("work", work_of(task)),
        ("agent", agent_text(task)),
        ("executor", "" if task["site"] is None else site_text(task)),
        ("state", task["state"] + reason),
        ("until", wall_time_with_zone(task["paused_until"], zone) if paused else ""),
        *[("schedule", schedule_text(task, schedule)) for schedule in task["schedules"]],
        ("after", "" if after is None else f"{after['task']}, on {after['on']}"),
        *condition_pairs(task),
        ("policy", policy_text(task["policy"])),
        ("deliver to", task["policy"].get("deliver_to") or ""),
        ("warning", "\n".join(warnings)),
        ("activity", _activity_text(task["activity"])),
        ("runs", ", ".join(f"{n} {state}" for state, n in sorted(task["counts"].items()))),
    ]


def _activity_text(activity: Record) -> str:
    run = activity["run"]
    if activity["state"] == "free":
        return ""
    if activity["question"] is not None:
        return f"run {run} asks: {activity['question']}"
    place = activity["position"]
    return f"run {run} is {activity['state']}{'' if place is None else f', number {place}'}"


@task_app.command("next")
def next_fires(
    context: typer.Context, name: TaskName, count: Count = "5", space: SpaceName = None
) -> None:
    """Show the next times of a task.

    Example: rota task next report -n 3
    """
    cli = CliContext(context)
    query = {"n": whole_number("n", count, 1, MAX_FIRES), "space": space}
    found = cli.task("GET", name, "/next", query)
    columns = (Column("at", "local"), Column("schedule", "schedule"))
    cli.show_list(found, "fires", columns, f"{found['task']} has no next time.")


task_app.command()(edit)


@task_app.command()
def run(
    context: typer.Context,
    name: TaskName,
    payload: Payload = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Queue a run now, even if the task is disabled; its schedules do not change.

    `rota run` can also wait for the end.

    Example: rota task run report --payload '{"day": "2026-11-15"}'
    """
    cli = CliContext(context)
    name = resolve_task_name(cli, name, space)
    queued = queue_run(cli, name, {"payload": payload, "space": space}, dry_run=dry_run)
    cli.out.record(queued)
    number = queued["run"]
    cli.out.line(f"Queued run {number} of {name}. To follow it: rota logs {number} -f")
    warn_if_idle(cli)


@task_app.command()
def enable(
    context: typer.Context, name: TaskName, dry_run: DryRun = False, space: SpaceName = None
) -> None:
    """Enable a task: its slots run again, from now on.

    Example: rota task enable report
    """
    cli = CliContext(context)
    task = cli.task("POST", name, "/enable", {"space": space}, dry_run=dry_run)
    show_change(cli.out, task, "Enabled")


@task_app.command()
def disable(
    context: typer.Context,
    name: TaskName,
    reason: Reason = "",
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Disable a task: its slots do not run; running and requested runs continue.

    Example: rota task disable report --reason "the source is down"
    """
    cli = CliContext(context)
    body = {"reason": reason, "space": space}
    task = cli.task("POST", name, "/disable", body, dry_run=dry_run)
    cli.out.record(task)
    cli.out.line(f"Disabled {task['name']}. To enable it again: rota task enable {task['name']}")


@task_app.command()
def pause(
    context: typer.Context,
    name: TaskName,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME", help="End of the pause: '2h', 'tomorrow 9:00' or ISO 8601"
        ),
    ] = None,
    timezone: Timezone = None,
    reason: Reason = "",
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Disable a task until a time.

    Example: rota task pause report --until "tomorrow 9:00"
    """
    if until is None:
        advice = f"give a time, such as --until 2h, or use `rota task disable {name}`"
        raise Invalid("until", "", advice)
    cli = CliContext(context)
    body = {"reason": reason, "until": until, "timezone": timezone, "space": space}
    task = cli.task("POST", name, "/disable", body, dry_run=dry_run)
    cli.out.record(task)
    if not cli.out.as_json:
        end = wall_time_with_zone(task["paused_until"], timezone or cli.zone(task["space"]))
        cli.out.line(f"Paused {task['name']} until {end}.")


@task_app.command()
def delete(
    context: typer.Context,
    name: TaskName,
    yes: Yes = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Delete a task: queued runs are cancelled, running ones are asked to stop.

    Its history is kept for the retention period, and its name can be used again.

    Example: rota task delete report
    """
    cli = CliContext(context)
    name = resolve_task_name(cli, name, space)
    cli.out.confirm(f"Delete the task {name} and cancel its runs?", yes=yes or dry_run)
    if dry_run:
        cli.out.line(_preview_deletion(cli, name, space))
    deleted = cli.task("DELETE", name, body={"space": space}, dry_run=dry_run)
    cli.out.record(deleted)
    cli.out.line(deleted_text(deleted))


def _preview_deletion(cli: CliContext, name: str, space: str | None) -> str:
    """Return the effects of deleting a task."""
    query: Record = {"task": cli.reference(name, space), "space": space}
    schedules = len(cli.call("GET", "/v1/schedules", query)["schedules"])
    runs = {
        state: len(cli.call("GET", "/v1/runs", {**query, "state": state})["runs"])
        for state in ("queued", "waiting", "running")
    }
    return (
        f"Deleting {name} removes {count_text(schedules, 'schedule')}, cancels "
        f"{count_text(runs['queued'] + runs['waiting'], 'waiting run')}, and stops "
        f"{count_text(runs['running'], 'running run')}. Its history is kept."
    )


FIRES = 3


def add(
    context: typer.Context,
    when: Annotated[
        str, typer.Argument(metavar="WHEN", help="Schedule in words, or a cron expression")
    ],
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="Instructions for an agent; - reads standard input"),
    ],
    thread: Annotated[
        str | None,
        typer.Option(
            "--in",
            metavar="THREAD",
            help="Thread of the task, such as cli:tax [env: ROTA_THREAD_KEY]",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Name of the task [default: made of WHAT]"),
    ] = None,
    timezone: Timezone = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Add a task for an agent, with a schedule in words.

    Results are delivered to the thread; those of the thread cli stay with the runs.

    Example: rota add "weekdays 7:00" "Summarise my inbox" --in cli:inbox
    """
    cli = CliContext(context, creates_home=True)
    schedule = {"words": when} | ({} if timezone is None else {"timezone": timezone})
    place = default_thread(cli, thread, space)
    is_local = place.startswith(f"{LOCAL_THREAD}:")
    body = {
        "name": name,
        "instructions": text_or_input(what),
        "schedule": schedule,
        "thread": place,
        "policy": None if is_local else {"deliver_to": place},
        "space": space,
    }
    if dry_run and not cli.out.as_json:
        _preview(cli, schedule, space)
    show_change(cli.out, cli.call("POST", "/v1/tasks", body, dry_run=dry_run), "Added")
    warn_if_idle(cli)


def _preview(cli: CliContext, schedule: dict[str, str], space: str | None) -> None:
    body = {"schedule": schedule, "n": FIRES, "space": space}
    found = cli.call("POST", "/v1/schedules/preview", body)
    cli.out.line(found["words"])
    for fire in found["fires"]:
        cli.out.line(f"  {wall_time_with_zone(fire, found['timezone'])}")


MAX_FILE = 4 * 1024 * 1024
FORMAT = "write each task as a table [tasks.NAME]"


def apply(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File with tasks, in TOML or JSON")],
    space: SpaceName = None,
    dry_run: DryRun = False,
) -> None:
    """Create and change tasks to match a file.

    A table [tasks.NAME] has the fields of POST /v1/tasks; the schedule can be a text in words.
    Fields left out are as in a new task. Tasks that are not in the file do not change.

    Example: rota apply tasks.toml --dry-run
    """
    cli = CliContext(context, creates_home=True)
    done = put_all(cli, read_tasks(Path(file)), space, dry_run=dry_run)
    cli.out.record({"tasks": done, "dry_run": dry_run})
    if dry_run:
        cli.out.line(f"Dry run: {count_text(len(done), 'task')} valid, and nothing was changed.")


def import_first(cli: CliContext, file: Path) -> None:
    """Apply a file if it exists and there are no tasks yet, on the database itself."""
    if not file.exists() or cli.call("GET", "/v1/tasks", {"limit": 1}, here=True)["tasks"]:
        return
    put_all(cli, read_tasks(file), None, dry_run=False)


def put_all(
    cli: CliContext, tasks: dict[str, Record], space: str | None, *, dry_run: bool
) -> list[Record]:
    """Create or replace tasks, and write and return what was changed."""
    done: list[Record] = []
    for name in in_order(tasks):
        path = f"/v1/tasks/{quote(name, safe='')}"
        body = {"space": space, **tasks[name]}
        try:
            put = cli.try_call("PUT", path, body, dry_run=dry_run, here="call" in body)
        except RotaError:
            cli.out.line(f"{name}: refused; the tasks after it were not changed")
            raise
        done.append({"task": name, "change": put.get("change", "rehearsed")})
        cli.out.line(f"{name}: {'valid' if dry_run else done[-1]['change']}")
        for line in warnings_of(put) if put else ():
            cli.out.line(f"  ! {line}")
    return done


def read_tasks(file: Path) -> dict[str, Record]:
    """Return the tasks of a file, by name."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
    except OSError as error:
        raise NotFound("file", str(file), str(error.strerror)) from None
    if len(data) > MAX_FILE:
        raise Invalid("file", str(file), f"must not be larger than {MAX_FILE >> 20} MiB")
    try:
        text = data.decode()
        read = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid("file", str(file), str(error)) from None
    found = read.get("tasks") if isinstance(read, dict) else None
    if not isinstance(found, dict) or set(read) != {"tasks"}:
        raise Invalid("file", str(file), FORMAT)
    return {name: _body(file, name, body) for name, body in found.items()}


def _body(file: Path, name: str, body: Any) -> Record:  # noqa: ANN401 - whatever a file holds
    if not isinstance(body, dict):
        raise Invalid("file", f"{file}: tasks.{name}", FORMAT)
    if "/" in name:
        raise Invalid("name", name, "names of tasks in a file cannot contain a slash")
    check_new_name(name)
    schedule = body.get("schedule")
    return {**body, "schedule": {"words": schedule}} if isinstance(schedule, str) else body


def in_order(tasks: dict[str, Record]) -> Iterator[str]:
    """Yield the names of tasks, each after the task that it depends on."""
    left = dict(tasks)
    while left:
        ready = [name for name, body in left.items() if _upstream(body) not in left]
        for name in ready or list(left):  # a cycle is refused later, by name
            del left[name]
            yield name


def _upstream(body: Record) -> object:
    after = body.get("after")
    return after.get("task") if isinstance(after, dict) else None


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(task_app, name="task")
    app.command("ls")(list_tasks)
    app.command("add")(add)
    app.command("apply")(apply)

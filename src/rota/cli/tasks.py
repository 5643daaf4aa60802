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
    LARGEST,
    DryRun,
    SpaceName,
    TaskName,
    Yes,
    optional_whole_number,
    resolve_task_name,
    text_or_input,
    whole_number,
)
from rota.cli.context import CliContext, Record
from rota.cli.display import wall_time, wall_time_with_zone
from rota.cli.runs import PAYLOAD, queue_run
from rota.cli.status import tell_if_idle
from rota.cli.task_options import LOCAL_THREAD, default_thread, task_body, with_task_options
from rota.cli.task_text import (
    agent_words,
    deleted_words,
    done_pairs,
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
from rota.commands.task_fields import TaskCommand
from rota.errors import Invalid, NotFound, Refused, RotaError
from rota.flow.lookup import check_new_name
from rota.flow.observe.time_text import count_text

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
    desk = CliContext(context, makes=True)
    body = task_body(typed)
    call = body.get("call")
    if call is None and body.get("instructions") is None and body.get("command") is None:
        raise Invalid("call", "", "give one of --instructions, --command and --call")
    _check(call, unchecked=unchecked)
    thread = default_thread(desk, body.get("thread"), space)
    wanted = {"name": name, **body, "space": space, "thread": thread}
    made = desk.call("POST", "/v1/tasks", wanted, dry_run=dry_run, here=call is not None)
    tell_defined(desk.out, made, "Created")
    tell_if_idle(desk)


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
    desk = CliContext(context)
    body = task_body(typed)
    if drop_schedule is not None:
        if body:
            raise Invalid("drop-schedule", drop_schedule, "cannot be combined with other changes")
        desk.task("DELETE", name, f"/schedules/{drop_schedule}", {"space": space}, dry_run=dry_run)
        tell_defined(desk.out, desk.task("GET", name, said={"space": space}), "Changed")
        return
    call = body.get("call")
    _check(call, unchecked=unchecked)
    if not body:
        message = "give at least one change: see `rota task edit --help`"
        raise Refused(message)
    body |= {"space": space, "schedule_name": schedule if "schedule" in body else None}
    changed = desk.task("PATCH", name, said=body, dry_run=dry_run, here=call is not None)
    tell_defined(desk.out, changed, "Changed")


def _check(call: str | None, *, unchecked: bool) -> None:
    if call is not None:
        from rota.cli.arguments import check_call  # noqa: PLC0415 - slow to load

        check_call(call, unchecked=unchecked)


MAX_LISTED = 1_000
MOST_FIRES = 100

task_app = typer.Typer(
    help="Tasks: what to do, when, and under which rules.\n\n"
    "Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'",
    rich_markup_mode=None,
)


task_app.command()(create)


@task_app.command("list")
def list_tasks(
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
    desk = CliContext(context)
    wanted = {
        "state": state,
        "kind": kind,
        "thread": thread,
        "text": text,
        "limit": whole_number("limit", limit, 1, MAX_LISTED),
        "before": optional_whole_number("before", before, 1, LARGEST),
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
            wall_time(next_of(task), zone),
            what_of(task),
        ]
        for task in tasks
    ]
    columns = ["task", "state", "when", f"next ({zone})", "what"]
    desk.out.table(columns, rows, 'No tasks: rota add "weekdays 7:00" "Summarise my inbox"')
    if found["next"] is not None:
        desk.out.talk(f"There may be more: --before {found['next']}")


@task_app.command()
def show(context: typer.Context, name: TaskName, space: SpaceName = None) -> None:
    """Show one task: its schedules, policy, tally and newest runs.

    Example: rota task show report
    """
    desk = CliContext(context)
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
            ("until", wall_time_with_zone(task["paused_until"], zone) if paused else ""),
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
            [str(r["id"]), r["state"], wall_time(r["started_at"], zone), said(r)]
            for r in task["recent"]
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


@task_app.command("next")
def next_fires(
    context: typer.Context,
    name: TaskName,
    count: Annotated[str, typer.Option("-n", metavar="N", help="How many.")] = "5",
    space: SpaceName = None,
) -> None:
    """Tell when a task runs next.

    Example: rota task next report -n 3
    """
    desk = CliContext(context)
    most = whole_number("n", count, 1, MOST_FIRES)
    found = desk.task("GET", name, "/next", {"n": most, "space": space})
    desk.out.record(found)
    rows = [[fire["local"], fire["schedule"]] for fire in found["fires"]]
    desk.out.table(["at", "schedule"], rows, f"{found['task']} has nothing planned.")


task_app.command()(edit)


@task_app.command()
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
    desk = CliContext(context)
    name = resolve_task_name(desk, name, space)
    done = queue_run(desk, name, {"payload": payload, "space": space}, dry_run=dry_run)
    desk.out.record(done)
    desk.out.line(f"Queued run {done['run']} of {name}. Follow it: rota logs {done['run']} -f")
    tell_if_idle(desk)


@task_app.command()
def enable(
    context: typer.Context, name: TaskName, dry_run: DryRun = False, space: SpaceName = None
) -> None:
    """Let a task's slots run again, from now on.

    Example: rota task enable report
    """
    desk = CliContext(context)
    tell_defined(
        desk.out, desk.task("POST", name, "/enable", {"space": space}, dry_run=dry_run), "Enabled"
    )


@task_app.command()
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
    desk = CliContext(context)
    wanted = {"reason": reason, "space": space}
    task = desk.task("POST", name, "/disable", wanted, dry_run=dry_run)
    desk.out.record(task)
    told = task["name"]
    desk.out.line(f"Disabled {told}. Its slots are skipped until: rota task enable {told}")


@task_app.command()
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
    desk = CliContext(context)
    wanted = {"reason": reason, "until": until, "timezone": timezone, "space": space}
    task = desk.task("POST", name, "/disable", wanted, dry_run=dry_run)
    desk.out.record(task)
    if not desk.out.as_json:
        end = wall_time_with_zone(task["paused_until"], timezone or desk.zone(task["space"]))
        desk.out.line(f"Paused {task['name']} until {end}.")


@task_app.command()
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
    desk = CliContext(context)
    name = resolve_task_name(desk, name, space)
    question = f"Delete the task {name}, and cancel its runs?"
    desk.out.confirm(question, yes=yes or dry_run)
    told = _would_go(desk, name, space) if dry_run else ""
    if told:
        desk.out.line(told)
    gone = desk.task("DELETE", name, said={"space": space}, dry_run=dry_run)
    desk.out.record(gone)
    desk.out.line(deleted_words(gone))


def _would_go(desk: CliContext, name: str, space: str | None) -> str:
    """Return what deleting a task would take away, and what stays."""
    about: Record = {"task": desk.reference(name, space), "space": space}
    schedules = len(desk.call("GET", "/v1/schedules", about)["schedules"])
    runs = {
        state: len(desk.call("GET", "/v1/runs", {**about, "state": state})["runs"])
        for state in ("queued", "waiting", "running")
    }
    ended = count_text(runs["queued"] + runs["waiting"], "run")
    return (
        f"Deleting {name} takes away {count_text(schedules, 'schedule')}, cancels {ended} "
        f"that wait, and asks {count_text(runs['running'], 'run')} to stop. Its history stays."
    )


FIRES = 3


def add(
    context: typer.Context,
    when: Annotated[str, typer.Argument(metavar="WHEN", help="In words, or a cron line.")],
    what: Annotated[str, typer.Argument(metavar="WHAT", help="Instructions; - reads them.")],
    thread: Annotated[
        str | None,
        typer.Option("--in", metavar="THREAD", help="Conversation, 'cli:tax' [ROTA_THREAD_KEY]."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name [made of WHAT].")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="ZONE", help="Zone of WHEN [the space's].")
    ] = None,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Give an agent something to do, at times said in words.

    Results go to the conversation, or stay with the runs if there is none but this terminal.

    Example: rota add "weekdays 7:00" "Summarise my inbox" --in cli:inbox
    """
    desk = CliContext(context, makes=True)
    schedule = {"words": when} | ({} if timezone is None else {"timezone": timezone})
    place = default_thread(desk, thread, space)
    away = not place.startswith(f"{LOCAL_THREAD}:")
    wanted = {
        "name": name,
        "instructions": text_or_input(what),
        "schedule": schedule,
        "thread": place,
        "policy": {"deliver_to": place} if away else None,
        "space": space,
    }
    if dry_run and not desk.out.as_json:
        _preview(desk, schedule, space)
    tell_defined(desk.out, desk.call("POST", "/v1/tasks", wanted, dry_run=dry_run), "Added")
    tell_if_idle(desk)


def _preview(desk: CliContext, schedule: dict[str, str], space: str | None) -> None:
    wanted = {"schedule": schedule, "n": FIRES, "space": space}
    seen = desk.call("POST", "/v1/schedules/preview", wanted)
    desk.out.line(seen["words"])
    for fire in seen["fires"]:
        desk.out.line(f"  {wall_time_with_zone(fire, seen['timezone'])}")


LONGEST_FILE = 4 * 1024 * 1024
SHAPE = "write every task as a table [tasks.NAME]"


def apply(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Tasks in TOML, or in JSON.")],
    space: SpaceName = None,
    dry_run: DryRun = False,
) -> None:
    """Let tasks be what a file says: create, change, or leave alone.

    A table [tasks.NAME] holds what POST /v1/tasks takes; a schedule may be words. What a table
    leaves out is as in a new task. Tasks that are not in the file are left alone.

    Example: rota apply tasks.toml --dry-run
    """
    desk = CliContext(context, makes=True)
    done = put_all(desk, read_tasks(Path(file)), space, dry_run=dry_run)
    desk.out.record({"tasks": done, "dry_run": dry_run})
    if dry_run:
        desk.out.line(f"{count_text(len(done), 'task')} would do; nothing was changed.")


def import_first(desk: CliContext, file: Path) -> None:
    """Apply a file if there is one and no task yet, on the database itself."""
    if not file.exists() or desk.call("GET", "/v1/tasks", {"limit": 1}, here=True)["tasks"]:
        return
    put_all(desk, read_tasks(file), None, dry_run=False)


def put_all(
    desk: CliContext, tasks: dict[str, Record], space: str | None, *, dry_run: bool
) -> list[Record]:
    """Put every task, and tell and return what had to be done for each."""
    done: list[Record] = []
    for name in in_order(tasks):
        path = f"/v1/tasks/{quote(name, safe='')}"
        said = {"space": space, **tasks[name]}
        try:
            put = desk.rehearsed("PUT", path, said, dry_run=dry_run, here="call" in said)
        except RotaError:
            desk.out.line(f"{name}: refused; nothing after it was done")
            raise
        done.append({"task": name, "change": put.get("change", "rehearsed")})
        desk.out.line(f"{name}: {done[-1]['change']}")
        for line in warnings_of(put) if put else ():
            desk.out.line(f"  ! {line}")
    return done


def read_tasks(file: Path) -> dict[str, Record]:
    """Return what a file says of each task, by its name."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LONGEST_FILE + 1)
    except OSError as fault:
        raise NotFound("file", str(file), str(fault.strerror)) from None
    if len(data) > LONGEST_FILE:
        raise Invalid("file", str(file), f"keep it within {LONGEST_FILE >> 20} MiB")
    try:
        text = data.decode()
        read = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Invalid("file", str(file), str(fault)) from None
    found = read.get("tasks") if isinstance(read, dict) else None
    if not isinstance(found, dict) or set(read) != {"tasks"}:
        raise Invalid("file", str(file), SHAPE)
    return {name: _body(file, name, body) for name, body in found.items()}


def _body(file: Path, name: str, body: Any) -> Record:  # noqa: ANN401 - whatever a file holds
    if not isinstance(body, dict):
        raise Invalid("file", f"{file}: tasks.{name}", SHAPE)
    if "/" in name:
        raise Invalid("name", name, "give a task of a file a name without a slash")
    check_new_name(name)
    words = body.get("schedule")
    return {**body, "schedule": {"words": words}} if isinstance(words, str) else body


def in_order(tasks: dict[str, Record]) -> Iterator[str]:
    """Yield the names of tasks, those that follow another one after it."""
    left = dict(tasks)
    while left:
        ready = [name for name, body in left.items() if _upstream(body) not in left]
        for name in ready or list(left):  # a circle is refused by name
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

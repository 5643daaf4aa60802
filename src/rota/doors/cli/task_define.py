"""`rota task create` and `rota task edit`."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.doors.cli import done_options as done
from rota.doors.cli import task_options as opt
from rota.doors.cli import wish_options as wish
from rota.doors.cli.desk import Desk
from rota.doors.cli.idle_words import tell_if_idle
from rota.doors.cli.task_words import tell_defined
from rota.doors.cli.values import DryRun, SpaceName, TaskName, text_or_input
from rota.errors import Invalid, Refused


def create(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Letters, digits and _ . : / - [made of the title]."),
    ] = None,
    call: opt.Call = None,
    instructions: opt.Instructions = None,
    command: opt.CommandLine = None,
    shell: opt.Shell = False,
    agent: opt.AgentName = None,
    model: wish.Model = None,
    fallback_model: wish.FallbackModel = None,
    tool: wish.Tool = None,
    deny_tool: wish.DenyTool = None,
    thinking: wish.Thinking = None,
    permission_mode: wish.PermissionMode = None,
    max_turns: wish.MaxTurns = None,
    session_context: wish.Context = None,
    envelope: wish.Envelope = None,
    previous_result: wish.PreviousResult = None,
    answers: wish.Answers = None,
    phrases: wish.Phrases = None,
    prompt_by: wish.PromptBy = None,
    output: wish.Result = None,
    executor: opt.Executor = None,
    image: opt.Image = None,
    isolate: opt.Isolate = False,
    mount: opt.Mounts = None,
    network: opt.NetworkName = None,
    folder: opt.Folder = None,
    memory: opt.MemoryMiB = None,
    processes: opt.Processes = None,
    cpus: opt.Cpus = None,
    check: done.Checks = None,
    gate: done.Gate = None,
    gate_timeout: done.GateTimeout = None,
    next_check: done.NextCheck = None,
    thread: opt.Thread = None,
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
    idle_timeout: opt.IdleTimeout = None,
    grace: opt.Grace = None,
    priority: opt.Priority = None,
    pool: opt.PoolName = None,
    overlap: opt.OverlapMode = None,
    catch_up: opt.CatchUpMode = None,
    on_lost: opt.OnLost = None,
    disable_after: opt.DisableAfter = None,
    until_success: opt.UntilSuccess = None,
    deadline: opt.Deadline = None,
    group: opt.Group = None,
    lane: opt.Lane = None,
    after: opt.AfterTask = None,
    on: opt.AfterEnd = None,
    deliver_to: opt.DeliverTo = None,
    acknowledge: opt.Acknowledge = None,
    progress: opt.ProgressLines = None,
    jitter: opt.Jitter = None,
    exclude: opt.Exclude = None,
    quiet: opt.Quiet = None,
    quiet_mode: opt.QuietMode = None,
    starts_at: opt.StartsAt = None,
    ends_at: opt.EndsAt = None,
    gap: opt.Gap = None,
    fold: opt.Fold = None,
    unchecked: opt.Unchecked = False,
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Create a task, with at most one schedule; without one it runs only when asked.

    Example: rota task create report --call reports:daily --cron '0 7 * * mon-fri'
    """
    given = dict(locals())
    desk = Desk(context, makes=True)
    if call is None and instructions is None and command is None:
        raise Invalid("call", "", "say what to do: --instructions, --command or --call")
    wanted = {
        "name": name,
        "title": title,
        "call": call,
        "agent": agent,
        **wish.wishes_of(given),
        **opt.program_of(command, shell=shell),
        **opt.site_of(given),
        **done.done_of(given),
        "instructions": None if instructions is None else text_or_input(instructions),
        "schedule": opt.schedule_of(given),
        "policy": opt.policy_of(given),
        "after": opt.after_of(given),
        "space": space,
    }
    _check(call, unchecked=unchecked)
    wanted["thread"] = opt.thread_of(desk, thread, space)
    here = call is not None
    tell_defined(
        desk.out, desk.call("POST", "/v1/tasks", wanted, dry_run=dry_run, here=here), "Created"
    )
    tell_if_idle(desk)


def edit(
    context: typer.Context,
    name: TaskName,
    call: opt.Call = None,
    instructions: opt.Instructions = None,
    command: opt.CommandLine = None,
    shell: opt.Shell = False,
    agent: opt.AgentName = None,
    model: wish.Model = None,
    fallback_model: wish.FallbackModel = None,
    tool: wish.Tool = None,
    deny_tool: wish.DenyTool = None,
    thinking: wish.Thinking = None,
    permission_mode: wish.PermissionMode = None,
    max_turns: wish.MaxTurns = None,
    session_context: wish.Context = None,
    envelope: wish.Envelope = None,
    previous_result: wish.PreviousResult = None,
    answers: wish.Answers = None,
    phrases: wish.Phrases = None,
    prompt_by: wish.PromptBy = None,
    output: wish.Result = None,
    executor: opt.Executor = None,
    image: opt.Image = None,
    isolate: opt.Isolate = False,
    mount: opt.Mounts = None,
    network: opt.NetworkName = None,
    folder: opt.Folder = None,
    memory: opt.MemoryMiB = None,
    processes: opt.Processes = None,
    cpus: opt.Cpus = None,
    check: done.Checks = None,
    gate: done.Gate = None,
    gate_timeout: done.GateTimeout = None,
    no_gate: done.NoGate = False,
    next_check: done.NextCheck = None,
    no_next_check: done.NoNextCheck = False,
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
    idle_timeout: opt.IdleTimeout = None,
    grace: opt.Grace = None,
    priority: opt.Priority = None,
    pool: opt.PoolName = None,
    overlap: opt.OverlapMode = None,
    catch_up: opt.CatchUpMode = None,
    on_lost: opt.OnLost = None,
    disable_after: opt.DisableAfter = None,
    until_success: opt.UntilSuccess = None,
    deadline: opt.Deadline = None,
    group: opt.Group = None,
    lane: opt.Lane = None,
    after: opt.AfterTask = None,
    on: opt.AfterEnd = None,
    deliver_to: opt.DeliverTo = None,
    acknowledge: opt.Acknowledge = None,
    progress: opt.ProgressLines = None,
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
    dry_run: DryRun = False,
    space: SpaceName = None,
) -> None:
    """Change what is given and leave the rest; a new rule replaces the schedule's old one.

    The word none takes these off again: --model --fallback-model --deny-tool --permission-mode
    --max-turns --prompt-by --output --executor --image --mount --folder --memory --processes
    --cpus --check --timeout --idle-timeout --grace --pool --deadline --group --lane --after
    --deliver-to.

    Example: rota task edit report --cron '30 7 * * 1-5' --retry 3
    """
    given = dict(locals())
    desk = Desk(context)
    wanted = {
        "title": title,
        "call": call,
        "agent": agent,
        **wish.wishes_of(given),
        **opt.program_of(command, shell=shell),
        **opt.site_of(given),
        **done.done_of(given),
        "instructions": None if instructions is None else text_or_input(instructions),
        "schedule": opt.schedule_of(given),
        "policy": opt.policy_of(given),
        "after": opt.after_of(given),
    }
    if drop_schedule is not None:
        if any(value is not None for value in wanted.values()):
            raise Invalid("drop-schedule", drop_schedule, "goes alone: change the rest by itself")
        desk.task("DELETE", name, f"/schedules/{drop_schedule}", {"space": space}, dry_run=dry_run)
        tell_defined(desk.out, desk.task("GET", name, said={"space": space}), "Changed")
        return
    _check(call, unchecked=unchecked)
    if not any(value is not None for value in wanted.values()):
        message = "say what to change: see `rota task edit --help`"
        raise Refused(message)
    wanted |= {"space": space, "schedule_name": schedule if wanted["schedule"] else None}
    changed = desk.task("PATCH", name, said=wanted, dry_run=dry_run, here=call is not None)
    tell_defined(desk.out, changed, "Changed")


def _check(call: str | None, *, unchecked: bool) -> None:
    if call is not None:
        from rota.doors.cli.calls import check_call  # noqa: PLC0415 - slow to load

        check_call(call, unchecked=unchecked)

"""Tasks in words."""

from __future__ import annotations

from typing import Any

from rota.doors.cli.show import Output, wall_named
from rota.doors.cli.values import now
from rota.doors.cli.wire import task_record, words_of, zone_of
from rota.flow.observe.tasks import TaskView, next_fires
from rota.flow.observe.telling import counted, first_line
from rota.model.codec import to_json
from rota.model.plans import ScheduleState, StoredSchedule
from rota.model.runs import Run
from rota.model.states import RunState
from rota.model.tasks import Policy, Task

FIRES = 3


def tell_defined(out: Output, view: TaskView, what: str) -> None:
    """Tell what became of a task, with its schedules in words and the next fires."""
    record: dict[str, Any] = task_record(view.task, view.schedules)
    for shown, schedule in zip(record["schedules"], view.schedules, strict=True):
        fires = next_fires(schedule, view.now, FIRES)
        shown["fires"] = [to_json(fire) for fire in fires]
    out.record(record)
    out.line(f"{what.capitalize()} {view.task.name}.")
    for schedule in view.schedules:
        out.line(f"  {words_of(schedule)}")
        for fire in next_fires(schedule, view.now, FIRES):
            out.line(f"    {wall_named(fire, zone_of(schedule))}")
    if view.task.after is not None:
        out.line(f"  runs after {view.task.after.task} (on {view.task.after.on})")
    elif not view.schedules:
        out.line(f"  runs when asked: rota task run {view.task.name}")


def said(run: Run) -> str:
    """Return the first line of what a run came to."""
    return first_line(run.result if run.state is RunState.SUCCEEDED else run.error)


def state_of(task: Task) -> str:
    """Return whether a task's slots run."""
    if not task.enabled:
        return "disabled"
    paused = task.paused_until is not None and task.paused_until > now()
    return "paused" if paused else "enabled"


def when_of(task: Task, own: list[StoredSchedule]) -> str:
    """Return when a task runs, shortly."""
    if own:
        return first_line("; ".join(words_of(schedule) for schedule in own), 48)
    return f"after {task.after.task}" if task.after is not None else "when asked"


def schedule_lines(view: TaskView, schedule: StoredSchedule, zone: str) -> str:
    """Return a schedule in words, with its state and its next fire."""
    lines = [words_of(schedule)]
    if len(view.schedules) > 1 or schedule.name != "default":
        lines[0] = f"{schedule.name}: {lines[0]}"
    if schedule.state is not ScheduleState.ACTIVE:
        lines.append(f"{schedule.state}: {schedule.note}")
    fires = next_fires(schedule, view.now, 1)
    if fires and view.task.enabled:
        lines.append(f"next {wall_named(fires[0], zone)}")
    return "\n".join(lines)


def policy_words(policy: Policy) -> str:
    """Return what differs from the default policy."""
    words = []
    if policy.retry.attempts > 1:
        words.append(f"up to {counted(policy.retry.attempts, 'attempt')}")
    default = Policy()
    for name in ("timeout", "deadline", "pool", "priority", "lane", "group", "overlap", "on_lost"):
        value = getattr(policy, name)
        if value is not None and value != getattr(default, name):
            words.append(f"{name.replace('_', ' ')} {value}")
    if policy.catch_up.mode != default.catch_up.mode:
        words.append(f"catch up {policy.catch_up.mode}")
    if policy.disable_after:
        words.append(f"disabled after {counted(policy.disable_after, 'failure')} in a row")
    return ", ".join(words)

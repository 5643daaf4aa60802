"""Tasks as text."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any

from rota.cli.budgets import forecast_text
from rota.cli.context import Record
from rota.cli.display import Display, compact, wall_time_with_zone
from rota.commands.task_fields import FieldKind, TaskField, fields_at
from rota.flow.observe.time_text import count_text, duration_text, first_line
from rota.model.json import to_json
from rota.model.runs import FINISHED
from rota.model.tasks import Policy

DEFAULT = "default"
MAX_WHEN = 48
MAX_NAMED = 5
DEFAULT_POLICY: Any = to_json(Policy())
HIDDEN = "-"
"""How the table marks a value that is shown elsewhere."""


def show_change(out: Display, task: Record, done: str) -> None:
    """Write a task after a change: when it runs, where, and where its results go."""
    out.record(task)
    out.line(f"{done} {task['name']}.")
    schedules = task["schedules"]
    for schedule in schedules:
        out.line(f"  {schedule['words']}")
    zone = schedules[0]["timezone"] if schedules else "UTC"
    for fire in task["fires"]:
        out.line(f"    {wall_time_with_zone(fire, zone)}")
    if task["after"] is not None:
        out.line(f"  runs after {task['after']['task']} (on {task['after']['on']})")
    elif not schedules:
        out.line(f"  runs on request: rota run {task['name']}")
    if task["site"] is not None:
        out.line(f"  executor: {site_text(task)}")
    for line in warnings_of(task):
        out.line(f"  ! {line}")
    out.line(f"  results: {_results_text(task)}")
    if task["warning"] is not None:
        out.line(f"  ! {task['warning']}")
    if task["kind"] == "agent" or task["forecast"] is not None:
        out.line(f"  average usage: {forecast_text(task['forecast'])}")


SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"})


def deleted_text(deleted: Record) -> str:
    """Return the sentence about a deleted task and its runs."""
    parts = [f"Deleted {deleted['name']}"]
    if deleted["cancelled"]:
        parts.append(f"{_runs_text(deleted['cancelled'])} cancelled")
    if deleted["stopping"]:
        parts.append(f"{_runs_text(deleted['stopping'])} stopping")
    return f"{'; '.join(parts)}."


def _runs_text(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"run {numbers[0]} is"
    named = ", ".join(map(str, numbers[:MAX_NAMED]))
    more = "" if len(numbers) <= MAX_NAMED else f" and {len(numbers) - MAX_NAMED} more"
    return f"runs {named}{more} are"


def site_text(task: Record) -> str:
    """Return the executor of a task with its options."""
    site, held = task["site"], task["site"].get("enforced_limits", {})
    parts = [site["executor"]]
    if site["isolated"] and site["terminal"]:
        parts.append("isolated")
    if site["image"] is not None:
        parts.append(f"image {site['image']}")
    if site["network"] != "none":
        parts.append(f"network {site['network']}")
    if site["folder"] is not None:
        parts.append(f"folder {site['folder']}")
    if site["mounts"]:
        parts.append(f"mounts {' '.join(site['mounts'])}")
    if site["memory_mib"] is not None:
        each = " for each process" if held.get("memory_mib") == "each" else ""
        parts.append(f"at most {site['memory_mib']} MiB{each}")
    if site["processes"] is not None:
        parts.append(f"at most {site['processes']} processes")
    if site["cpus"] is not None:
        parts.append(f"at most {site['cpus']:g} processors")
    return ", ".join(parts) + (f" (default for space {task['space']})" if site["default"] else "")


def warnings_of(task: Record) -> list[str]:
    """Return what will not work as the task says on the daemon's machine."""
    return [*task["missing_programs"], *limit_warnings(task), *_shell_warnings(task)]


def _shell_warnings(task: Record) -> list[str]:
    """Return a warning about a word of the command that only a shell understands."""
    if task["shell"]:
        return []
    found = [word for word in task["command"] or () if word in SHELL_WORDS]
    advice = "is passed to the program as text; use --shell to run this in a shell"
    return [f'"{found[0]}" {advice}'] if found else []


def limit_warnings(task: Record) -> list[str]:
    """Return warnings about resource limits that cannot be enforced on the daemon's machine."""
    held = (task["site"] or {}).get("enforced_limits", {})
    return [
        text.format(task["name"]) for name, text in NOT_ENFORCED.items() if held.get(name) == "not"
    ]


NOT_ENFORCED = {
    "processes": "the number of processes cannot be limited on this machine: see `rota doctor`",
    "cpus": "processors cannot be limited on this machine, so that runs will fail: see "
    "`rota doctor`, or remove the limit: rota task edit {} --cpus none",
}


def _results_text(task: Record) -> str:
    to = task["policy"].get("deliver_to")
    return f"rota logs {task['name']}" if to is None else f"delivered to {to}"


def summarise_result(run: Record, limit: int = 120) -> str:
    """Return the first line of a run's result or error."""
    if run["error"] and run["state"] not in FINISHED:
        return first_line(f"earlier attempt: {run['error']}", limit)
    if run["state"] != "succeeded":
        return first_line(run["error"], limit)
    result = run["result"]
    if result is None:
        return ""
    return first_line(result if isinstance(result, str) else compact(result), limit)


def when_of(task: Record) -> str:
    """Return when a task runs, in a few words."""
    own = task["schedules"]
    if own:
        return first_line("; ".join(schedule["words"] for schedule in own), MAX_WHEN)
    return f"after {task['after']['task']}" if task["after"] is not None else "on request"


def next_of(task: Record) -> str | None:
    """Return the next time of a task, if it is not disabled."""
    if task["state"] == "disabled":
        return None
    return min((s["next_at"] for s in task["schedules"] if s["next_at"]), default=None)


def what_of(task: Record) -> str:
    """Return what a task does, in a few words."""
    return str(task["title"] or first_line(work_of(task), 60))


def work_of(task: Record) -> str:
    """Return what a task does: its instructions, its program or its function."""
    return str(task["instructions"] or task["call"] or program_of(task) or task["route"])


def program_of(task: Record) -> str:
    """Return the command of a task as it would be typed."""
    words = task["command"] or []
    return f"sh -c {shlex.quote(words[0])}" if task["shell"] else shlex.join(words)


def agent_text(task: Record) -> str:
    """Return the agent of a task with its spec."""
    if task["agent"] is None:
        return ""
    spec = (
        f"{name.replace('_', ' ')} {_plain(value)}" for name, value in task["agent_spec"].items()
    )
    return ", ".join((task["agent"], *spec))


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def schedule_text(task: Record, schedule: Record) -> str:
    """Return a schedule in words, with its state and its next time."""
    lines = [str(schedule["words"])]
    if len(task["schedules"]) > 1 or schedule["name"] != DEFAULT:
        lines[0] = f"{schedule['name']}: {lines[0]}"
    if schedule["state"] != "active":
        lines.append(f"{schedule['state']}: {schedule['note']}")
    elif schedule["next_at"] and task["state"] != "disabled":
        lines.append(f"next {wall_time_with_zone(schedule['next_at'], schedule['timezone'])}")
    return "\n".join(lines)


def policy_text(policy: Record) -> str:
    """Return what differs from the default policy."""
    parts = []
    for field in fields_at("policy"):
        value, default = (_value_at(record, field) for record in (policy, DEFAULT_POLICY))
        if value is not None and value != default and field.shown != HIDDEN:
            parts.append(_policy_text(field, value))
    return ", ".join(parts)


def _value_at(policy: Any, field: TaskField) -> Any:  # noqa: ANN401 - any value of JSON
    for name in field.path.split(".")[1:]:
        policy = policy[name]
    return policy


def _policy_text(field: TaskField, value: Any) -> str:  # noqa: ANN401 - any value of JSON
    """Return a value of the policy; `{noun}` in the table stands for a count of it."""
    if field.kind is FieldKind.LENGTH:
        value = duration_text(timedelta(seconds=value))
    begin, brace, rest = field.shown.partition("{")
    noun, _, end = rest.partition("}")
    if brace:
        return f"{begin}{count_text(value, noun) if noun else value}{end}"
    name = field.path.partition(".")[2].replace(".", " ").replace("_", " ")
    return field.shown or f"{name} {value}"


def condition_pairs(task: Record) -> list[tuple[str, str]]:
    """Return the checks, the gate and the next check of a task, each with its name."""
    gate, limits = task["gate"], task["next_check"]
    timeout = "" if gate is None or "timeout" not in gate else f" (timeout {gate['timeout']})"
    return [
        ("checks", "\n".join(_check(check) for check in task["checks"])),
        ("gate", "" if gate is None else f"{shlex.join(gate['command'])}{timeout}"),
        ("next check", "" if limits is None else f"{limits['min']} to {limits['max']}"),
    ]


def _check(check: Record) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in check.items())


def _value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value if isinstance(value, str) else compact(value)

"""Tasks as text."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import Any

from rota.cli.budgets import forecast_words
from rota.cli.context import Record
from rota.cli.display import Display, compact, wall_time_with_zone
from rota.commands.task_fields import FieldKind, TaskField, fields_at
from rota.flow.observe.time_text import count_text, duration_text, first_line
from rota.model.json import to_json
from rota.model.runs import FINISHED
from rota.model.tasks import Policy

DEFAULT = "default"
LONGEST_WHEN = 48
MOST_NAMED = 5
DEFAULT_POLICY: Any = to_json(Policy())
HIDDEN = "-"
"""How the table says that a value is shown elsewhere."""


def tell_defined(out: Display, task: Record, what: str) -> None:
    """Tell what became of a task: when it runs next, and where its results go."""
    out.record(task)
    out.line(f"{what} {task['name']}.")
    schedules = task["schedules"]
    for schedule in schedules:
        out.line(f"  {schedule['words']}")
    zone = schedules[0]["timezone"] if schedules else "UTC"
    for fire in task["fires"]:
        out.line(f"    {wall_time_with_zone(fire, zone)}")
    if task["after"] is not None:
        out.line(f"  runs after {task['after']['task']} (on {task['after']['on']})")
    elif not schedules:
        out.line(f"  runs when asked: rota run {task['name']}")
    if task["site"] is not None:
        out.line(f"  runs in {site_words(task)}")
    for line in warnings_of(task):
        out.line(f"  ! {line}")
    out.line(f"  {results_of(task)}")
    if task["warning"] is not None:
        out.line(f"  {task['warning']}")
    if task["kind"] == "agent" or task["forecast"] is not None:
        out.line(f"  a run uses: {forecast_words(task['forecast'])}")


OF_SHELLS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>&1"})


def deleted_words(gone: Record) -> str:
    """Return what was deleted, and what becomes of its runs."""
    parts = [f"Deleted {gone['name']}"]
    if gone["cancelled"]:
        parts.append(f"{_its_runs(gone['cancelled'])} cancelled")
    if gone["stopping"]:
        parts.append(f"{_its_runs(gone['stopping'])} asked to stop")
    return f"{'; '.join(parts)}."


def _its_runs(numbers: list[int]) -> str:
    """Return runs by their numbers, or how many there are."""
    if len(numbers) == 1:
        return f"its run {numbers[0]} is"
    told = ", ".join(map(str, numbers[:MOST_NAMED]))
    more = "" if len(numbers) <= MOST_NAMED else f" and {len(numbers) - MOST_NAMED} more"
    return f"its runs {told}{more} are"


def site_words(task: Record) -> str:
    """Return where the programs of a task run."""
    site = task["site"]
    words = [f"a terminal of {site['executor']}" if site["terminal"] else f"a {site['executor']}"]
    if site["isolated"] and site["terminal"]:
        words.append("behind walls")
    if site["image"] is not None:
        words.append(f"of {site['image']}")
    if site["network"] != "none":
        words.append("with the network" if site["network"] == "open" else "with the outlet")
    if site["folder"] is not None:
        words.append(f"in {site['folder']}")
    if site["mounts"]:
        words.append(f"with {', '.join(site['mounts'])}")
    held = site.get("held", {})
    if site["memory_mib"] is not None:
        each = "with each process " if held.get("memory_mib") == "each" else ""
        words.append(f"{each}within {site['memory_mib']} MiB")
    if site["processes"] is not None:
        words.append(f"with {site['processes']} processes at most")
    if site["cpus"] is not None:
        words.append(f"on {site['cpus']:g} processors at most")
    return " ".join(words) + (f", as usual in the space {task['space']}" if site["usual"] else "")


def warnings_of(task: Record) -> list[str]:
    """Return what would go wrong with a task where it was asked."""
    return [*task["lacks"], *unheld_words(task), *_for_a_shell(task)]


def _for_a_shell(task: Record) -> list[str]:
    """Return that no shell is asked, where a word alone means something to a shell only."""
    if task["shell"]:
        return []
    found = [word for word in task["command"] or () if word in OF_SHELLS]
    return [f"no shell is asked, so {found[0]} is a word like others: see --shell"] if found else []


def unheld_words(task: Record) -> list[str]:
    """Return what a task was promised and nothing holds where it was asked."""
    held = (task["site"] or {}).get("held", {})
    return [UNHELD[name].format(task["name"]) for name in UNHELD if held.get(name) == "not"]


UNHELD = {
    "processes": "nothing here bounds the number of processes: see `rota doctor`",
    "cpus": "nothing here bounds processors, and runs that begin here are refused: see "
    "`rota doctor`, or take it off: rota task edit {} --cpus none",
}


def results_of(task: Record) -> str:
    """Return where the results of a task go."""
    to = task["policy"].get("deliver_to")
    kept = f"results stay with the runs: rota logs {task['name']}"
    return kept if to is None else f"results go to {to}"


def said(run: Record, most: int = 120) -> str:
    """Return the first line of what a run came to, or of why an earlier try did not get there."""
    if run["error"] and run["state"] not in FINISHED:
        return first_line(f"earlier try: {run['error']}", most)
    if run["state"] != "succeeded":
        return first_line(run["error"], most)
    result = run["result"]
    if result is None:
        return ""
    return first_line(result if isinstance(result, str) else compact(result), most)


def when_of(task: Record) -> str:
    """Return when a task runs, shortly."""
    own = task["schedules"]
    if own:
        return first_line("; ".join(schedule["words"] for schedule in own), LONGEST_WHEN)
    return f"after {task['after']['task']}" if task["after"] is not None else "when asked"


def next_of(task: Record) -> str | None:
    """Return when a task runs next; one that is disabled does not."""
    if task["state"] == "disabled":
        return None
    return min((s["next_at"] for s in task["schedules"] if s["next_at"]), default=None)


def what_of(task: Record) -> str:
    """Return what a task does, shortly."""
    return str(task["title"] or first_line(work_of(task), 60))


def work_of(task: Record) -> str:
    """Return what a task does: its instructions, its program or its callable."""
    return str(task["instructions"] or task["call"] or program_of(task) or task["route"])


def program_of(task: Record) -> str:
    """Return the program of a task as it would be typed; a line for a shell says so."""
    words = task["command"] or []
    return f"sh -c {shlex.quote(words[0])}" if task["shell"] else shlex.join(words)


def agent_words(task: Record) -> str:
    """Return a task's agent and what it was asked for."""
    if task["agent"] is None:
        return ""
    wishes = (f"{name.replace('_', ' ')} {_listed(value)}" for name, value in task["wish"].items())
    return ", ".join((task["agent"], *wishes))


def _listed(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def schedule_lines(task: Record, schedule: Record) -> str:
    """Return a schedule in words, with its state and its next fire."""
    lines = [str(schedule["words"])]
    if len(task["schedules"]) > 1 or schedule["name"] != DEFAULT:
        lines[0] = f"{schedule['name']}: {lines[0]}"
    if schedule["state"] != "active":
        lines.append(f"{schedule['state']}: {schedule['note']}")
    elif schedule["next_at"] and task["state"] != "disabled":
        lines.append(f"next {wall_time_with_zone(schedule['next_at'], schedule['timezone'])}")
    return "\n".join(lines)


def policy_words(policy: Record) -> str:
    """Return what differs from the default policy."""
    words = []
    for field in fields_at("policy"):
        value, default = (_value_at(record, field) for record in (policy, DEFAULT_POLICY))
        if value is not None and value != default and field.shown != HIDDEN:
            words.append(_policy_text(field, value))
    return ", ".join(words)


def _value_at(policy: Any, field: TaskField) -> Any:  # noqa: ANN401 - any value of JSON
    for name in field.path.split(".")[1:]:
        policy = policy[name]
    return policy


def _policy_text(field: TaskField, value: Any) -> str:  # noqa: ANN401 - any value of JSON
    """Return one value in words; a noun in braces stands for that many of it."""
    if field.kind is FieldKind.LENGTH:
        value = duration_text(timedelta(seconds=value))
    begin, brace, rest = field.shown.partition("{")
    noun, _, end = rest.partition("}")
    if brace:
        return f"{begin}{count_text(value, noun) if noun else value}{end}"
    name = field.path.partition(".")[2].replace(".", " ").replace("_", " ")
    return field.shown or f"{name} {value}"


def done_pairs(task: Record) -> list[tuple[str, str]]:
    """Return what a task says of this, each with its name; what it does not say is empty."""
    gate, bounds = task["gate"], task["next_check"]
    within = "" if gate is None or "timeout" not in gate else f", within {gate['timeout']}"
    return [
        ("done if", "\n".join(_check(check) for check in task["checks"])),
        ("begins if", "" if gate is None else f"{shlex.join(gate['command'])} says so{within}"),
        ("looks again", "" if bounds is None else f"in {bounds['min']} to {bounds['max']}"),
    ]


def _check(check: Record) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in check.items())


def _value(value: object) -> str:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value if isinstance(value, str) else compact(value)

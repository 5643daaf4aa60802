"""Options of tasks, shared by create and edit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from rota.cli.arguments import maybe_number, optional_whole_number, whole_number
from rota.cli.context import NO_MORE, CliContext, Record
from rota.errors import Invalid
from rota.rules.checks import MAX_MIN_LENGTH
from rota.rules.notifications import MAX_PROGRESS
from rota.rules.task_spec import MAX_CPUS, MIN_CPUS

HIGHEST_PRIORITY = 1_000_000
MOST_ATTEMPTS = 1_000
MOST_BOUND = 10_000_000
LOCAL_THREAD = "cli"

Text = str | None

Call = Annotated[
    Text, typer.Option("--call", metavar="MODULE:FUNCTION", help="What to do: a callable.")
]
Instructions = Annotated[
    Text,
    typer.Option("--instructions", metavar="TEXT", help="What to do, for an agent; - reads it."),
]
CommandLine = Annotated[
    Text, typer.Option("--command", metavar="WORDS", help="What to do: a program; no shell.")
]
Shell = Annotated[
    bool, typer.Option("--shell", help="With --command: one line for a shell, pipes and all.")
]
AgentName = Annotated[
    Text,
    typer.Option("--agent", metavar="NAME", help="claude, codex, pi or command [the setting]."),
]
Executor = Annotated[
    Text,
    typer.Option(
        "--executor", metavar="NAME", help="process, sandbox, container or tmux [by the space]."
    ),
]
Image = Annotated[
    Text, typer.Option("--image", metavar="NAME@DIGEST", help="With container: what it runs in.")
]
Isolate = Annotated[bool, typer.Option("--isolate", help="With tmux: behind the sandbox's walls.")]
Mounts = Annotated[
    list[str] | None,
    typer.Option("--mount", metavar="FOLDER", help="A folder it sees, '/data', '/data:rw'."),
]
NetworkName = Annotated[
    Text,
    typer.Option("--network", metavar="NAME", help="Behind walls: none, outlet or open [none]."),
]
Folder = Annotated[
    Text, typer.Option("--folder", metavar="DIR", help="Where it works, inside the space's folder.")
]
MemoryMiB = Annotated[Text, typer.Option("--memory", metavar="MIB", help="Memory it may use.")]
Processes = Annotated[
    Text, typer.Option("--processes", metavar="N", help="Processes it may have at once.")
]
Cpus = Annotated[
    Text, typer.Option("--cpus", metavar="N", help="Processors it may keep busy, 0.5, 2.")
]
Thread = Annotated[
    Text,
    typer.Option(
        "--thread", metavar="KEY", help="Conversation it belongs to [ROTA_THREAD_KEY, cli:default]."
    ),
]
Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Take a call that cannot be imported.")
]
Cron = Annotated[
    Text, typer.Option("--cron", metavar="LINE", help="When: a cron line, '0 7 * * mon-fri'.")
]
RRule = Annotated[
    Text, typer.Option("--rrule", metavar="RULE", help="When: RFC 5545, 'FREQ=WEEKLY;BYDAY=MO'.")
]
Every = Annotated[
    Text, typer.Option("--every", metavar="LENGTH", help="When: every '10m'; 1s or longer.")
]
OnceAt = Annotated[
    Text,
    typer.Option(
        "--once-at", metavar="TIME", help="When: once, '2026-12-24T09:00' or 'in 20 minutes'."
    ),
]
AtTimes = Annotated[
    Text, typer.Option("--at-times", metavar="TIMES", help="When: times of day, '07:00,17:30'.")
]
Weekdays = Annotated[
    Text, typer.Option("--weekdays", metavar="DAYS", help="With --at-times: 'mon-fri'.")
]
Timezone = Annotated[
    Text, typer.Option("--timezone", metavar="ZONE", help="Zone of the schedule [the space's].")
]
Title = Annotated[Text, typer.Option("--title", metavar="TEXT", help="A title for people.")]
RetryCount = Annotated[Text, typer.Option("--retry", metavar="N", help="Tries in all [1].")]
RetryBase = Annotated[
    Text, typer.Option("--retry-base", metavar="LENGTH", help="Wait before the first retry [5s].")
]
Timeout = Annotated[
    Text, typer.Option("--timeout", metavar="LENGTH", help="Longest attempt, '10m'.")
]
IdleTimeout = Annotated[
    Text, typer.Option("--idle-timeout", metavar="LENGTH", help="Longest silence of a program.")
]
Grace = Annotated[
    Text, typer.Option("--grace", metavar="LENGTH", help="Time to end once asked to [10s].")
]
Priority = Annotated[Text, typer.Option("--priority", metavar="N", help="Higher goes first [0].")]
PoolName = Annotated[
    Text, typer.Option("--pool", metavar="POOL", help="foreground or background [as people wait].")
]
OverlapMode = Annotated[
    Text,
    typer.Option(
        "--overlap", metavar="MODE", help="skip, queue, queue_all, cancel_other or allow [queue]."
    ),
]
CatchUpMode = Annotated[
    Text,
    typer.Option(
        "--catch-up",
        metavar="MODE",
        help="Which missed slots run: latest, all or none [latest]; up to 60 s late is not missed.",
    ),
]
OnLost = Annotated[
    Text,
    typer.Option(
        "--on-lost",
        metavar="MODE",
        help="auto, retry, fail or ask [auto: ask where twice may hurt].",
    ),
]
DisableAfter = Annotated[
    Text, typer.Option("--disable-after", metavar="N", help="Failures in a row; 0 is never [0].")
]
UntilSuccess = Annotated[
    bool | None,
    typer.Option(
        "--until-success/--not-until-success", help="Disable the task once it has succeeded."
    ),
]
Deadline = Annotated[
    Text, typer.Option("--deadline", metavar="LENGTH", help="Longest wait in the queue, '1h'.")
]
Group = Annotated[Text, typer.Option("--group", metavar="NAME", help="Named group, for limits.")]
Lane = Annotated[
    Text, typer.Option("--lane", metavar="NAME", help="Runs of one lane never overlap.")
]
AfterTask = Annotated[Text, typer.Option("--after", metavar="TASK", help="Run when TASK ends.")]
AfterEnd = Annotated[
    Text, typer.Option("--on", metavar="END", help="With --after: success, failure, any.")
]
DeliverTo = Annotated[
    Text,
    typer.Option(
        "--deliver-to", metavar="ADDRESS", help="Send the result, 'log:'; none sends it nowhere."
    ),
]
Acknowledge = Annotated[
    bool | None,
    typer.Option(
        "--acknowledge/--no-acknowledge", help="Tell who wrote to it that the work has begun."
    ),
]
ProgressLines = Annotated[
    Text,
    typer.Option(
        "--progress", metavar="N", help="Tell up to N steps of a run in a conversation [0]."
    ),
]
Jitter = Annotated[
    Text, typer.Option("--jitter", metavar="LENGTH", help="Spread starts over this much, '5m'.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="DAY", help="Not on: '2026-12-24', '2026-12-24..2027-01-02', 'sun'."
    ),
]
Quiet = Annotated[
    list[str] | None,
    typer.Option(
        "--quiet", metavar="HOURS", help="Not within: '22:00-07:00', 'sat,sun 00:00-24:00'."
    ),
]
QuietMode = Annotated[
    Text, typer.Option("--quiet-mode", metavar="MODE", help="postpone or skip [postpone].")
]
StartsAt = Annotated[
    Text, typer.Option("--starts-at", metavar="TIME", help="Not before this time.")
]
EndsAt = Annotated[Text, typer.Option("--ends-at", metavar="TIME", help="Not after this time.")]
Gap = Annotated[
    Text, typer.Option("--gap", metavar="MODE", help="Time the clocks skip: shift or skip [shift].")
]
Fold = Annotated[
    Text,
    typer.Option(
        "--fold", metavar="MODE", help="Time that comes twice: first, second, both [first]."
    ),
]
RULES = {"cron": "cron", "rrule": "rrule", "every": "every", "once_at": "at", "at_times": "times"}
OPTIONS = {
    "exclude": "excluded",
    "quiet": "quiet",
    "quiet_mode": "quiet_mode",
    "starts_at": "starts_at",
    "ends_at": "ends_at",
    "gap": "gap",
    "fold": "fold",
    "jitter": "jitter",
}
NONE = "none"
"""What takes something away from a task that has it."""
TAKEN_OFF = (
    *(
        "model",
        "fallback_model",
        "deny_tool",
        "permission_mode",
        "max_turns",
        "prompt_by",
        "output",
    ),
    *("executor", "image", "mount", "folder", "memory", "processes", "cpus", "check", "timeout"),
    *("idle_timeout", "grace", "pool", "deadline", "group", "lane", "after", "deliver_to"),
)
"""Options that can be taken off again; elsewhere `none` is a value or would be misread."""
PLAIN = (
    *("timeout", "idle_timeout", "grace", "pool", "overlap", "on_lost", "deadline"),
    *("group", "lane", "deliver_to", "until_success", "acknowledge"),
)


def words_of(line: str | None) -> list[str] | None:
    """Return a line as the words of a program; quotes hold words together, nothing else is read."""
    if line is None:
        return None
    try:
        return shlex.split(line)
    except ValueError as fault:
        raise Invalid("command", line, f"close its quotes ({fault})") from None


def program_of(line: str | None, *, shell: bool) -> Record:
    """Return the program that the options name: words, or one line for a shell."""
    if line is None and shell:
        raise Invalid("shell", "yes", "goes with --command")
    if line is None or not shell:
        return {"command": words_of(line), "shell": None if line is None else False}
    return {"command": [line], "shell": True}


def schedule_of(given: Mapping[str, Any]) -> Record | None:
    """Return when the options say the task runs, or None if they do not say."""
    rules = {RULES[name]: given[name] for name in RULES if given.get(name) is not None}
    more = {OPTIONS[name]: given[name] for name in OPTIONS if given.get(name)}
    more |= {name: given[name] for name in ("weekdays", "timezone") if given.get(name)}
    if len(rules) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in RULES if given.get(name))
        raise Invalid("schedule", names, "give at most one of them")
    if rules:
        return {**rules, **more}
    if more:
        stray = next(name for name in (*OPTIONS, "weekdays", "timezone") if given.get(name))
        advice = "goes with a schedule: give one of --cron --rrule --every --once-at --at-times"
        raise Invalid(stray.replace("_", "-"), given[stray], advice)
    return None


def site_of(given: Mapping[str, Any]) -> Record:
    """Return where and within which bounds the options say the program runs."""
    left, off = parted(given)
    plain = {name: left.get(name) for name in ("executor", "image", "network", "folder")}
    said = {
        **plain,
        "isolate": left.get("isolate") or None,
        "mounts": list(left.get("mount") or ()) or None,
        "memory_mib": optional_whole_number("memory", left.get("memory"), 16, MOST_BOUND),
        "processes": optional_whole_number("processes", left.get("processes"), 1, MOST_BOUND),
        "cpus": maybe_number("cpus", left.get("cpus"), MIN_CPUS, MAX_CPUS),
    }
    names = {"mount": "mounts", "memory": "memory_mib"}
    return said | {names.get(name, name): NO_MORE for name in off if names.get(name, name) in said}


def parted(given: Mapping[str, Any]) -> tuple[Record, set[str]]:
    """Return the options without those that are to be taken off, and which these are."""
    off = {name for name in TAKEN_OFF if given.get(name) in (NONE, [NONE])}
    return {name: value for name, value in given.items() if name not in off}, off


def policy_of(given: Mapping[str, Any]) -> Record | None:
    """Return the policy that the options ask for; what they leave out stays as it is."""
    given, off = parted(given)
    said: Record = {name: given[name] for name in PLAIN if given.get(name) is not None}
    said |= {name: None for name in PLAIN if name in off}
    numbers = {
        "priority": optional_whole_number(
            "priority", given.get("priority"), -HIGHEST_PRIORITY, HIGHEST_PRIORITY
        ),
        "disable_after": optional_whole_number(
            "disable-after", given.get("disable_after"), 0, MOST_ATTEMPTS
        ),
        "progress": optional_whole_number("progress", given.get("progress"), 0, MAX_PROGRESS),
    }
    retry = {
        "attempts": optional_whole_number("retry", given.get("retry"), 1, MOST_ATTEMPTS),
        "base": given.get("retry_base"),
    }
    parts = {**numbers, "retry": _said(retry), "catch_up": _said({"mode": given.get("catch_up")})}
    said |= {name: value for name, value in parts.items() if value is not None}
    return said or None


def after_of(given: Mapping[str, Any]) -> object:
    """Return which task the options say to follow."""
    task, on = given.get("after"), given.get("on")
    if task == NONE and on is None:
        return NO_MORE
    if task is None and on is not None:
        raise Invalid("on", on, "goes with --after")
    return None if task is None else {"task": task, **({} if on is None else {"on": on})}


def thread_of(desk: CliContext, typed: str | None, space: str | None) -> str:
    """Return the conversation a new task belongs to: each space has one of its own here."""
    if typed or desk.around.thread:
        return str(typed or desk.around.thread)
    name = space or desk.home_space
    return f"{LOCAL_THREAD}:{'default' if name == 'main' else name}"


def _said(values: Record) -> Record | None:
    return {name: value for name, value in values.items() if value is not None} or None


Checks = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="KIND=VALUE",
        help="Done means: file_newer=PATH, command=WORDS, 'url=ADDRESS TEXT', json_schema=JSON, "
        "min_length=N, tool_called=NAME, not_like=TEXT or =/REGEX/; none takes them away.",
    ),
]
Gate = Annotated[
    Text,
    typer.Option("--gate", metavar="WORDS", help="A program that decides whether to begin."),
]
GateTimeout = Annotated[
    Text, typer.Option("--gate-timeout", metavar="LENGTH", help="With --gate: its longest [1m].")
]
NoGate = Annotated[bool, typer.Option("--no-gate", help="Take its gate away.")]
NextCheck = Annotated[
    Text,
    typer.Option(
        "--next-check",
        metavar="MIN..MAX",
        help="It may choose when it looks again: '10m..1d'.",
    ),
]
NoNextCheck = Annotated[
    bool, typer.Option("--no-next-check", help="It may no longer choose when it looks again.")
]


def done_of(given: Mapping[str, Any]) -> Record:
    """Return what the options say; what they leave out is not in it."""
    said: Record = {}
    checks = given.get("check")
    if checks:
        said["checks"] = [] if checks == [NONE] else [check_of(line) for line in checks]
    gate, timeout = given.get("gate"), given.get("gate_timeout")
    if gate is None and timeout is not None:
        raise Invalid("gate-timeout", timeout, "goes with --gate")
    if given.get("no_gate"):
        if gate is not None:
            raise Invalid("no-gate", gate, "give either --gate or --no-gate")
        said["gate"] = NO_MORE
    if gate is not None:
        told = {"command": words_of(gate), "timeout": timeout}
        said["gate"] = {name: value for name, value in told.items() if value is not None}
    bounds = given.get("next_check")
    if given.get("no_next_check"):
        if bounds is not None:
            raise Invalid("no-next-check", bounds, "give either --next-check or --no-next-check")
        said["next_check"] = NO_MORE
    if bounds is not None:
        least, dots, most = bounds.partition("..")
        if not dots:
            raise Invalid("next-check", bounds, "write the least and the most, like 10m..1d")
        said["next_check"] = {"min": least.strip(), "max": most.strip()}
    return said


def check_of(line: str) -> Record:
    """Return one check: `kind=value`, or the same in JSON."""
    if line.lstrip().startswith("{"):
        try:
            read: Record = json.loads(line)
        except (ValueError, RecursionError) as fault:
            raise Invalid("check", line, f"this is no JSON: {fault}") from None
        return read
    kind, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not value:
        raise Invalid("check", line, "write KIND=VALUE, like min_length=200")
    match kind:
        case "command":
            return {kind: words_of(value)}
        case "min_length":
            return {kind: whole_number("check", value, 1, MAX_MIN_LENGTH)}
        case "url":
            url, _, text = value.partition(" ")
            return {kind: url, **({"contains": text.strip()} if text.strip() else {})}
        case "json_schema":
            return check_of(f'{{"json_schema": {value}}}')
        case "not_like" if len(value) > 2 and value[0] == value[-1] == "/":  # noqa: PLR2004
            return {kind: value[1:-1], "regex": True}
        case _:
            return {kind: value}


MAX_TURNS = 10_000
Several = list[str] | None

Model = Annotated[Text, typer.Option("--model", metavar="NAME", help="Agent: its model.")]
FallbackModel = Annotated[
    Several,
    typer.Option("--fallback-model", metavar="NAME", help="Agent: models to fall back on."),
]
Tool = Annotated[
    Several, typer.Option("--tool", metavar="NAME", help="Agent: the only tools it may use.")
]
DenyTool = Annotated[
    Several, typer.Option("--deny-tool", metavar="NAME", help="Agent: tools it may not use.")
]
Thinking = Annotated[
    Text, typer.Option("--thinking", metavar="WORD", help="Agent: how hard to think, 'high'.")
]
PermissionMode = Annotated[
    Text, typer.Option("--permission-mode", metavar="WORD", help="Agent: what it may do unasked.")
]
MaxTurns = Annotated[
    Text, typer.Option("--max-turns", metavar="N", help="Agent: at most so many turns.")
]
Context = Annotated[
    Text,
    typer.Option(
        "--context",
        metavar="WORD",
        help="Agent: runs go on in the thread's session, group, or begin anew [isolated].",
    ),
]
Envelope = Annotated[
    bool | None,
    typer.Option("--envelope/--plain", help="Agent: whether its prompt has sections."),
]
PreviousResult = Annotated[
    bool | None,
    typer.Option(
        "--previous-result/--no-previous-result",
        help="Agent: its prompt tells the last result [no].",
    ),
]
Answers = Annotated[
    bool | None,
    typer.Option("--answers/--no-answers", help="Agent: it answers what is said in its thread."),
]
Phrases = Annotated[
    bool | None,
    typer.Option("--phrases/--no-phrases", help="Agent: its answer may ask in phrases [no]."),
]
PromptBy = Annotated[
    Text,
    typer.Option("--prompt-by", metavar="WAY", help="Agent command: stdin, argv or lines [stdin]."),
]
Result = Annotated[
    Text,
    typer.Option(
        "--output", metavar="KIND", help="Program: its result is text, last_line or lines."
    ),
]
FIELDS = {
    "model": "model",
    "fallback_model": "fallback_models",
    "tool": "tools",
    "deny_tool": "denied_tools",
    "thinking": "thinking",
    "permission_mode": "permission_mode",
    "session_context": "context",
    "envelope": "envelope",
    "previous_result": "previous_result",
    "answers": "answers",
    "phrases": "phrases",
    "prompt_by": "prompt_by",
    "output": "output",
}


def wishes_of(given: Mapping[str, Any]) -> Record:
    """Return what the options ask of the agent; what they leave out is not in it."""
    left, off = parted(given)
    said = {field: left[name] for name, field in FIELDS.items() if left.get(name) is not None}
    said |= {field: NO_MORE for name, field in FIELDS.items() if name in off}
    if "max_turns" in off:
        return {**said, "max_turns": NO_MORE}
    turns = optional_whole_number("max-turns", left.get("max_turns"), 1, MAX_TURNS)
    return said if turns is None else {**said, "max_turns": turns}

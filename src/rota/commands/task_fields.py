"""TASK_FIELDS: every field of a task, once.

The options of `rota task create` and `rota task edit`, the request models of HTTP and the agent
API, the keys of `rota apply` files and the reference page are made from this table. The command
line loads it for every command about tasks, so it imports plain values only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

from rota.model.agents import MAX_TURNS, OutputFormat, PromptInput, SessionContext
from rota.model.checks import CheckKind
from rota.model.programs import NetworkAccess
from rota.model.schedules import Fold, Gap, QuietMode
from rota.model.tasks import (
    MAX_ATTEMPTS,
    MAX_CATCH_UP,
    MAX_FAILURES,
    MAX_PRIORITY,
    AfterOn,
    CatchUpMode,
    OnLost,
    Overlap,
    Pool,
)
from rota.rules.checks import MAX_CHECKS
from rota.rules.notifications import MAX_PROGRESS
from rota.rules.task_spec import MAX_CPUS, MIN_CPUS

NONE = "none"
"""The word that removes an option's value from a task."""
MAX_LIMIT = 10_000_000


class FieldKind(StrEnum):
    """Type of a field, by its name on the reference page."""

    TEXT = "text"
    LINE = "line of text"
    WORD = "name"
    TITLE = "title"
    CALL = "module:function"
    COMMAND = "command with arguments"
    FLAG = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    LENGTH = "duration"
    ZONE = "time zone"
    LINES = "text, or a list of texts"
    TASK = "task"
    THREAD = "thread"
    TOOL = "tool"
    MOUNT = "mount"
    CHECKS = "check"
    RANGE = "min and max, durations"


class TaskCommand(StrEnum):
    """A command that takes fields of tasks."""

    CREATE = "create"
    EDIT = "edit"
    APPLY = "apply"


ALL = frozenset(TaskCommand)
NEW = frozenset({TaskCommand.CREATE, TaskCommand.APPLY})


@dataclass(frozen=True, slots=True)
class TaskField:
    """One field of a task.

    `path` is where it is in a request and in an `apply` file, with dots: the first part of a nested
    one says where it is stored, `policy` or `schedule`. One without dots is part of the task's
    spec, unless `column` says that it is a column of the task.

    `option` has a name and a metavar, and is empty where the command line has none. `off` is how
    `rota task edit` removes the value: the word `none`, or an option. `needs` names a field without
    which this one has no meaning. `many` is the largest number of values where there may be
    several, 0 for any. `shown` is how `rota task show` writes a value of the policy. `in_tools`
    puts the help into the schemas of agent tools, which agents read in every turn.
    """

    path: str
    kind: FieldKind
    help: str
    _: KW_ONLY
    option: str = ""
    default: str = ""
    choices: Sequence[str] | type[StrEnum] = ()
    bounds: tuple[float, float] | None = None
    many: int | None = None
    off: str = ""
    needs: str = ""
    required: bool = False
    column: bool = False
    shown: str = ""
    in_tools: bool = False
    commands: frozenset[TaskCommand] = ALL

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def root(self) -> str:
        """The first part of the path."""
        return self.path.partition(".")[0]

    @property
    def flag(self) -> str:
        """The name of the option, without its metavar and its opposite."""
        return self.option.partition(" ")[0].partition("/")[0]

    @property
    def parameter(self) -> str:
        """The name of the option's parameter."""
        return f"field_{self.path.replace('.', '_')}"

    @property
    def is_list(self) -> bool:
        """Whether there may be several values."""
        return self.many is not None

    @property
    def meaning(self) -> str:
        """What the field is for, with its default."""
        return f"{self.help} [default: {self.default}]" if self.default else self.help


Kind = FieldKind
WORK = (
    TaskField("call", Kind.CALL, "Python function to run", option="--call MODULE:FUNCTION"),
    TaskField("instructions", Kind.TEXT, "Instructions for an agent", option="--instructions TEXT"),
    TaskField(
        "command",
        Kind.COMMAND,
        "Program to run, with its arguments; not passed to a shell",
        option="--command COMMAND",
    ),
    TaskField(
        "shell",
        Kind.FLAG,
        "Run the command in a shell, as one line",
        option="--shell",
        needs="command",
        in_tools=True,
    ),
    TaskField(
        "agent",
        Kind.WORD,
        "Agent that follows the instructions; `rota doctor` lists them",
        option="--agent NAME",
        default="the setting agent",
    ),
    TaskField(
        "model_tier",
        Kind.CHOICE,
        "Model of the agent, by its tier in the settings",
        choices=("low", "medium", "high"),
    ),
    TaskField("model", Kind.WORD, "Model of the agent", option="--model NAME", off=NONE),
    TaskField(
        "fallback_models",
        Kind.WORD,
        "Model to use when the first one is not available",
        option="--fallback-model NAME",
        many=20,
        off=NONE,
    ),
    TaskField(
        "tools",
        Kind.TOOL,
        "Tool that the agent may use; all others are denied",
        option="--tool NAME",
        many=1_000,
    ),
    TaskField(
        "denied_tools",
        Kind.TOOL,
        "Tool that the agent may not use",
        option="--deny-tool NAME",
        many=1_000,
        off=NONE,
    ),
    TaskField(
        "thinking",
        Kind.WORD,
        "Thinking effort of the agent, such as high",
        option="--thinking LEVEL",
    ),
    TaskField(
        "permission_mode",
        Kind.WORD,
        "Permission mode of the agent",
        option="--permission-mode MODE",
        off=NONE,
    ),
    TaskField(
        "max_turns",
        Kind.INTEGER,
        "Maximum number of turns of the agent",
        option="--max-turns N",
        bounds=(1, MAX_TURNS),
        off=NONE,
    ),
    TaskField(
        "context",
        Kind.CHOICE,
        "Session of the agent, that of the thread (group) or a new one for each run",
        option="--context MODE",
        choices=SessionContext,
        default="isolated",
        in_tools=True,
    ),
    TaskField(
        "envelope",
        Kind.FLAG,
        "Divide the agent's prompt into sections, or send the instructions alone",
        option="--envelope/--plain",
        in_tools=True,
    ),
    TaskField(
        "previous_result",
        Kind.FLAG,
        "Include the result of the last run in the agent's prompt",
        option="--previous-result/--no-previous-result",
        default="no",
        in_tools=True,
    ),
    TaskField(
        "answers",
        Kind.FLAG,
        "Answer messages in the task's thread",
        option="--answers/--no-answers",
        default="no",
        in_tools=True,
    ),
    TaskField(
        "phrases",
        Kind.FLAG,
        "Treat phrases such as 'Please confirm' in the agent's answer as a question",
        option="--phrases/--no-phrases",
        default="no",
    ),
    TaskField(
        "prompt_by",
        Kind.CHOICE,
        "How the agent `command` passes the prompt to its program",
        option="--prompt-by MODE",
        choices=PromptInput,
        default="stdin",
        off=NONE,
    ),
    TaskField(
        "output",
        Kind.CHOICE,
        "How the output of a program becomes the result",
        option="--output FORMAT",
        choices=OutputFormat,
        default="text",
        off=NONE,
    ),
)
SITE = (
    TaskField(
        "executor",
        Kind.WORD,
        "Executor that runs the program; `rota doctor` lists them",
        option="--executor NAME",
        default="by the role of the space",
        off=NONE,
    ),
    TaskField(
        "image", Kind.WORD, "Image that the program runs in", option="--image NAME@DIGEST", off=NONE
    ),
    TaskField(
        "isolate",
        Kind.FLAG,
        "Isolate the program, where the executor leaves the choice",
        option="--isolate",
    ),
    TaskField(
        "mounts",
        Kind.MOUNT,
        "Directory to mount for an isolated program, /data or /data:rw",
        option="--mount DIR",
        many=100,
        off=NONE,
        in_tools=True,
    ),
    TaskField(
        "network",
        Kind.CHOICE,
        "Network access of an isolated program",
        option="--network MODE",
        choices=NetworkAccess,
        default="none",
    ),
    TaskField(
        "folder",
        Kind.WORD,
        "Working directory, inside the space's folder",
        option="--folder DIR",
        off=NONE,
    ),
    TaskField(
        "memory_mib",
        Kind.INTEGER,
        "Maximum memory of the program in MiB",
        option="--memory MIB",
        bounds=(16, MAX_LIMIT),
        off=NONE,
    ),
    TaskField(
        "processes",
        Kind.INTEGER,
        "Maximum number of processes of the program",
        option="--processes N",
        bounds=(1, MAX_LIMIT),
        off=NONE,
    ),
    TaskField(
        "cpus",
        Kind.NUMBER,
        "Maximum number of processors of the program, such as 0.5",
        option="--cpus N",
        bounds=(MIN_CPUS, MAX_CPUS),
        off=NONE,
    ),
)
DONE = (
    TaskField(
        "checks",
        Kind.CHECKS,
        "Condition that a run must meet to be verified",
        option="--check KIND=VALUE",
        choices=CheckKind,
        many=MAX_CHECKS,
        off=NONE,
        in_tools=True,
    ),
    TaskField(
        "gate.command",
        Kind.COMMAND,
        "Program that decides before a run whether there is work to do",
        option="--gate COMMAND",
        off="--no-gate",
        required=True,
    ),
    TaskField(
        "gate.timeout",
        Kind.LENGTH,
        "Maximum duration of the gate",
        option="--gate-timeout LENGTH",
        default="1m",
        needs="gate.command",
    ),
    TaskField(
        "next_check",
        Kind.RANGE,
        "Let the agent choose when it runs next, within limits such as 10m..1d",
        option="--next-check MIN..MAX",
        off="--no-next-check",
    ),
)
PLACE = (
    TaskField("title", Kind.TITLE, "Title of the task", option="--title TEXT", column=True),
    TaskField(
        "thread",
        Kind.THREAD,
        "Thread that the task belongs to [env: ROTA_THREAD_KEY]",
        option="--thread KEY",
        column=True,
        default="cli:default",
        commands=NEW,
    ),
)
SCHEDULE = (
    TaskField(
        "schedule.kind",
        Kind.CHOICE,
        "Kind of the schedule, to be checked against its rule",
        choices=("once", "cron", "interval", "rrule", "calendar"),
    ),
    TaskField(
        "schedule.cron",
        Kind.LINE,
        "Cron expression, such as '0 7 * * mon-fri'",
        option="--cron EXPR",
    ),
    TaskField(
        "schedule.rrule",
        Kind.LINE,
        "Recurrence rule (RFC 5545), such as 'FREQ=WEEKLY;BYDAY=MO'",
        option="--rrule RULE",
    ),
    TaskField(
        "schedule.every",
        Kind.LENGTH,
        "Interval between runs, such as 10m; at least 1s",
        option="--every LENGTH",
    ),
    TaskField(
        "schedule.at",
        Kind.LINE,
        "Time of a single run, such as '2026-12-24T09:00' or 'in 20 minutes'",
        option="--once-at TIME",
    ),
    TaskField(
        "schedule.times",
        Kind.LINES,
        "Times of day, such as '07:00,17:30'",
        option="--at-times TIMES",
    ),
    TaskField("schedule.words", Kind.LINE, "Schedule in words, such as 'weekdays 7:00'"),
    TaskField(
        "schedule.weekdays",
        Kind.LINES,
        "Weekdays of the times of day, such as mon-fri",
        option="--weekdays DAYS",
        in_tools=True,
    ),
    TaskField(
        "schedule.timezone",
        Kind.ZONE,
        "Time zone of the schedule",
        option="--timezone ZONE",
        default="that of the space",
    ),
    TaskField(
        "schedule.gap",
        Kind.CHOICE,
        "What to do with a time that a clock change skips",
        option="--gap MODE",
        choices=Gap,
        default="shift",
    ),
    TaskField(
        "schedule.fold",
        Kind.CHOICE,
        "What to do with a time that a clock change repeats",
        option="--fold MODE",
        choices=Fold,
        default="first",
    ),
    TaskField(
        "schedule.starts_at", Kind.LINE, "Time before which nothing runs", option="--starts-at TIME"
    ),
    TaskField(
        "schedule.ends_at", Kind.LINE, "Time after which nothing runs", option="--ends-at TIME"
    ),
    TaskField(
        "schedule.excluded",
        Kind.LINE,
        "Days to leave out, such as 2026-12-24, 2026-12-24..2027-01-02 or sun",
        option="--exclude DAY",
        many=0,
    ),
    TaskField(
        "schedule.quiet",
        Kind.LINE,
        "Hours to leave out, such as 22:00-07:00 or 'sat,sun 00:00-24:00'",
        option="--quiet HOURS",
        many=0,
    ),
    TaskField(
        "schedule.quiet_mode",
        Kind.CHOICE,
        "What to do with a run in those hours",
        option="--quiet-mode MODE",
        choices=QuietMode,
        default="postpone",
    ),
    TaskField(
        "schedule.jitter",
        Kind.LENGTH,
        "Spread starts over a period, such as 5m",
        option="--jitter LENGTH",
    ),
)
POLICY = (
    TaskField(
        "policy.retry.attempts",
        Kind.INTEGER,
        "Maximum number of attempts",
        option="--retry N",
        bounds=(1, MAX_ATTEMPTS),
        default="1",
        shown="up to {attempt}",
    ),
    TaskField(
        "policy.retry.base",
        Kind.LENGTH,
        "Delay before the first retry",
        option="--retry-base LENGTH",
        default="5s",
    ),
    TaskField(
        "policy.retry.factor",
        Kind.NUMBER,
        "Factor by which the delay grows with each retry",
        bounds=(1, 100),
        default="2",
    ),
    TaskField("policy.retry.cap", Kind.LENGTH, "Maximum delay before a retry", default="1h"),
    TaskField(
        "policy.retry.jitter",
        Kind.NUMBER,
        "Random part added to the delay, as a share of it",
        bounds=(0, 10),
        default="0.1",
    ),
    TaskField("policy.retry.max_age", Kind.LENGTH, "Age of a run from which it is not retried"),
    TaskField(
        "policy.timeout",
        Kind.LENGTH,
        "Maximum duration of an attempt, such as 10m",
        option="--timeout LENGTH",
        off=NONE,
    ),
    TaskField(
        "policy.idle_timeout",
        Kind.LENGTH,
        "Maximum time that a program may write no output",
        option="--idle-timeout LENGTH",
        off=NONE,
    ),
    TaskField(
        "policy.grace",
        Kind.LENGTH,
        "Time that a program has to exit before it is killed",
        option="--grace LENGTH",
        default="the setting grace",
        off=NONE,
    ),
    TaskField(
        "policy.pool",
        Kind.CHOICE,
        "Pool of the runs",
        option="--pool POOL",
        choices=Pool,
        default="foreground for messages of people",
        off=NONE,
    ),
    TaskField(
        "policy.priority",
        Kind.INTEGER,
        "Priority in the queue; higher starts earlier",
        option="--priority N",
        bounds=(-MAX_PRIORITY, MAX_PRIORITY),
        default="0",
    ),
    TaskField(
        "policy.lane",
        Kind.WORD,
        "Lane of the runs; runs of one lane never overlap",
        option="--lane NAME",
        off=NONE,
    ),
    TaskField(
        "policy.group", Kind.WORD, "Group of the runs, for limits", option="--group NAME", off=NONE
    ),
    TaskField(
        "policy.overlap",
        Kind.CHOICE,
        "What to do with a run while an earlier one has not ended",
        option="--overlap MODE",
        choices=Overlap,
        default="queue",
    ),
    TaskField(
        "policy.catch_up.mode",
        Kind.CHOICE,
        "Missed slots to run; up to 60 s late is not missed",
        option="--catch-up MODE",
        choices=CatchUpMode,
        default="latest",
        shown="catch up {}",
    ),
    TaskField(
        "policy.catch_up.window", Kind.LENGTH, "How far back missed slots run", default="24h"
    ),
    TaskField(
        "policy.catch_up.cap",
        Kind.INTEGER,
        "Maximum number of missed slots to run",
        bounds=(1, MAX_CATCH_UP),
        default="100",
    ),
    TaskField(
        "policy.catch_up.pace", Kind.LENGTH, "Time between the starts of missed slots", default="1s"
    ),
    TaskField(
        "policy.on_lost",
        Kind.CHOICE,
        "What to do with a run whose attempt was lost; auto asks unless it is safe to retry",
        option="--on-lost MODE",
        choices=OnLost,
        default="auto",
    ),
    TaskField(
        "policy.deadline",
        Kind.LENGTH,
        "Maximum wait in the queue, such as 1h",
        option="--deadline LENGTH",
        off=NONE,
    ),
    TaskField(
        "policy.disable_after",
        Kind.INTEGER,
        "Number of failures in a row that disables the task; 0 for never",
        option="--disable-after N",
        bounds=(0, MAX_FAILURES),
        default="0",
        shown="disabled after {failure} in a row",
    ),
    TaskField(
        "policy.until_success",
        Kind.FLAG,
        "Disable the task after a run has succeeded",
        option="--until-success/--not-until-success",
        default="no",
        shown="disabled after a success",
    ),
    TaskField(
        "policy.deliver_to",
        Kind.WORD,
        "Target for the results, such as log:",
        option="--deliver-to TARGET",
        off=NONE,
        shown="-",
    ),
    TaskField(
        "policy.acknowledge",
        Kind.FLAG,
        "Acknowledge a message when the run for it starts",
        option="--acknowledge/--no-acknowledge",
        default="no",
        shown="acknowledges messages",
    ),
    TaskField(
        "policy.progress",
        Kind.INTEGER,
        "Maximum number of progress messages of a run in a thread",
        option="--progress N",
        bounds=(0, MAX_PROGRESS),
        default="0",
        shown="up to {progress message}",
    ),
)
AFTER = (
    TaskField(
        "after.task",
        Kind.TASK,
        "Task after whose runs this one runs",
        option="--after TASK",
        column=True,
        off=NONE,
        required=True,
    ),
    TaskField(
        "after.on",
        Kind.CHOICE,
        "Outcome of the other task's run",
        option="--on OUTCOME",
        choices=AfterOn,
        column=True,
        default="success",
        needs="after.task",
    ),
)
TASK_FIELDS: tuple[TaskField, ...] = (
    *WORK,
    *SITE,
    *DONE,
    *PLACE,
    *SCHEDULE,
    *POLICY,
    *AFTER,
)


def fields_at(group: str, command: TaskCommand | None = None) -> list[TaskField]:
    """Return the fields whose path begins with a group, of those that a command takes."""
    prefix = f"{group}." if group else ""
    return [
        field
        for field in TASK_FIELDS
        if field.path.startswith(prefix) and (command is None or command in field.commands)
    ]

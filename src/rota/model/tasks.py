"""Tasks with their policies; task state and seen items."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from rota.model.ids import SpaceId, TaskId

MAX_ATTEMPTS = 1_000
MAX_CATCH_UP = 1_000
MAX_FAILURES = 1_000
MAX_PRIORITY = 1_000_000
MAX_TITLE = 200


class TaskKind(StrEnum):
    """What a task runs."""

    PYTHON = "python"
    SCRIPT = "script"
    AGENT = "agent"


class Pool(StrEnum):
    """Whether a person waits for the run."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"


class Overlap(StrEnum):
    """What happens to a slot while an earlier run of its task is unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    QUEUE_ALL = "queue_all"
    CANCEL_OTHER = "cancel_other"
    ALLOW = "allow"


class CatchUpMode(StrEnum):
    """Which of the missed slots still run."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class OnLost(StrEnum):
    """What happens to a run whose attempt vanished; `auto` asks if a repetition may do harm."""

    AUTO = "auto"
    RETRY = "retry"
    FAIL = "fail"
    ASK = "ask"


class AfterOn(StrEnum):
    """Which ends of the upstream run start a successor."""

    SUCCESS = "success"
    FAILURE = "failure"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often and when a failed run is tried again.

    `attempts` includes the first one, so 1 means no retry. The n-th retry waits
    base * factor**(n - 1), at most `cap`, plus a random share of it up to `jitter`. A run older
    than `max_age` is not tried again.
    """

    attempts: int = 1
    base: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    max_age: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """Which missed slots run after downtime: how far back, how many, and how far apart."""

    mode: CatchUpMode = CatchUpMode.LATEST
    window: timedelta = timedelta(hours=24)
    cap: int = 100
    pace: timedelta = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """The task whose runs start this one when they end."""

    task: str
    on: AfterOn = AfterOn.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How runs of a task are queued, tried, limited and ended.

    `overlap` None: runs of slots queue behind each other, requested runs execute side by side. If
    set, requested runs use the task's lane as well.

    `idle_timeout` is how long a program may write no output, `grace` how long it has to end after
    it was asked to; both do not apply to Python functions.

    `pool` None: foreground for runs that answer messages of people, background for others. With
    `until_success` the task is disabled once a run has succeeded.

    In a conversation, `acknowledge` sends a message when work on it starts, and `progress` is how
    many progress messages may be sent; both go where the result goes.
    """

    retry: Retry = field(default_factory=Retry)
    timeout: timedelta | None = None
    idle_timeout: timedelta | None = None
    grace: timedelta | None = None
    pool: Pool | None = None
    priority: int = 0
    lane: str | None = None
    group: str | None = None
    metered: bool = True
    overlap: Overlap | None = None
    catch_up: CatchUp = field(default_factory=CatchUp)
    on_lost: OnLost = OnLost.AUTO
    deadline: timedelta | None = None
    disable_after: int = 0
    until_success: bool = False
    deliver_to: str | None = None
    acknowledge: bool = False
    progress: int = 0
    isolate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task as stored."""

    id: TaskId
    space_id: SpaceId
    space: str
    name: str
    title: str
    kind: TaskKind
    route: str
    spec: dict[str, object]
    policy: Policy
    after: After | None
    origin: str
    enabled: bool
    enabled_since: datetime
    paused_until: datetime | None
    disabled_reason: str | None
    failures: int
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None
    thread: str | None = None
    disabled_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """A task to be created or updated; already validated.

    With `stood`, it is updated only if it was last changed at that instant.
    """

    space_id: SpaceId
    name: str
    title: str = ""
    kind: TaskKind = TaskKind.PYTHON
    route: str = ""
    spec: dict[str, object] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    after: After | None = None
    origin: str = "cli"
    thread: str | None = None
    stood: int | None = None


def task_lane(task_id: int) -> str:
    """Return the lane that keeps runs of one task from overlapping."""
    return f"task:{task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """An entry of a task's state; `value` is JSON text."""

    key: str
    value: str
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenItem:
    """An item of a provider that a task has seen, and how often; `data` is JSON text."""

    provider: str
    item: str
    data: str
    first_at: datetime
    last_at: datetime
    count: int

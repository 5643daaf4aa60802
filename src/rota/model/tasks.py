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
    """What a slot does while an earlier run of its task is still going."""

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
    """What becomes of a run whose attempt vanished; `auto` asks where twice may hurt."""

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
    """How often a failed run is tried again, and when.

    `attempts` counts every try, so 1 means no retry. The n-th retry waits
    base * factor**(n - 1), at most `cap`, then a random part of `jitter` of that more. A run
    older than `max_age` is not tried again.
    """

    attempts: int = 1
    base: timedelta = timedelta(seconds=5)
    factor: float = 2.0
    cap: timedelta = timedelta(hours=1)
    jitter: float = 0.1
    max_age: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """Which missed slots run after a pause, how far back, how many, and how far apart."""

    mode: CatchUpMode = CatchUpMode.LATEST
    window: timedelta = timedelta(hours=24)
    cap: int = 100
    pace: timedelta = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class After:
    """A task that starts when a run of another one ends."""

    task: str
    on: AfterOn = AfterOn.SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How runs of a task are queued, tried, limited and ended.

    `overlap` None means: slots of one task queue behind each other, runs that were asked for run
    side by side. Given, it also puts the runs that were asked for into the task's lane.

    `idle_timeout` is how long a program may write nothing, `grace` how long it has to end once it
    was asked to; callables have neither.

    `pool` None means: foreground for what people say, who wait, and background for the rest. With
    `until_success` the task is disabled once a run of it has succeeded.

    Of a run in a conversation people are told where its result goes that the work for what they
    said has begun, with `acknowledge`, and up to `progress` lines of what it does.
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
    """A task as it stands in the store."""

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
    """A task to be created or brought up to date; everything is validated already.

    With `stood`, only the one that was last changed at that instant.
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
    """Return the lane that keeps the runs of one task apart."""
    return f"task:{task_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """A value that a task keeps; `value` is JSON text."""

    key: str
    value: str
    updated_at: datetime
    updated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenItem:
    """An item of a provider that a task has come across, and how often; `data` is JSON text."""

    provider: str
    item: str
    data: str
    first_at: datetime
    last_at: datetime
    count: int

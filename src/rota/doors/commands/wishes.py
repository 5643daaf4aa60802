"""What a request may say about when and under which rules a task runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from rota.doors.commands.fields import PLAIN, WHOLE, Text, Word
from rota.doors.commands.shapes import Asked
from rota.doors.library.options import policy_from
from rota.errors import Invalid
from rota.flow.define.policies import HIGHEST_PRIORITY, MOST_ATTEMPTS, MOST_CATCH_UP
from rota.flow.define.schedules import KINDS, Wish
from rota.model.schedules import Fold, Gap, QuietMode
from rota.model.tasks import (
    CatchUp,
    CatchUpMode,
    OnLost,
    Overlap,
    Policy,
    Pool,
    Retry,
)
from rota.rules.telling import MOST_PROGRESS
from rota.timing.durations import parse_duration

Line = Annotated[Text, StringConstraints(min_length=1, max_length=10_000)]
Length = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64),
    PLAIN,
    Field(description="A length of time: `30s`, `10m`, `2h`, `1d` or ISO 8601."),
]
Zone = Annotated[str, StringConstraints(min_length=1, max_length=64), PLAIN]
RuleKinds = Literal["once", "cron", "interval", "rrule", "calendar"]
FIELD_OF = {
    "once": "at",
    "cron": "cron",
    "interval": "every",
    "rrule": "rrule",
    "calendar": "times",
}


class ScheduleAsked(Asked):
    """When a task runs: exactly one of cron, rrule, every (1s or longer), at, times and words."""

    kind: RuleKinds | None = None
    cron: Line | None = None
    rrule: Line | None = None
    every: Length | None = None
    at: Line | None = None
    times: Line | list[Line] | None = None
    words: Line | None = None
    weekdays: Line | list[Line] | None = None
    timezone: Zone | None = None
    gap: Gap | None = None
    fold: Fold | None = None
    starts_at: Line | None = None
    ends_at: Line | None = None
    excluded: list[Line] | None = None
    quiet: list[Line] | None = None
    quiet_mode: QuietMode | None = None
    jitter: Length | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> ScheduleAsked:
        given = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            message = f"give exactly one of {', '.join(KINDS)}"
            raise ValueError(message)
        if self.kind is not None and given[0] not in {FIELD_OF[self.kind], "words"}:
            message = f"the kind {self.kind} goes with {FIELD_OF[self.kind]}, not with {given[0]}"
            raise ValueError(message)
        return self

    def wish(self) -> Wish:
        """Return it as define takes it."""
        names = ("gap", "fold", "starts_at", "ends_at", "excluded", "quiet", "quiet_mode", "jitter")
        options = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return Wish(
            cron=self.cron,
            every=self.every,
            rrule=self.rrule,
            at=self.at,
            times=_several(self.times),
            words=self.words,
            weekdays=_several(self.weekdays) or (),
            timezone=self.timezone,
            options=options,
        )


class RetryAsked(Asked):
    """How often a failed run is tried again, and when."""

    attempts: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS), WHOLE] | None = None
    base: Length | None = None
    factor: float | None = Field(default=None, ge=1, le=100)
    cap: Length | None = None
    jitter: float | None = Field(default=None, ge=0, le=10)
    max_age: Length | None = None


class CatchUpAsked(Asked):
    """Which missed slots still run."""

    mode: CatchUpMode | None = None
    window: Length | None = None
    cap: Annotated[int, Field(ge=1, le=MOST_CATCH_UP), WHOLE] | None = None
    pace: Length | None = None


class PolicyAsked(Asked):
    """How runs of a task are queued, tried, limited and ended; what is left out stays."""

    retry: RetryAsked | None = None
    timeout: Length | None = None
    idle_timeout: Length | None = None
    grace: Length | None = None
    pool: Pool | None = None
    priority: Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY), WHOLE] | None = None
    lane: Word | None = None
    group: Word | None = None
    overlap: Overlap | None = None
    catch_up: CatchUpAsked | None = None
    on_lost: OnLost | None = None
    deadline: Length | None = None
    disable_after: Annotated[int, Field(ge=0, le=MOST_ATTEMPTS), WHOLE] | None = None
    until_success: bool | None = None
    deliver_to: Word | None = None
    acknowledge: bool | None = None
    progress: Annotated[int, Field(ge=0, le=MOST_PROGRESS), WHOLE] | None = None

    def over(self, base: Policy) -> Policy:
        """Return a policy with everything set that was said."""
        plain = ("timeout", "pool", "lane", "group", "overlap", "deadline")
        given = ("priority", "on_lost", "disable_after", "until_success", "acknowledge", "progress")
        names = (*plain, *given, "idle_timeout", "grace", "deliver_to")
        said: dict[str, Any] = {
            name: getattr(self, name) for name in names if name in self.model_fields_set
        }
        for name in given:
            if name in said and said[name] is None:
                raise Invalid(name, None, "leave it out, or give a value")
        if self.retry is not None:
            said["retry"] = _over(base.retry, self.retry, ("base", "cap", "max_age"), "retry")
        if self.catch_up is not None:
            said["catch_up"] = _over(base.catch_up, self.catch_up, ("window", "pace"), "catch_up")
        return policy_from(said, base)


def _over(base: Retry | CatchUp, said: Asked, lengths: tuple[str, ...], field: str) -> object:
    changes: dict[str, Any] = {}
    for name in said.model_fields_set:
        value = getattr(said, name)
        if value is not None and name in lengths:
            value = parse_duration(value, field=f"{field}.{name}")
        changes[name] = value
    return replace(base, **changes)


def _several(value: str | list[str] | None) -> str | tuple[str, ...] | None:
    return tuple(value) if isinstance(value, list) else value


def length(value: str | None, field: str) -> timedelta | None:
    """Return a length of time that a request named."""
    return None if value is None else parse_duration(value, field=field)

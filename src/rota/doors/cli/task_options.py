"""The options of `rota task create` and `rota task edit`, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from rota.doors.cli.values import maybe_whole, whole
from rota.doors.library.options import policy_from
from rota.errors import Invalid
from rota.flow.define.schedules import Wish
from rota.model.tasks import After, AfterOn, CatchUp, Policy, Retry
from rota.timing.durations import parse_duration
from rota.timing.options import choice

HIGHEST_PRIORITY = 1_000_000
MOST_ATTEMPTS = 1_000

Text = str | None

Call = Annotated[Text, typer.Option("--call", metavar="MODULE:FUNCTION", help="What to run.")]
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
    Text, typer.Option("--every", metavar="LENGTH", help="When: a length of time, '10m'.")
]
OnceAt = Annotated[
    Text, typer.Option("--once-at", metavar="TIME", help="When: once, '2026-12-24T09:00'.")
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
Priority = Annotated[Text, typer.Option("--priority", metavar="N", help="Higher goes first [0].")]
PoolName = Annotated[
    Text, typer.Option("--pool", metavar="POOL", help="foreground or background [background].")
]
OverlapMode = Annotated[
    Text,
    typer.Option(
        "--overlap", metavar="MODE", help="skip, queue, queue_all, cancel_other or allow [queue]."
    ),
]
CatchUpMode = Annotated[
    Text, typer.Option("--catch-up", metavar="MODE", help="latest, all or none [latest].")
]
OnLost = Annotated[
    Text, typer.Option("--on-lost", metavar="MODE", help="retry, fail or ask [retry].")
]
DisableAfter = Annotated[
    Text, typer.Option("--disable-after", metavar="N", help="Failures in a row; 0 is never [0].")
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
    Text, typer.Option("--deliver-to", metavar="ADDRESS", help="Send the result, 'log:'.")
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
SpaceName = Annotated[str, typer.Option("--space", metavar="NAME", help="Whose task it is.")]

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
PLAIN = ("timeout", "pool", "overlap", "on_lost", "deadline", "group", "lane", "deliver_to")


def wish_of(given: Mapping[str, Any]) -> Wish | None:
    """Return when the options say the task runs, or None if they do not say."""
    rules = {RULES[name]: given[name] for name in RULES if given.get(name) is not None}
    options = {OPTIONS[name]: given[name] for name in OPTIONS if given.get(name)}
    if len(rules) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in RULES if given.get(name))
        raise Invalid("schedule", names, "give at most one of them")
    if rules:
        return Wish(
            **rules,
            weekdays=given.get("weekdays") or (),
            timezone=given.get("timezone"),
            options=options,
        )
    stray = [name for name in ("weekdays", "timezone", *OPTIONS) if given.get(name)]
    if stray:
        advice = "goes with a schedule: give one of --cron --rrule --every --once-at --at-times"
        raise Invalid(stray[0].replace("_", "-"), given[stray[0]], advice)
    return None


def policy_of(given: Mapping[str, Any], base: Policy) -> Policy:
    """Return a policy with the given options set."""
    changes: dict[str, object] = {
        name: given[name] for name in PLAIN if given.get(name) is not None
    }
    priority = maybe_whole("priority", given.get("priority"), -HIGHEST_PRIORITY, HIGHEST_PRIORITY)
    if priority is not None:
        changes["priority"] = priority
    disable = maybe_whole("disable-after", given.get("disable_after"), 0, MOST_ATTEMPTS)
    if disable is not None:
        changes["disable_after"] = disable
    if given.get("retry") is not None or given.get("retry_base") is not None:
        changes["retry"] = _retry(given, base.retry)
    if given.get("catch_up") is not None:
        mode = policy_from({"catch_up": given["catch_up"]}).catch_up.mode
        catch_up: CatchUp = replace(base.catch_up, mode=mode)
        changes["catch_up"] = catch_up
    return policy_from(changes, base=base)


def _retry(given: Mapping[str, Any], base: Retry) -> Retry:
    attempts, wait = given.get("retry"), given.get("retry_base")
    if attempts is not None:
        base = replace(base, attempts=whole("retry", attempts, 1, MOST_ATTEMPTS))
    if wait is not None:
        base = replace(base, base=parse_duration(wait, field="retry-base"))
    return base


def after_of(given: Mapping[str, Any]) -> After | None:
    """Return which task the options say to follow."""
    task, on = given.get("after"), given.get("on")
    if task is None:
        if on is not None:
            raise Invalid("on", on, "goes with --after")
        return None
    return After(task=task, on=choice(AfterOn, on or AfterOn.SUCCESS, "on"))

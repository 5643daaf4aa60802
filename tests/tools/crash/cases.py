"""The cases: which lives a daemon has, and what ends each of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rota.faultpoints import POINTS

STORES: Final = ("sqlite", "postgres")
HITS: Final = (1, 2, 3)
LIVES: Final = 5
"""How often a daemon is started at most before it is left in peace."""

ONLY: Final = {
    "fence_workers": "postgres",
    "fence_other_workers": "sqlite",
    "lock": "sqlite",
    "snapshot": "sqlite",
}
"""Points that one store alone has."""

ONCE: Final = frozenset(
    {
        *("add_space", "set_space", "add_thread", "enable_task", "disable_task", "delete_task"),
        *("put_schedule", "drop_schedule", "set_limits", "request_cancel", "align_schedules"),
        *(
            "register_worker",
            "retire_worker",
            "fence_other_workers",
            "mark_stuck",
            "rebuild_queue_heads",
            "prune_runs",
            "apply_plans",
        ),
        *(
            "add_key",
            "revoke_key",
            "touch_keys",
            "record_request",
            "record_answer",
            "drop_state",
            "mark_seen",
        ),
        *("pause_all", "resume_all", "approve", "record_clock_jump", "record_clock_return"),
        *(
            "renew_home_lease",
            "fence_home",
            "record_launch",
            "schedule_relaunch",
            "record_output",
            "adopt_attempt",
            "drop_kept_attempt",
        ),
        "begin_checks",
        *(
            "record_heartbeats",
            "record_missed_heartbeats",
            "record_machine_sample",
            "defer_operations",
            "record_effect",
            "set_budget",
            "reserve_budget",
        ),
        *("set_notification_target", "drop_notification_target"),
        *("archive_session", "clear_session", "resume_session"),
        *(
            "put_thread",
            "add_message",
            "requeue_reader",
            "assign_messages",
            "record_mailbox_number",
            "acknowledge_messages",
        ),
        *("snapshot", "lock", "crew", "drain", "kept", "mailbox", "check"),
    }
)
"""What a life comes to once: there hit 3 is the third life that ends so."""

FEW: Final = {
    "add_space.statement": 2,
    "set_space.statement": 2,
    "add_thread.statement": 1,
    "request_cancel.statement": 2,
    "settle.successors": 2,
    "settle.deferred": 1,
    "delivery.send": 2,
    "delivery.sent": 2,
    "align_schedules.statement": 1,
    "apply_plans.statement": 1,
    "record_clock_jump.statement": 1,
    "record_clock_return.statement": 1,
    "register_worker.statement": 1,
    "retire_worker.statement": 1,
    "fence_other_workers.statement": 1,
    "add_key.statement": 2,
    "revoke_key.statement": 1,
    "touch_keys.statement": 1,
    "record_request.statement": 1,
    "renew_home_lease.statement": 1,
    "fence_home.statement": 1,
    "record_launch.statement": 1,
    "begin_checks.statement": 1,
    "schedule_relaunch.statement": 2,
    "record_output.statement": 1,
    "adopt_attempt.statement": 1,
    "drop_kept_attempt.statement": 1,
    "record_heartbeats.statement": 1,
    "record_missed_heartbeats.statement": 1,
    "record_machine_sample.statement": 2,
    "set_budget.statement": 2,
    "reserve_budget.statement": 1,
    "set_notification_target.statement": 2,
    "drop_notification_target.statement": 1,
    "archive_session.statement": 1,
    "clear_session.statement": 1,
    "resume_session.statement": 1,
    "requeue_reader.statement": 1,
    "assign_messages.statement": 1,
    "record_mailbox_number.statement": 1,
    "acknowledge_messages.statement": 1,
    "record_answer.statement": 1,
    "drop_state.statement": 1,
    "mark_seen.statement": 1,
}
"""What a life comes to a few times only."""

APART: Final = ("prune_runs", "migrate", "snapshot", "kept", "mailbox", "check")
"""Parts whose points need a database of their own, full of ended work, or real programs."""
KEEPING: Final = frozenset(
    {
        *("kept", "mailbox", "check"),
        *(
            "renew_home_lease",
            "fence_home",
            "record_launch",
            "record_output",
            "adopt_attempt",
            "drop_kept_attempt",
        ),
        "begin_checks",
    }
)
"""Parts that real programs under real keepers come to."""
TOLD_TO_STOP: Final = frozenset({"drain", "retire_worker"})
EXTRAS: Final = {"mark_stuck": ("stuck",)}

ASKING: Final = {
    **dict.fromkeys(("claim_runs.committed", "attempt.begin", "attempt.end"), 2),
    **dict.fromkeys(("kept.written", "kept.started", "kept.heard", "record_launch.committed"), 2),
    **dict.fromkeys(("record_output.commit", "record_output.committed"), 2),
    **dict.fromkeys(("settle.begin", "settle.commit", "settle.committed", "settle.answered"), 2),
    "settle.statement": 20,
    "settle.deferred": 1,
}
"""How often a run that asks once comes to each point on its way."""

LONGEST_MOMENT: Final = 0.6
LONGEST_OUTAGE: Final = 2.0
OUTAGES: Final = ("crash", "halt", "terminate")
DEEPEST_HIT: Final = 12
RANDOM_ACTIONS: Final = ("kill",) * 7 + ("exit", "raise", "sleep", "stop")


@dataclass(frozen=True, slots=True)
class Blow:
    """What ends a life: a fault point, or SIGKILL at a moment; or an outage of the database."""

    fault: str = ""
    after: float = 0.0
    outage: str = ""
    down: float = 0.0

    @property
    def owner(self) -> str:
        """The operation or part that the point belongs to."""
        return self.fault.partition(".")[0]

    @property
    def action(self) -> str:
        """What happens there."""
        return self.fault.rpartition(":")[2] or "kill"

    def __str__(self) -> str:
        what = self.fault or f"{self.outage or 'kill'} after {self.after * 1_000:.0f} ms"
        return f"{what} for {self.down * 1_000:.0f} ms" if self.down else what


@dataclass(frozen=True, slots=True)
class Case:
    """A database, and what ends each life that works on it.

    `sure` means that every blow must strike; `fresh` that its lives find an empty database.
    """

    store: str
    blows: tuple[Blow, ...]
    sure: bool = True
    fresh: bool = False
    seed: int | None = None
    extras: tuple[str, ...] = field(default=())
    asking: bool = False

    def __str__(self) -> str:
        return ", ".join(str(blow) for blow in self.blows)

    def extras_of(self, blow: Blow) -> tuple[str, ...]:
        """Return the work that a blow needs beside the usual."""
        return (*self.extras, *EXTRAS.get(blow.owner, ()))


def points_of(store: str) -> list[str]:
    """Return the points that a store has."""
    return [p for p in POINTS if ONLY.get(_part(p), store) == store]


def _part(point: str) -> str:
    return point.partition(".")[0]


def at(point: str, hit: int = 1, action: str = "kill") -> Blow:
    """Return the blow at a point, at most as deep as a life gets there."""
    once = _part(point) in ONCE and not point.endswith(".statement")
    return Blow(f"{point}:{1 if once else min(hit, FEW.get(point, hit))}:{action}")


def every_hit(store: str, points: Sequence[str], hits: Sequence[int] = HITS) -> Iterator[Case]:
    """Yield a case for each point: one life for each hit."""
    for point in points:
        blows = tuple(at(point, hit) for hit in hits)
        if _part(point) == "migrate":  # a step that is done is not done again
            yield Case(store, (at(point),), fresh=True)
            yield from (Case(store, (blow,)) for blow in blows)
        else:
            yield Case(store, blows)


def chained(store: str, points: Sequence[str], lives: int = LIVES) -> Iterator[Case]:
    """Yield cases that come to every point once, several points one after the other."""
    shared = [point for point in points if _part(point) not in APART]
    for start in range(0, len(shared), lives):
        yield Case(store, tuple(at(point) for point in shared[start : start + lives]))
    for part in APART:
        alone = [at(point) for point in points if _part(point) == part]
        if part == "migrate":
            yield from (Case(store, (blow,), fresh=True) for blow in alone)
            yield from (Case(store, (blow,)) for blow in alone[:1])
        elif alone:
            yield Case(store, tuple(alone))


def asking(store: str, lives: int = LIVES) -> Iterator[Case]:
    """Yield cases that end lives between any two steps of ask, wait, answer and go on."""
    blows = [
        Blow(f"{point}:{hit}:kill") for point, hits in ASKING.items() for hit in range(1, hits + 1)
    ]
    for start in range(0, len(blows), lives):
        yield Case(store, tuple(blows[start : start + lives]), asking=True)


def random_case(store: str, seed: int) -> Case:
    """Return the case of a seed: up to five lives, each ended at a point or at a moment."""
    chance = random.Random(f"{store}:{seed}")
    points = [p for p in points_of(store) if _part(p) not in APART]
    blows = [_random_blow(chance, points) for _ in range(chance.randint(2, LIVES))]
    extras = tuple(name for name in ("apart", "stuck") if chance.random() < 0.1)
    fresh = chance.random() < 0.2
    return Case(store, tuple(blows), sure=False, fresh=fresh, seed=seed, extras=extras)


def outage_case(seed: int) -> Case:
    """Return the outages of a seed: the server is killed or stopped, or connections are cut."""
    chance = random.Random(f"outage:{seed}")
    blows = [
        Blow(
            after=chance.uniform(0.05, LONGEST_MOMENT),
            outage=OUTAGES[(seed + number) % len(OUTAGES)],
            down=chance.choice((0.0, chance.uniform(0.0, LONGEST_OUTAGE))),
        )
        for number in range(len(OUTAGES))
    ]
    return Case("server", tuple(blows), seed=seed)


def _random_blow(chance: random.Random, points: Sequence[str]) -> Blow:
    after = chance.uniform(0.0, LONGEST_MOMENT)
    if chance.random() < 0.4:
        return Blow(after=after)
    hit = min(chance.randint(1, DEEPEST_HIT), chance.randint(1, DEEPEST_HIT))
    return Blow(f"{chance.choice(points)}:{hit}:{chance.choice(RANDOM_ACTIONS)}", after)

"""How much room the limits leave, counted inside the claim that uses it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rota.model.spaces import Limit, Quota, Scope
from rota.stores.kit.enqueue import RUNS
from rota.stores.kit.session import Row, Rows, Session

UNLIMITED = 1 << 30
QUOTAS = frozenset(Quota)


@dataclass(slots=True)
class Bucket:
    """A rate as a bucket of tokens that refills evenly; a start takes one."""

    rate: int
    period: int
    tokens: float
    refilled_at: int

    def refill(self, now: int) -> None:
        """Add what the time since the last refill has earned, up to a full bucket."""
        earned = max(0, now - self.refilled_at) * self.rate / self.period
        self.tokens = min(float(self.rate), self.tokens + earned)
        self.refilled_at = now

    def next_at(self, now: int) -> int:
        """Return when the next whole token will be there."""
        return now + int((1.0 - self.tokens) * self.period / self.rate) + 1


@dataclass(slots=True)
class Room:
    """The limits as they stand in this claim; taking from it keeps it exact."""

    total: int = UNLIMITED
    pools: dict[str, int] = field(default_factory=dict)
    space_caps: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    buckets: dict[str, Bucket] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @property
    def limited(self) -> bool:
        """Whether there is any limit at all."""
        return bool(
            self.total < UNLIMITED or self.pools or self.space_caps or self.groups or self.buckets
        )

    def of_pool(self, pool: str) -> int:
        """Return how many metered runs may still start in a pool."""
        return max(0, min(self.total, self.pools.get(pool, UNLIMITED)))

    def space_cap(self, pool: str, space_id: int) -> int:
        """Return the cap of a space in a pool, its own or the default."""
        own = self.space_caps.get(f"{pool}/{space_id}")
        return self.space_caps.get(pool, UNLIMITED) if own is None else own

    def of_group(self, group: str) -> int:
        """Return how many runs of a group may still start."""
        room = self.groups.get(group, UNLIMITED)
        bucket = self.buckets.get(group)
        return max(0, room if bucket is None else min(room, int(bucket.tokens)))

    def gates(self) -> list[str]:
        """Return the gates that stand open: none, and each limited group that has room."""
        limited = self.groups.keys() | self.buckets.keys()
        return ["", *sorted(group for group in limited if self.of_group(group) > 0)]

    def take(self, pool: str, group: str, metered: bool) -> None:
        """Count one run that starts now."""
        if metered:
            self.total -= 1
            if pool in self.pools:
                self.pools[pool] -= 1
        if group in self.groups:
            self.groups[group] -= 1
        if group in self.buckets:
            self.buckets[group].tokens -= 1
            self.taken.add(group)

    def spent(self) -> list[str]:
        """Return the groups whose bucket is empty."""
        return sorted(group for group, bucket in self.buckets.items() if bucket.tokens < 1.0)


async def read_room(session: Session, now: int) -> Room:
    """Return what the limits leave, counted in the current transaction."""
    room = Room()
    for row in await session.rows("read_limits"):
        await _add(session, room, row, now)
    return room


async def _add(session: Session, room: Room, row: Row, now: int) -> None:
    scope, key, cap, rate, period, tokens, refilled_at = row
    if scope == Scope.SPACE and cap is not None:
        if key.partition("/")[0] not in QUOTAS:
            room.space_caps[key] = cap
    elif scope == Scope.GROUP:
        if cap is not None:
            used = await session.rows("count_group", grp=key, cap=cap)
            room.groups[key] = cap - used[0][0]
        if rate is not None:
            bucket = Bucket(rate, period, rate if tokens is None else tokens, refilled_at or now)
            bucket.refill(now)
            room.buckets[key] = bucket
    elif scope == Scope.TOTAL and cap is not None:
        used = await session.rows("count_total", cap=cap)
        room.total = cap - used[0][0]
    elif scope == Scope.POOL and cap is not None:
        used = await session.rows("count_pool", pool=key, cap=cap)
        room.pools[key] = cap - used[0][0]


async def keep_buckets(session: Session, room: Room) -> None:
    """Write back the buckets this claim took from."""
    for group in sorted(room.taken):
        bucket = room.buckets[group]
        await session.run(
            "keep_bucket", key=group, tokens=bucket.tokens, refilled_at=bucket.refilled_at
        )


async def set_limits(session: Session, limits: list[Limit], now: int) -> None:
    """Replace limits by scope and key; one without cap and rate is removed.

    Lowering a cap stops nothing that runs. Every head is opened again, because any of them may
    have been shut by a limit that no longer holds.
    """
    await session.enter_claim()
    standing = {(row[0], row[1]): tuple(row[2:5]) for row in await session.rows("read_limits")}
    changed = False
    for limit in limits:
        period = None if limit.period is None else int(limit.period.total_seconds() * 1_000_000)
        if standing.get((limit.scope.value, limit.key)) == (limit.cap, limit.rate, period):
            continue  # a rate that is set again keeps what was spent of it
        changed = True
        await session.run("delete_limit", scope=limit.scope.value, key=limit.key)
        if limit.cap is not None or limit.rate is not None:
            rows = Rows(
                [
                    {
                        "scope": limit.scope.value,
                        "key": limit.key,
                        "cap": limit.cap,
                        "rate": limit.rate,
                        "period": period,
                        "refilled_at": now,
                    }
                ]
            )
            await session.run("insert_limits", rows=rows)
    if changed:
        await session.run("reset_gates")
        session.wake(RUNS)

"""Claim runs with every limit exact.

Claims happen one at a time (on SQLite by the write lock, on PostgreSQL by an advisory lock), so a
claim may count what runs, decide, and start runs without anybody deciding at the same moment.
Everybody else only ends runs or adds them, which can make a count too high but never too low.

Where to look is known from heads (see `heads`), so a claim reads neither what is finished, nor what
is planned, nor how much is queued.

Order: foreground before background; spaces by turn, the one served longest ago first; inside a
space by priority, then age. A lane offers only its head, and none while one of its runs is running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.model.runs import Lease
from rota.model.spaces import Limit, LimitScope, Quota
from rota.model.tasks import Task
from rota.model.views import ClaimResult
from rota.store.queue import RUNS, FreshHead, Head, apply_claim_hints, open_new_heads, take_pings
from rota.store.tasks import get_tasks
from rota.store.transactions import QueryRows, Row, Transaction

FEWEST_HEADS = 32
FEWEST_PICKED = 8
MOST_ROUNDS = 12
MOST_KNOWN = 10_000

# The columns of take_runs and pick_runs: the fields of a Lease, its order and its task's version;
# then, of pick_runs alone, what choosing needs.
_LEASE_END = len(Lease._fields)
_PRIORITY, _AVAILABLE, _TASK_VERSION, _HEAD, _GROUP, _METERED = range(_LEASE_END, _LEASE_END + 6)


def _order(row: Row) -> tuple[int, int, int]:
    return (-row[_PRIORITY], row[_AVAILABLE], row[0])


@dataclass(slots=True)
class _Catch:
    """What a claim has leased so far, and the version of each task among it."""

    leases: list[Lease] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)

    def add(self, rows: Sequence[Row], *, leased: bool) -> None:
        """Add rows; what is not leased yet will be, which makes a new epoch."""
        step = 0 if leased else 1
        self.leases += [Lease(row[0], row[1] + step, *row[2:_LEASE_END]) for row in rows]
        self.versions.update({row[3]: row[_TASK_VERSION] for row in rows})


@dataclass(slots=True)
class _Round:
    """What one look at the open heads of a pool decided."""

    chosen: list[Row] = field(default_factory=list)
    served: set[int] = field(default_factory=set)
    empty: list[Head] = field(default_factory=list)
    full_spaces: set[int] = field(default_factory=set)


class _Turn(NamedTuple):
    """Who claims, how much, and when."""

    worker: str
    want: int
    now: int


async def claim_runs(
    tx: Transaction,
    worker: str,
    pools: Sequence[str],
    routes: Sequence[str],
    want: int,
) -> ClaimResult:
    """Lease up to `want` ready runs of the given routes to a worker, at an instant from within.

    What was planned in the same transaction is among them, and begins after that.
    """
    await tx.enter_claim()
    now = tx.now()
    pings = await take_pings(tx, worker)
    if pings is None:
        return ClaimResult(leases=[], tasks={}, answers={})
    fresh, quiet = await apply_claim_hints(tx, pings)
    turn, catch = _Turn(worker, want, now), _Catch()
    if quiet:
        room = LimitHeadroom()
        fresh = await _serve_fresh(tx, fresh, pools, set(routes), turn, catch)
    else:
        room = await read_room(tx, now)
    if fresh:
        await open_new_heads(tx, fresh, now)
    more = bool(fresh) or not quiet
    for number in range(MOST_ROUNDS if more else 0):
        left = want - len(catch.leases)
        heads = await _open_heads(tx, room, pools, routes, left) if left > 0 else {}
        if not heads:
            more = False
            break
        more = number == MOST_ROUNDS - 1
        if not await _serve_pools(tx, room, heads, turn._replace(want=left), catch):
            more = False
            break
    await keep_buckets(tx, room)
    return ClaimResult(
        leases=catch.leases,
        tasks=await _tasks(tx, catch.versions),
        answers=await load_answers(tx, [lease.run_id for lease in catch.leases if lease.asked]),
        retry_at=await _retry_at(tx, room, pools, routes, now),
        more=more,
    )


async def _tasks(tx: Transaction, versions: dict[int, int]) -> dict[int, Task]:
    """Return tasks, reading those that are unknown or have changed since they were read."""
    known = tx.cache.tasks
    missing = [id_ for id_, version in versions.items() if known.get(id_, (0,))[0] != version]
    if len(known) > MOST_KNOWN:
        known.clear()
        missing = list(versions)
    for task in await get_tasks(tx, sorted(missing)):
        known[task.id] = (versions[task.id], task)
    return {id_: known[id_][1] for id_ in versions}


async def _retry_at(
    tx: Transaction, room: LimitHeadroom, pools: Sequence[str], routes: Sequence[str], now: int
) -> int | None:
    """Return when a spent rate lets the next waiting run start, if one waits for it."""
    instants = []
    for group in room.spent():
        waiting = await tx.rows(
            "open_heads",
            pools=list(pools),
            gates=[group],
            routes=list(routes),
            full_pools=[],
            most=1,
        )
        if waiting:
            instants.append(room.buckets[group].next_at(now))
    return min(instants, default=None)


async def load_answers(tx: Transaction, run_ids: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Return what people have answered to the questions of runs, in order."""
    found: dict[int, tuple[str, ...]] = {}
    for run_id, answer in await tx.rows("given_answers", ids=run_ids) if run_ids else []:
        found[run_id] = (*found.get(run_id, ()), answer)
    return found


async def _open_heads(
    tx: Transaction,
    room: LimitHeadroom,
    pools: Sequence[str],
    routes: Sequence[str],
    want: int,
) -> dict[str, list[Head]]:
    """Return the open heads of each pool that has any, in the order of the pools and turns."""
    rows = await tx.rows(
        "open_heads",
        pools=list(pools),
        gates=room.gates(),
        routes=list(routes),
        full_pools=[pool for pool in pools if room.of_pool(pool) <= 0],
        most=max(FEWEST_HEADS, want),
    )
    found: dict[str, list[Head]] = {pool: [] for pool in pools}
    for row in sorted(rows, key=lambda row: (row[4], row[0])):
        found[row[5]].append((row[0], row[1], row[2], row[3]))
    return {pool: heads[: max(FEWEST_HEADS, want)] for pool, heads in found.items() if heads}


async def _serve_pools(
    tx: Transaction,
    room: LimitHeadroom,
    heads: dict[str, list[Head]],
    turn: _Turn,
    catch: _Catch,
) -> bool:
    """Lease runs of the pools in their order; true if another look may find more.

    A pool is served before the next one: while it may have more, nothing of a later one is taken.
    """
    left = turn.want
    for pool, pool_heads in heads.items():
        found = await _serve(tx, room, pool, pool_heads, left)
        await _lease(tx, found, turn.worker, turn.now)
        await _close(tx, pool, found, turn.now)
        catch.add(found.chosen, leased=False)
        left -= len(found.chosen)
        emptied = len(found.empty) == len(pool_heads) < max(FEWEST_HEADS, turn.want)
        moved = bool(found.chosen or found.empty or found.full_spaces)
        if left <= 0 or (moved and not emptied):
            return left > 0
    return False


async def _serve_fresh(
    tx: Transaction,
    fresh: set[FreshHead],
    pools: Sequence[str],
    routes: set[str],
    turn: _Turn,
    catch: _Catch,
) -> set[FreshHead]:
    """Lease runs of heads that came just now, while nothing else waits and nothing is limited.

    Most of them are empty at once and need never be written. Returns those that may have more.
    """
    for pool in pools:
        here = sorted(head for head in fresh if head[0] == pool and head[2] in routes)
        want = turn.want - len(catch.leases)
        if not here or want <= 0:
            continue
        if len(here) == 1:
            empty = await _take(tx, here[0], turn._replace(want=want), catch)
        else:
            seen = [head[1:] for head in here[: max(FEWEST_HEADS, want)]]
            found = await _serve(tx, LimitHeadroom(), pool, seen, want)
            await _lease(tx, found, turn.worker, turn.now)
            catch.add(found.chosen, leased=False)
            empty = {(pool, *head) for head in found.empty}
        fresh = fresh - empty
        if len(empty) < len(here):
            break
    return fresh


async def _take(tx: Transaction, head: FreshHead, turn: _Turn, catch: _Catch) -> set[FreshHead]:
    """Lease runs of one head in one step; return the head if that emptied it."""
    pool, space_id, route, group, metered = head
    rows = await tx.rows(
        "take_runs",
        pool=pool,
        space_id=space_id,
        route=route,
        grp=group,
        metered=metered,
        most=turn.want,
        worker=turn.worker,
        now=turn.now,
    )
    catch.add(sorted(rows, key=_order), leased=True)
    return {head} if len(rows) < turn.want else set()


async def _serve(
    tx: Transaction, room: LimitHeadroom, pool: str, heads: list[Head], want: int
) -> _Round:
    found = _Round()
    spaces = list(dict.fromkeys(head[0] for head in heads))
    space_room = await _space_room(tx, room, pool, spaces, found)
    share = -(-want // len(spaces))
    asked = _asked(heads, share, space_room)
    if not asked:
        return found
    candidates, counts, ends = await _pick(tx, pool, asked, share)
    for space in spaces:
        most = min(share, want - len(found.chosen))
        rows = candidates.get(space, [])
        if len(heads) > 1:
            rows.sort(key=_order)
        if space in ends:
            rows = [row for row in rows if _order(row) <= ends[space]]
        chosen = _within(room, pool, rows, most, space_room) if room.limited else rows[:most]
        if chosen:
            found.served.add(space)
            for row in chosen:
                counts[row[_HEAD]] -= 1
            found.chosen += chosen
        if space_room[space] <= 0:
            found.full_spaces.add(space)
    # A head is empty when it had fewer runs than were asked for and every one of them was taken;
    # those that a limit left behind keep it.
    found.empty.extend(head for n, (head, _) in enumerate(asked) if counts[n] == 0)
    return found


def _asked(heads: list[Head], share: int, space_room: dict[int, int]) -> list[tuple[Head, int]]:
    """Return how many runs to look at in each head.

    A space with many heads is not read to its share in each of them: about twice the share in all
    is enough for a first look, and a second one goes on from there.
    """
    in_space = Counter(head[0] for head in heads)
    asked = []
    for head in heads:
        most = share
        if in_space[head[0]] > 1:
            most = min(share, max(FEWEST_PICKED, 2 * share // in_space[head[0]]))
        if head[3]:
            most = min(most, space_room[head[0]])
        if most > 0:
            asked.append((head, most))
    return asked


def _within(
    room: LimitHeadroom, pool: str, rows: list[Row], most: int, space_room: dict[int, int]
) -> list[Row]:
    """Return the first rows that every limit still allows, and count them."""
    chosen: list[Row] = []
    for row in rows:
        if len(chosen) >= most:
            break
        space, group, metered = row[2], row[_GROUP], bool(row[_METERED])
        if metered and (room.of_pool(pool) <= 0 or space_room[space] <= 0):
            continue
        if room.of_group(group) <= 0:
            continue
        room.take(pool, group, metered)
        if metered:
            space_room[space] -= 1
        chosen.append(row)
    return chosen


async def _space_room(
    tx: Transaction, room: LimitHeadroom, pool: str, spaces: list[int], found: _Round
) -> dict[int, int]:
    left = dict.fromkeys(spaces, UNLIMITED)
    if not room.space_caps:
        return left
    capped = {s: cap for s in spaces if (cap := room.space_cap(pool, s)) < UNLIMITED}
    rows = QueryRows({"space_id": space, "cap": cap} for space, cap in capped.items())
    for space, used in await tx.rows("count_spaces", pool=pool, rows=rows) if rows else []:
        left[space] = capped[space] - used
        if left[space] <= 0:
            found.full_spaces.add(space)
    return left


async def _pick(
    tx: Transaction, pool: str, asked: list[tuple[Head, int]], share: int
) -> tuple[dict[int, list[Row]], list[int], dict[int, tuple[int, int, int]]]:
    """Return the best runs by space, and how many each head has as far as that is known.

    Where a head was not read to its end, the third part says up to where its space may be served
    without passing over a better run that was not seen.
    """
    rows = QueryRows(
        {
            "n": n,
            "space_id": head[0],
            "route": head[1],
            "grp": head[2],
            "metered": head[3],
            "most": most,
        }
        for n, (head, most) in enumerate(asked)
    )
    counts = [0] * len(asked)
    by_space: dict[int, list[Row]] = {}
    last: list[Row | None] = [None] * len(asked)
    for row in await tx.rows("pick_runs", pool=pool, rows=rows, most=share):
        head = row[_HEAD]
        counts[head] += 1
        if counts[head] <= asked[head][1]:
            by_space.setdefault(row[2], []).append(row)
            last[head] = row
    known = [
        count if count < most else UNLIMITED for (_, most), count in zip(asked, counts, strict=True)
    ]
    ends: dict[int, tuple[int, int, int]] = {}
    for n, (head_key, most) in enumerate(asked):
        row_at_end = last[n]
        if most < share and known[n] == UNLIMITED and row_at_end is not None:
            end = _order(row_at_end)
            ends[head_key[0]] = min(ends.get(head_key[0], end), end)
    return by_space, known, ends


async def _lease(tx: Transaction, found: _Round, worker: str, now: int) -> None:
    if found.chosen:
        ids = [row[0] for row in found.chosen]
        await tx.run("lease_runs", ids=ids, worker=worker, now=now)


async def _close(tx: Transaction, pool: str, found: _Round, now: int) -> None:
    if found.empty:
        rows = QueryRows(
            {"space_id": head[0], "route": head[1], "grp": head[2], "metered": head[3]}
            for head in found.empty
        )
        await tx.run("drop_heads", pool=pool, rows=rows)
    if found.served:
        await tx.run("turn_heads", pool=pool, spaces=sorted(found.served), now=now)
    if found.full_spaces:
        await tx.run("shut_heads", pool=pool, spaces=sorted(found.full_spaces))


UNLIMITED = 1 << 30
QUOTAS = frozenset(Quota)


@dataclass(slots=True)
class RateBucket:
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
class LimitHeadroom:
    """The limits as they stand in this claim; taking from it keeps it exact."""

    total: int = UNLIMITED
    pools: dict[str, int] = field(default_factory=dict)
    space_caps: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    buckets: dict[str, RateBucket] = field(default_factory=dict)
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


async def read_room(tx: Transaction, now: int) -> LimitHeadroom:
    """Return what the limits leave, counted in the current transaction."""
    room = LimitHeadroom()
    for row in await tx.rows("read_limits"):
        await _add(tx, room, row, now)
    return room


async def _add(tx: Transaction, room: LimitHeadroom, row: Row, now: int) -> None:
    scope, key, cap, rate, period, tokens, refilled_at = row
    if scope == LimitScope.SPACE and cap is not None:
        if key.partition("/")[0] not in QUOTAS:
            room.space_caps[key] = cap
    elif scope == LimitScope.GROUP:
        if cap is not None:
            used = await tx.rows("count_group", grp=key, cap=cap)
            room.groups[key] = cap - used[0][0]
        if rate is not None:
            bucket = RateBucket(
                rate, period, rate if tokens is None else tokens, refilled_at or now
            )
            bucket.refill(now)
            room.buckets[key] = bucket
    elif scope == LimitScope.TOTAL and cap is not None:
        used = await tx.rows("count_total", cap=cap)
        room.total = cap - used[0][0]
    elif scope == LimitScope.POOL and cap is not None:
        used = await tx.rows("count_pool", pool=key, cap=cap)
        room.pools[key] = cap - used[0][0]


async def keep_buckets(tx: Transaction, room: LimitHeadroom) -> None:
    """Write back the buckets this claim took from."""
    for group in sorted(room.taken):
        bucket = room.buckets[group]
        await tx.run("keep_bucket", key=group, tokens=bucket.tokens, refilled_at=bucket.refilled_at)


async def set_limits(tx: Transaction, limits: Sequence[Limit]) -> None:
    """Replace limits by scope and key; one without cap and rate is removed.

    Lowering a cap stops nothing that runs. Every head is opened again, because any of them may
    have been shut by a limit that no longer holds.
    """
    await tx.enter_claim()
    standing = {(row[0], row[1]): tuple(row[2:5]) for row in await tx.rows("read_limits")}
    changed = False
    for limit in limits:
        period = None if limit.period is None else int(limit.period.total_seconds() * 1_000_000)
        if standing.get((limit.scope.value, limit.key)) == (limit.cap, limit.rate, period):
            continue  # a rate that is set again keeps what was spent of it
        changed = True
        await tx.run("delete_limit", scope=limit.scope.value, key=limit.key)
        if limit.cap is not None or limit.rate is not None:
            rows = QueryRows(
                [
                    {
                        "scope": limit.scope.value,
                        "key": limit.key,
                        "cap": limit.cap,
                        "rate": limit.rate,
                        "period": period,
                        "refilled_at": tx.now(),
                    }
                ]
            )
            await tx.run("insert_limits", rows=rows)
    if changed:
        await tx.run("reset_gates")
        tx.wake(RUNS)

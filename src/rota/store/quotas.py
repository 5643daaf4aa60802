"""How many queued runs and schedules a member space may have.

They are counted in the transaction that adds to them. Not refused are runs that follow from what
was let in before: slots of schedules, successors, next checks, retries, and subtasks, which are
counted from when they are deferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rota.errors import OverLimit
from rota.model.runs import Enqueued, RunBatch
from rota.model.spaces import Quota, SpaceRole
from rota.store.queue import count_new, queue_runs
from rota.store.transactions import Transaction, one

NOUNS = {Quota.QUEUED: "queued runs", Quota.SCHEDULES: "schedules"}
COUNTS = {Quota.QUEUED: "count_queued", Quota.SCHEDULES: "count_schedules"}


async def enqueue_within(
    tx: Transaction,
    batches: Sequence[RunBatch],
    now: int,
    *,
    unlimited: set[int] | None = None,
    last_of_all: bool = False,
) -> list[list[Enqueued]]:
    """Queue batches of runs if every space has room for its own.

    `unlimited` remembers which spaces have no quota, whatever the limits are.
    """
    wanted: Counter[int] = Counter()
    for batch in batches:
        wanted[batch.template.space_id] += len(batch.payloads)
    named = [batch for batch in batches if batch.keys]

    async def fewer(space_id: int) -> int:
        own = [batch for batch in named if batch.template.space_id == space_id]
        if not own:
            return wanted[space_id]
        there = sum(len(batch.payloads) for batch in own)
        return wanted[space_id] - there + await count_new(tx, own)

    for space_id, room in (await _rooms(tx, Quota.QUEUED, wanted, unlimited)).items():
        if wanted[space_id] > room.left and await fewer(space_id) > max(room.left, 0):
            raise room.refusal()
    return await queue_runs(tx, batches, now, last_of_all=last_of_all)


async def check_queued(tx: Transaction, space_id: int, more: int) -> None:
    """Refuse more runs than a space has room for."""
    rooms = await _rooms(tx, Quota.QUEUED, {space_id: more}, None)
    for room in rooms.values():
        if more > room.left:
            raise room.refusal()


async def check_schedules(tx: Transaction, task_id: int) -> None:
    """Refuse one more schedule of a task where its space has no room for it."""
    row = await one(tx, "space_of_task", task_id=task_id)
    wanted = {} if row is None else {row[0]: 1}
    for room in (await _rooms(tx, Quota.SCHEDULES, wanted, None)).values():
        if room.left < 1:
            raise room.refusal()


class _Room:
    """What a space may have, and how much of it is left."""

    def __init__(self, quota: Quota, space: str, cap: int, count: int) -> None:
        self._quota = quota
        self._space = space
        self._cap = cap
        self.left = cap - count

    def refusal(self) -> OverLimit:
        """Return why there cannot be more."""
        noun, quota, space = NOUNS[self._quota], self._quota.value, self._space
        return OverLimit(
            f"the space {space} may have {self._cap} {noun} (limit_space_{quota}), and this would "
            f"be more: let some end or remove some, or have its limit raised by "
            f"`rota limit set space {quota}/{space} --cap N`"
        )


async def _rooms(
    tx: Transaction, quota: Quota, wanted: Mapping[int, int], unlimited: set[int] | None
) -> dict[int, _Room]:
    """Return what is left to those of some spaces that have a quota."""
    ids = sorted(space for space, more in wanted.items() if more and space not in (unlimited or ()))
    if not ids:
        return {}
    rooms = {}
    for space_id, name, role, cap in await tx.rows("read_quotas", what=quota.value, ids=ids):
        if role == SpaceRole.MAIN:
            if unlimited is not None:
                unlimited.add(space_id)
        elif cap is not None:
            counted = await tx.rows(COUNTS[quota], space_id=space_id, most=cap)
            rooms[space_id] = _Room(quota, name, cap, counted[0][0])
    return rooms

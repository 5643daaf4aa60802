"""Heads: where claiming has to look.

`heads` names the combinations of pool, space, route and group that may have ready runs, with the
turn of their space. It is a cache: a head without ready runs is dropped when a claim finds it
empty, and whatever can make a run ready leaves a ping in its own transaction, which the next claim
absorbs. All of this happens inside claims, which happen one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.stores.kit.enqueue import ping_record
from rota.stores.kit.session import Row, Rows, Session

MOST_PINGS = 2_000

Head = tuple[int, str, str, int]
"""A head inside one pool: space, route, group, metered."""

FreshHead = tuple[str, int, str, str, int]
"""A head that may not have been written yet: its pool, then a head inside that."""


async def take_pings(session: Session, worker: str) -> list[Row] | None:
    """Return the pings that have come, or None for a worker that may not claim.

    A fenced worker may not, and nobody may while everything is paused. Their pings stay.
    """
    pings = await session.rows("take_pings", most=MOST_PINGS, worker=worker)
    if not pings and await session.rows("is_barred", worker=worker):
        return None
    return pings


async def absorb(session: Session, pings: Sequence[Row]) -> tuple[set[FreshHead], bool]:
    """Take up pings: choose lane heads, and return the heads that may have ready runs.

    The second part says whether the queue was quiet: no other head is open, and nothing is limited.
    """
    fresh = {(r[0], r[1], r[2], r[3], r[4]) for r in pings if r[5] is None and r[2] is not None}
    reopen = {(r[0], r[1]) for r in pings if r[5] is None and r[2] is None}
    lanes = {(r[1], r[5]) for r in pings if r[5] is not None}
    if lanes:
        fresh |= await _turn_lanes(session, sorted(lanes))
    if reopen:
        rows = Rows({"pool": pool, "space_id": space} for pool, space in sorted(reopen))
        await session.run("reopen_heads", rows=rows)
    return fresh, bool(pings) and not reopen and bool(pings[0][6])


async def open_new_heads(session: Session, heads: set[FreshHead], now: int) -> None:
    """Note that heads may have ready runs."""
    rows = Rows(
        {"pool": h[0], "space_id": h[1], "route": h[2], "grp": h[3], "metered": h[4]}
        for h in sorted(heads)
    )
    await session.run("open_new_heads", rows=rows, now=now)


async def _turn_lanes(session: Session, lanes: list[tuple[int, str]]) -> set[FreshHead]:
    """Make the best waiting run of each free lane its head; return the heads that have one."""
    rows = Rows({"space_id": space, "lane": lane} for space, lane in lanes)
    held: list[int] = []
    ready: list[int] = []
    for _, _, busy, current, best in await session.rows("view_lanes", rows=rows):
        if current is not None and (busy or current != best):
            held.append(current)
        if best is not None and not busy and best != current:
            ready.append(best)
    if held:
        await session.run("hold_runs", ids=held)
    if not ready:
        return set()
    made = await session.rows("ready_runs", ids=ready)
    missed = set(ready) - {row[0] for row in made}
    if missed:
        # Another transaction holds the row; look at its lane again once that has ended.
        again = await session.rows("lanes_of", ids=sorted(missed))
        await session.run(
            "insert_pings",
            rows=Rows(ping_record(pool, space, "", "", False, lane) for pool, space, lane in again),
        )
    return {(row[1], row[2], row[3], row[4], row[5]) for row in made}


async def heal(session: Session, now: int) -> int:
    """Open a head for every combination that has ready runs, and look at every waiting lane.

    Needed only if the caches were lost or a transaction vanished between a look and its ping.
    """
    await session.enter_claim()
    found = await session.rows("find_heads")
    if found:
        await open_new_heads(session, {(r[0], r[1], r[2], r[3], r[4]) for r in found}, now)
    lanes = await session.rows("find_lanes")
    if lanes:
        pings = Rows(ping_record(r[0], r[1], "", "", False, r[2]) for r in lanes)
        await session.run("insert_pings", rows=pings)
    return len(found) + len(lanes)

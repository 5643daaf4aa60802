"""Readings of machines: one row for each home and heartbeat."""

from __future__ import annotations

from rota.model.instants import from_micros
from rota.model.machines import KEEP_READINGS, Heard, Load, Reading
from rota.stores.kit.beating import as_heartbeat
from rota.stores.kit.dialect import Dialect
from rota.stores.kit.session import Row, Session

KEEP_MICROS = int(KEEP_READINGS.total_seconds() * 1_000_000)


class Machines(Dialect):
    """The operations of readings, over a dialect's transactions."""

    async def read_machine(self, worker: str, home: str, host: str, load: Load) -> None:
        """Record what a worker runs and how its machine is doing; old readings go."""
        await self.write(read_machine, worker, home, host, load, self.now())

    async def list_readings(
        self, since: int, before: int, host: str | None, most: int
    ) -> list[Reading]:
        """Return readings of a span, newest first."""
        return await self.read(list_readings, since, before, host, most)

    async def newest_readings(self, since: int) -> list[Reading]:
        """Return the newest reading of each home that has one since then."""
        return await self.read(newest_readings, since)

    async def list_heard(self, space_id: int | None, most: int) -> list[Heard]:
        """Return running attempts with their last heartbeat, longest unheard first."""
        return await self.read(list_heard, space_id, most)


async def read_machine(
    session: Session, worker: str, home: str, host: str, load: Load, now: int
) -> None:
    """Write a reading, and forget those of more than a week ago."""
    await session.run(
        "put_reading",
        worker=worker,
        home=home,
        host=host,
        cpu=load.cpu_percent,
        memory=load.memory_bytes,
        total=load.memory_total,
        now=now,
    )
    await session.run("prune_readings", before=now - KEEP_MICROS)


async def list_readings(
    session: Session, since: int, before: int, host: str | None, most: int
) -> list[Reading]:
    """Return readings of a span, newest first."""
    rows = await session.rows("list_readings", since=since, before=before, host=host, most=most)
    return [_reading(row) for row in rows]


async def newest_readings(session: Session, since: int) -> list[Reading]:
    """Return one reading for each home."""
    return [_reading(row) for row in await session.rows("newest_readings", since=since)]


async def list_heard(session: Session, space_id: int | None, most: int) -> list[Heard]:
    """Return running attempts that have had a heartbeat."""
    return [
        Heard(
            task=row[5],
            space=row[6],
            executor=row[7],
            started_at=from_micros(row[8]),
            heartbeat=as_heartbeat(row[:5]),
        )
        for row in await session.rows("list_beats", space_id=space_id, most=most)
    ]


def _reading(row: Row) -> Reading:
    home, at, host, running, agents, panes, spaces, *load = row
    return Reading(
        home=home,
        host=host,
        at=from_micros(at),
        running=running,
        agents=agents,
        panes=panes,
        spaces=spaces,
        load=Load(*load),
    )

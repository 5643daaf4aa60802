"""Heartbeats: one row for each attempt that runs, replaced in place.

A beat is no event: a hundred agents would write a hundred and fifty thousand of them a day that
nobody reads. Only a silence is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from rota.model.beats import Heartbeat, Overdue, Sign
from rota.model.codec import from_json, to_json
from rota.model.events import EventName
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros
from rota.stores.kit.dialect import Dialect
from rota.stores.kit.session import EVENTS, Row, Rows, Session

KEYS = ("run_id", "epoch")
USUAL = {field.name: field.default for field in fields(Sign) if field.name not in KEYS}


class Beating(Dialect):
    """The operations of heartbeats, over a dialect's transactions."""

    async def beat(self, worker: str, signs: Sequence[Sign], due: int) -> None:
        """Record signs of attempts that are the worker's, all at once; the next is due then."""
        await self.write(beat, worker, signs, due, self.now())

    async def heartbeats(self, run_ids: Sequence[int]) -> dict[RunId, Heartbeat]:
        """Return what was last heard of the newest attempts of runs."""
        return await self.read(heartbeats, sorted(run_ids)) if run_ids else {}

    async def overdue(self, patience: int, most: int) -> list[Overdue]:
        """Return running attempts whose beat is overdue, or that never had one for so long."""
        return await self.read(overdue, self.now(), patience, most)

    async def note_silence(self, silences: Mapping[Overdue, str]) -> int:
        """Record why nobody tells of attempts, once for each silence; return of how many."""
        return await self.write(note_silence, silences, self.now())


async def beat(session: Session, worker: str, signs: Sequence[Sign], due: int, now: int) -> None:
    """Put signs in the place of earlier ones; those of runs that are another's are passed over."""
    rows = Rows(
        {"run_id": sign.run_id, "epoch": sign.epoch, "data": json.dumps(_told(sign))}
        for sign in sorted(signs, key=lambda sign: sign.run_id)
    )
    await session.run("put_beats", rows=rows, worker=worker, due=due, now=now)


def _told(sign: Sign) -> dict[str, Any]:
    record = to_json(sign)
    told = record if isinstance(record, dict) else {}
    return {name: told[name] for name, usual in USUAL.items() if getattr(sign, name) != usual}


async def heartbeats(session: Session, run_ids: list[int]) -> dict[RunId, Heartbeat]:
    """Return the rows that tell of the runs as they stand."""
    return {row[0]: as_heartbeat(row) for row in await session.rows("beats_of", ids=run_ids)}


def as_heartbeat(row: Row) -> Heartbeat:
    """Return a row as what was last heard of an attempt."""
    run_id, epoch, at, silence, data = row
    record = {"run_id": run_id, "epoch": epoch, **json.loads(data)}
    return Heartbeat(sign=from_json(Sign, record), at=from_micros(at), silence=silence)


async def overdue(session: Session, now: int, patience: int, most: int) -> list[Overdue]:
    """Return running attempts that nobody has told of in time."""
    rows = await session.rows("overdue_beats", now=now, patience=patience, most=most)
    return [
        Overdue(RunId(run_id), Epoch(epoch), at, bool(trusted), bool(kept))
        for run_id, epoch, at, trusted, kept in rows
    ]


async def note_silence(session: Session, silences: Mapping[Overdue, str], now: int) -> int:
    """Write down silences that still hold, each with an event."""
    rows = Rows(
        {"run_id": silent.run_id, "epoch": silent.epoch, "at": silent.at, "silence": why}
        for silent, why in sorted(silences.items())
    )
    noted = await session.rows("note_silence", rows=rows)
    reasons = {silent.run_id: why for silent, why in silences.items()}
    for (run_id,) in noted:
        data = json.dumps({"reason": reasons[run_id]})
        name = EventName.SILENT.value
        await session.run("record_events", ids=[run_id], name=name, data=data, now=now)
    if noted:
        session.wake(EVENTS)
    return len(noted)

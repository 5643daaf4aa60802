"""Heartbeats of attempts and samples of machines.

A beat is no event: a hundred agents would write a hundred and fifty thousand of them a day that
nobody reads. Only a silence is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from rota.model.events import EventName
from rota.model.heartbeats import (
    KEEP_READINGS,
    AttemptHeartbeat,
    AttemptSample,
    Heartbeat,
    MachineLoad,
    MachineSample,
    MissedHeartbeat,
)
from rota.model.ids import Epoch, RunId
from rota.model.instants import from_micros
from rota.model.json import from_json, to_json
from rota.store.transactions import EVENTS, QueryRows, Row, Transaction

KEYS = ("run_id", "epoch")
USUAL = {field.name: field.default for field in fields(AttemptSample) if field.name not in KEYS}


async def record_heartbeats(
    tx: Transaction, worker: str, signs: Sequence[AttemptSample], due: int
) -> None:
    """Put signs in the place of earlier ones; those of runs that are another's are passed over."""
    now = tx.now()
    rows = QueryRows(
        {"run_id": sign.run_id, "epoch": sign.epoch, "data": json.dumps(_told(sign))}
        for sign in sorted(signs, key=lambda sign: sign.run_id)
    )
    await tx.run("put_beats", rows=rows, worker=worker, due=due, now=now)


def _told(sign: AttemptSample) -> dict[str, Any]:
    record = to_json(sign)
    told = record if isinstance(record, dict) else {}
    return {name: told[name] for name, usual in USUAL.items() if getattr(sign, name) != usual}


async def get_heartbeats(tx: Transaction, run_ids: Sequence[int]) -> dict[RunId, Heartbeat]:
    """Return the newest heartbeats of the newest attempts of runs."""
    rows = await tx.rows("beats_of", ids=sorted(run_ids)) if run_ids else []
    return {row[0]: as_heartbeat(row) for row in rows}


def as_heartbeat(row: Row) -> Heartbeat:
    """Return a row as what was last heard of an attempt."""
    run_id, epoch, at, silence, data = row
    record = {"run_id": run_id, "epoch": epoch, **json.loads(data)}
    return Heartbeat(sign=from_json(AttemptSample, record), at=from_micros(at), silence=silence)


async def list_missed_heartbeats(
    tx: Transaction, patience: int, most: int
) -> list[MissedHeartbeat]:
    """Return running attempts that nobody has told of in time."""
    now = tx.now()
    rows = await tx.rows("overdue_beats", now=now, patience=patience, most=most)
    return [
        MissedHeartbeat(RunId(run_id), Epoch(epoch), at, bool(trusted), bool(kept))
        for run_id, epoch, at, trusted, kept in rows
    ]


async def record_missed_heartbeats(tx: Transaction, silences: Mapping[MissedHeartbeat, str]) -> int:
    """Write down silences that still hold, each with an event."""
    now = tx.now()
    rows = QueryRows(
        {"run_id": silent.run_id, "epoch": silent.epoch, "at": silent.at, "silence": why}
        for silent, why in sorted(silences.items())
    )
    noted = await tx.rows("note_silence", rows=rows)
    reasons = {silent.run_id: why for silent, why in silences.items()}
    for (run_id,) in noted:
        data = json.dumps({"reason": reasons[run_id]})
        name = EventName.SILENT.value
        await tx.run("record_events", ids=[run_id], name=name, data=data, now=now)
    if noted:
        tx.wake(EVENTS)
    return len(noted)


KEEP_MICROS = int(KEEP_READINGS.total_seconds() * 1_000_000)


async def record_machine_sample(
    tx: Transaction, worker: str, home: str, host: str, load: MachineLoad
) -> None:
    """Write a reading, and forget those of more than a week ago."""
    now = tx.now()
    await tx.run(
        "put_reading",
        worker=worker,
        home=home,
        host=host,
        cpu=load.cpu_percent,
        memory=load.memory_bytes,
        total=load.memory_total,
        now=now,
    )
    await tx.run("prune_readings", before=now - KEEP_MICROS)


async def list_machine_samples(
    tx: Transaction, since: int, before: int, host: str | None, most: int
) -> list[MachineSample]:
    """Return readings of a span, newest first."""
    rows = await tx.rows("list_readings", since=since, before=before, host=host, most=most)
    return [_reading(row) for row in rows]


async def newest_machine_samples(tx: Transaction, since: int) -> list[MachineSample]:
    """Return one reading for each home."""
    return [_reading(row) for row in await tx.rows("newest_readings", since=since)]


async def list_attempt_heartbeats(
    tx: Transaction, space_id: int | None, most: int
) -> list[AttemptHeartbeat]:
    """Return running attempts that have had a heartbeat."""
    return [
        AttemptHeartbeat(
            task=row[5],
            space=row[6],
            executor=row[7],
            started_at=from_micros(row[8]),
            heartbeat=as_heartbeat(row[:5]),
        )
        for row in await tx.rows("list_beats", space_id=space_id, most=most)
    ]


def _reading(row: Row) -> MachineSample:
    home, at, host, running, agents, panes, spaces, *load = row
    return MachineSample(
        home=home,
        host=host,
        at=from_micros(at),
        running=running,
        agents=agents,
        panes=panes,
        spaces=spaces,
        load=MachineLoad(*load),
    )

"""Which slot an effect counts for, and the keys of effects."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from rota.model.runs import Lease, Run

MICROS = 1_000_000


class WriteScope(NamedTuple):
    """What the writes of an attempt count for, as sent to the gateway, which has no store.

    `since` is when the run was created; None in a first attempt, which cannot have earlier writes.
    """

    space_id: int
    key: str
    since: float | None


def write_scope(lease: Lease) -> WriteScope:
    """Return what the writes of an attempt count for: its run.

    The key includes when the run was created, because a restored database may reuse the run's id.
    """
    parts = (lease.space_id, lease.task_id, lease.run_id, lease.created_micros)
    text = "\n".join(map(str, ("write", *parts)))
    since = None if lease.epoch == 1 else lease.created_micros / MICROS
    return WriteScope(lease.space_id, hashlib.sha256(text.encode()).hexdigest(), since)


def effect_slot(run: Run) -> str:
    """Return what the effects of a run count for: its slot, or the run if it has none."""
    if run.schedule_id is not None and run.slot_key is not None:
        return f"{run.schedule_id}/{run.slot_key}"
    return f"run/{run.id}"


def effect_name(kind: str, *content: object) -> str:
    """Return the name of an unnamed effect: a hash of its content."""
    text = json.dumps([kind, *content], sort_keys=True, ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def effect_key(space_id: int, task_id: int, slot: str, name: str) -> str:
    """Return the dedupe key of a message: the same for each attempt at the same effect."""
    return hashlib.sha256(f"effect\n{space_id}\n{task_id}\n{slot}\n{name}".encode()).hexdigest()

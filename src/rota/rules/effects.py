"""For which slot an effect counts, and its key."""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from rota.model.runs import Lease, Run

MICROS = 1_000_000


class WriteScope(NamedTuple):
    """For what the writes of an attempt count, told to the gateway, which has no store.

    `since` is when the run was made; None in a first attempt, before which there was none.
    """

    space_id: int
    key: str
    since: float | None


def write_scope(lease: Lease) -> WriteScope:
    """Return for what the writes of an attempt count: its run, which stands alone for its slot.

    When the run was made is part of it, because another database of the home may have its number.
    """
    parts = (lease.space_id, lease.task_id, lease.run_id, lease.created_micros)
    text = "\n".join(map(str, ("write", *parts)))
    since = None if lease.epoch == 1 else lease.created_micros / MICROS
    return WriteScope(lease.space_id, hashlib.sha256(text.encode()).hexdigest(), since)


def slot_of(run: Run) -> str:
    """Return for what the effects of a run count: its slot, or itself if it stands for none."""
    if run.schedule_id is not None and run.slot_key is not None:
        return f"{run.schedule_id}/{run.slot_key}"
    return f"run/{run.id}"


def effect_name(kind: str, *content: object) -> str:
    """Return the name of an effect that was given none: what it is made of, in a hash."""
    text = json.dumps([kind, *content], sort_keys=True, ensure_ascii=False)
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def effect_key(space_id: int, task_id: int, slot: str, name: str) -> str:
    """Return what the outbox knows a message by: the same for every attempt at the same effect."""
    return hashlib.sha256(f"effect\n{space_id}\n{task_id}\n{slot}\n{name}".encode()).hexdigest()

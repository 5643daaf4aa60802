"""Notification targets, and the notifications of a change.

A notice is written in the transaction that moves its run, once for each place: where the task's own
results go if it is a question, and every preference of the space that its priority reaches. What
tells of a question is withdrawn with it, as far as nobody has begun to send it.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rota.model.events import EventName
from rota.model.ids import SpaceId
from rota.model.instants import from_micros
from rota.model.notifications import NotificationTarget
from rota.model.runs import RunState
from rota.model.settlement import Settlement
from rota.store.tasks import policy_of
from rota.store.transactions import DELIVERIES, EVENTS, QueryRows, Row, Transaction, one

WITHDRAWN = "its question was closed before it was sent"


async def set_notification_target(
    tx: Transaction, space_id: int, channel: str, target: str, least: int, *, usual: bool
) -> None:
    """Write a preference; one that says the same already stays as old as it is."""
    now = tx.now()
    if usual:
        await tx.run("unset_usual", space_id=space_id, channel=channel, target=target, now=now)
    await tx.run(
        "put_preference",
        space_id=space_id,
        channel=channel,
        target=target,
        least=least,
        usual=int(usual),
        now=now,
    )


async def drop_notification_target(
    tx: Transaction, space_id: int, channel: str, target: str
) -> bool:
    """Take a preference away."""
    named = {"space_id": space_id, "channel": channel, "target": target}
    return bool(await tx.rows("drop_preference", **named))


async def list_notification_targets(
    tx: Transaction, space_id: int | None
) -> list[NotificationTarget]:
    """Return the preferences of a space, or of all."""
    return [_preference(row) for row in await tx.rows("list_preferences", space_id=space_id)]


def _preference(row: Row) -> NotificationTarget:
    space_id, space, channel, target, least, usual, updated_at = row
    return NotificationTarget(
        space_id=SpaceId(space_id),
        space=space,
        channel=channel,
        target=target,
        least=least,
        usual=bool(usual),
        updated_at=from_micros(updated_at),
    )


async def thread_owner(tx: Transaction, key: str) -> SpaceId | None:
    """Return whose a thread is."""
    row = await one(tx, "find_thread", key=key)
    return None if row is None else SpaceId(row[0])


# what a settlement does


async def notify(tx: Transaction, rich: Sequence[Settlement], now: int) -> None:
    """Put what is to be told of runs into the outbox, once for each place."""
    told: dict[int, Settlement] = {s.run_id: s for s in rich if s.extras.notice is not None}
    if not told:
        return
    wanted: dict[int, list[Row]] = defaultdict(list)
    for row in await tx.rows("preferences_of_runs", ids=sorted(told)):
        wanted[row[0]].append(row)
    outbox, events = QueryRows(), QueryRows()
    for run_id, rows in wanted.items():
        s = told[run_id]
        notice = s.extras.notice
        if notice is None:
            continue
        _, space_id, task_id, task, priority = rows[0][:5]
        known = {(d.channel, d.target) for d in s.extras.deliveries}
        own = [] if notice.to is None else [tuple(notice.to.partition(":")[::2])]
        preferred = [(channel, target, least) for *_, channel, target, least in rows if channel]
        reached = [(channel, target) for channel, target, least in preferred if least <= priority]
        for channel, target in dict.fromkeys([*own, *reached]):
            if (channel, target) in known:
                continue  # its result tells it there already
            outbox.append(
                {
                    "run_id": run_id,
                    "space_id": space_id,
                    "channel": channel,
                    "target": target,
                    "body": f"{task}: {notice.text}",
                    "dedupe_key": _key(run_id, s.epoch, s.state.value, channel, target),
                    "kind": "notice",
                    "asking": s.epoch if notice.asking else None,
                }
            )
        if preferred:
            below = [f"{c}:{t}" for c, t, least in preferred if least > priority]
            data: dict[str, object] = {"to": [f"{c}:{t}" for c, t in reached], "below": below}
            events.append(_event(EventName.NOTICED, data, space_id, task_id, run_id))
    await _put(tx, outbox, events, now)


async def notify_disabled(tx: Transaction, task: Row, run_id: int, now: int) -> dict[str, object]:
    """Tell that a task was disabled by its failures; return what its event says of that."""
    task_id, space_id, name, reason, policy = task
    priority = policy_of(policy).priority
    rows = await tx.rows("list_preferences", space_id=space_id)
    reached = [(row[2], row[3]) for row in rows if row[4] <= priority]
    outbox = QueryRows(
        {
            "run_id": run_id,
            "space_id": space_id,
            "channel": channel,
            "target": target,
            "body": f"{name}: the task was disabled, it has {reason}; last in run {run_id}. "
            f"`rota task enable {name}` lets it run again",
            "dedupe_key": _key(run_id, task_id, "disabled", channel, target),
            "kind": "notice",
        }
        for channel, target in reached
    )
    await _put(tx, outbox, QueryRows(), now)
    if not rows:
        return {}
    below = [f"{row[2]}:{row[3]}" for row in rows if row[4] > priority]
    return {"to": [f"{c}:{t}" for c, t in reached], "below": below}


async def _put(tx: Transaction, outbox: QueryRows, events: QueryRows, now: int) -> None:
    if outbox:
        await tx.run("insert_deliveries", rows=outbox, now=now)
        tx.wake(DELIVERIES)
    if events:
        await tx.run("insert_events", rows=events, now=now)
        tx.wake(EVENTS)


async def withdraw(
    tx: Transaction, ids: Iterable[int], now: int, query: str = "withdraw_of_these"
) -> set[int]:
    """Take back which of these deliveries ask, and are not open any more."""
    rows = await tx.rows(query, ids=sorted(ids), error=WITHDRAWN)
    events = QueryRows(
        _event(
            EventName.DELIVERY_WITHDRAWN,
            {"delivery_id": delivery_id, "channel": channel},
            space_id,
            None,
            run_id,
        )
        for delivery_id, run_id, space_id, channel in rows
    )
    await _put(tx, QueryRows(), events, now)
    return {row[0] for row in rows}


async def withdraw_closed(tx: Transaction, moved: Sequence[Settlement], now: int) -> None:
    """Take back what asks for answers to questions that these moves have closed."""
    closed = [s.run_id for s in moved if s.was is RunState.WAITING]
    if closed:
        await withdraw(tx, closed, now, "withdraw_of_runs")


def _event(
    name: EventName, data: dict[str, object], space_id: int, task_id: int | None, run_id: int | None
) -> dict[str, object]:
    return {
        "name": name.value,
        "space_id": space_id,
        "task_id": task_id,
        "run_id": run_id,
        "data": json.dumps(data),
    }


def _key(run_id: int, epoch: int, what: str, channel: str, target: str) -> str:
    words = f"notice\n{run_id}\n{epoch}\n{what}\n{channel}\n{target}"
    return hashlib.sha256(words.encode()).hexdigest()

"""Events in the order of their commits."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.events import START, EventPage, EventPosition, EventTally
from rota.store.transactions import Row, Transaction
from rota.store.views import as_event

PRUNED = "events_pruned"
"""The fact that says up to which position retention has taken events."""

MOST_SKIPPED = 10_000

_PRUNED, _HIDDEN, _EVENT, _XACT = 0, 1, 2, 9


async def list_events_after(
    tx: Transaction,
    after: EventPosition | None,
    most: int,
    *,
    space_id: int | None = None,
    run_id: int | None = None,
) -> EventPage:
    """Return what follows a position; one question, so that it reads one snapshot."""
    start = START if after is None else after
    place = {"xact": str(start.transaction), "after": start.event, "most": most}
    if run_id is None:
        rows = await tx.rows("events_after", **place)
    else:
        rows = await tx.rows("run_events_after", run_id=run_id, **place)
    pruned, hidden = _as_position(rows[0][_PRUNED]), bool(rows[0][_HIDDEN])
    if after is not None and after < pruned:
        return EventPage(events=(), position=await last_event_position(tx), gap=True)
    found = [(_place(row), as_event(row[_EVENT:_XACT])) for row in rows if row[_EVENT] is not None]
    return EventPage(
        events=tuple((at, e) for at, e in found if space_id is None or e.space_id == space_id),
        position=found[-1][0] if found else max(start, pruned),
        more=len(found) == most,
        hidden=hidden,
    )


async def last_event_position(tx: Transaction) -> EventPosition:
    """Return the position of the newest event that can be read, or was before it was pruned."""
    (pruned, xact, event_id), *_ = await tx.rows("events_end")
    newest = START if event_id is None else EventPosition(int(xact), event_id)
    return max(newest, _as_position(pruned))


async def count_events(
    tx: Transaction, after: EventPosition, most: int, bounds: Sequence[int]
) -> EventTally:
    """Count what follows a position."""
    place = {"xact": str(after.transaction), "after": after.event, "most": most}
    events = await tx.rows("tally_events", **place)
    late = await tx.rows("tally_lateness", bounds=bounds, **place) if events else []
    ends = [EventPosition(int(row[3]), row[4]) for row in events]
    count = sum(row[2] for row in events)
    return EventTally(
        events=tuple((row[0], row[1], row[2]) for row in events),
        late=tuple((row[0], row[1], int(row[2])) for row in late),
        position=max(ends, default=after),
        more=count == most,
    )


async def count_skipped_slots(tx: Transaction) -> list[tuple[str, int]]:
    """Return how many slots the newest ledger rows tell of, by reason."""
    rows = await tx.rows("count_skipped", most=MOST_SKIPPED)
    return [(row[0], int(row[1])) for row in rows]


async def note_pruned(tx: Transaction, events: list[Row]) -> None:
    """Remember how far events (id, name, run, transaction) have been pruned."""
    newest = max(EventPosition(int(row[3]), row[0]) for row in events)
    known = await tx.rows("read_fact", name=PRUNED)
    if known:
        newest = max(newest, _as_position(known[0][0]))
    await tx.run("note_fact", name=PRUNED, value=f"{newest.transaction}.{newest.event}")


def _place(row: Row) -> EventPosition:
    return EventPosition(int(row[_XACT]), row[_EVENT])


def _as_position(text: str | None) -> EventPosition:
    if text is None:
        return START
    transaction, _, event_id = text.partition(".")
    return EventPosition(int(transaction), int(event_id))

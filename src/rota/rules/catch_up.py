"""What becomes of the slots a planner finds: which run, which are ledgered, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rota.model.instants import to_micros
from rota.model.pauses import was_paused
from rota.model.plans import PAST_ASKED_FOR, DueSchedule, LedgerEntry, LedgerReason
from rota.model.schedules import Slot
from rota.model.tasks import CatchUp, CatchUpMode

GRACE = timedelta(seconds=60)
"""A slot found this late still counts as on time."""

_GRACE_MICROS = int(GRACE.total_seconds() * 1_000_000)

MOST_SLOTS = 10_000
"""How many slots of one schedule are decided in one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A slot that does not run; `index` is its place among the slots that were looked at."""

    index: int
    slot: Slot
    reason: LedgerReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was decided about the slots of one schedule.

    `on_time` and `missed` run, oldest first. `decided` counts the slots that have been dealt with,
    from the oldest on; the others come in the next step.
    """

    on_time: tuple[tuple[int, Slot], ...] = ()
    missed: tuple[Slot, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    decided: int = 0


def choose(schedule: DueSchedule, slots: Sequence[Slot], *, more: bool, now: int) -> Choice:
    """Decide about slots that are due, oldest first; `more` says that later ones wait behind them.

    A slot while the task is off, or while everything is paused, is ledgered. Of the missed ones the
    newest `cap` inside the window run (the newest one for `latest`). With more missed ones behind,
    only those are decided that cannot be among the newest.
    """
    catch_up = schedule.policy.catch_up
    cap = _cap(catch_up)
    grace = now - _GRACE_MICROS
    # Behind a slot on time there are no missed ones any more: all of those are among these slots.
    more = more and to_micros(slots[-1].due) < grace
    decided = max(1, len(slots) - cap) if more else len(slots)
    dropped: list[Dropped] = []
    missed: list[tuple[int, Slot]] = []
    on_time: list[tuple[int, Slot]] = []
    for index, slot in enumerate(slots[:decided]):
        reason = _off(schedule, slot)
        if reason is not None:
            dropped.append(Dropped(index=index, slot=slot, reason=reason))
        elif to_micros(slot.due) >= grace or schedule.cursor == PAST_ASKED_FOR:
            on_time.append((index, slot))
        else:
            missed.append((index, slot))
    chosen, passed = _catch_up(catch_up, missed, cap, more=more, now=now)
    return Choice(
        on_time=tuple(on_time),
        missed=tuple(slot for _, slot in chosen),
        dropped=(*dropped, *passed),
        decided=decided,
    )


def passed_over(schedule: DueSchedule, slots: Sequence[Slot]) -> list[Dropped]:
    """Return slots that lie between a backup and its restore, each with why it does not run."""
    return [
        Dropped(index=index, slot=slot, reason=_off(schedule, slot) or LedgerReason.RESTORED)
        for index, slot in enumerate(slots)
    ]


def _cap(catch_up: CatchUp) -> int:
    if catch_up.mode is CatchUpMode.NONE:
        return 0
    return 1 if catch_up.mode is CatchUpMode.LATEST else min(catch_up.cap, MOST_SLOTS // 2)


def _off(schedule: DueSchedule, slot: Slot) -> LedgerReason | None:
    at = to_micros(slot.at)
    if not schedule.enabled:
        return LedgerReason.DISABLED
    if schedule.cursor == PAST_ASKED_FOR:
        return None
    if at < schedule.enabled_since:
        return LedgerReason.DISABLED
    if schedule.paused_until is not None and at < schedule.paused_until:
        return LedgerReason.PAUSED
    if was_paused(schedule.pauses, to_micros(slot.due)):
        return LedgerReason.PAUSED
    return None


def _catch_up(
    catch_up: CatchUp, missed: list[tuple[int, Slot]], cap: int, *, more: bool, now: int
) -> tuple[list[tuple[int, Slot]], list[Dropped]]:
    def drop(items: list[tuple[int, Slot]], reason: LedgerReason) -> list[Dropped]:
        return [Dropped(index=index, slot=slot, reason=reason) for index, slot in items]

    if not missed:
        return [], []
    if catch_up.mode is CatchUpMode.NONE:
        return [], drop(missed, LedgerReason.MISSED)
    oldest = now - int(catch_up.window.total_seconds() * 1_000_000)
    late = [item for item in missed if to_micros(item[1].due) < oldest]
    inside = missed[len(late) :]
    split = len(inside) if more else max(0, len(inside) - cap)
    latest = catch_up.mode is CatchUpMode.LATEST
    passed_over = LedgerReason.COALESCED if latest else LedgerReason.CATCH_UP_CAP
    dropped = drop(late, LedgerReason.TOO_LATE) + drop(inside[:split], passed_over)
    return inside[split:], dropped


def ledger(dropped: Iterable[Dropped]) -> tuple[LedgerEntry, ...]:
    """Return ledger entries; slots that follow each other with the same reason share one."""
    entries: list[LedgerEntry] = []
    previous = None
    for item in sorted(dropped, key=lambda d: d.index):
        at = to_micros(item.slot.at)
        first_key, first_at, count = item.slot.key, at, 1
        if previous and (previous.index, previous.reason) == (item.index - 1, item.reason):
            joined = entries.pop()
            first_key, first_at, count = joined.first_key, joined.first_at, joined.count + 1
        entries.append(
            LedgerEntry(
                reason=item.reason,
                first_key=first_key,
                last_key=item.slot.key,
                first_at=first_at,
                last_at=at,
                count=count,
            )
        )
        previous = item
    return tuple(entries)

"""Which missed slots run, and what the ledger says of the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.instants import from_micros, to_micros
from rota.model.schedules import PAST_ASKED_FOR, DueSchedule, LedgerReason, Slot
from rota.model.tasks import CatchUp, CatchUpMode, Policy
from rota.rules.plans import SkippedSlot, choose, ledger_entries

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BEGIN = to_micros(NOW - timedelta(days=365))


def schedule(catch_up=None, **facts):
    made = DueSchedule(
        id=1,
        version=1,
        generation=1,
        rule="",
        stagger="",
        cursor=BEGIN,
        next_at=BEGIN,
        task_id=1,
        space_id=1,
        route="r",
        policy=Policy(catch_up=catch_up or CatchUp()),
        enabled=True,
        enabled_since=BEGIN,
        paused_until=None,
    )
    return replace(made, **facts)


def slots(*minutes_ago):
    return [
        Slot(key=f"-{m}", at=NOW - m * MINUTE, due=NOW - m * MINUTE)
        for m in sorted(minutes_ago, reverse=True)
    ]


def decide(made, found, *, more=False):
    choice = choose(made, found, more=more, now=to_micros(NOW))
    dropped = {d.slot.key: d.reason for d in choice.dropped}
    return (
        [slot.key for _, slot in choice.on_time],
        [slot.key for slot in choice.missed],
        dropped,
    )


def test_slots_within_the_grace_are_on_time():
    on_time, missed, dropped = decide(schedule(), slots(0, 1, 2))
    assert (on_time, missed, dropped) == (["-1", "-0"], ["-2"], {})


@pytest.mark.parametrize(
    ("mode", "missed", "reason"),
    [
        (CatchUpMode.LATEST, ["-2"], LedgerReason.COALESCED),
        (CatchUpMode.ALL, ["-5", "-4", "-3", "-2"], None),
        (CatchUpMode.NONE, [], LedgerReason.MISSED),
    ],
)
def test_the_mode_chooses_among_the_missed(mode, missed, reason):
    on_time, chosen, dropped = decide(schedule(CatchUp(mode=mode)), slots(5, 4, 3, 2, 0))
    assert (on_time, chosen) == (["-0"], missed)
    assert set(dropped.values()) == ({reason} if reason else set())
    assert len(dropped) == 4 - len(missed)


def test_the_newest_are_chosen_up_to_the_cap():
    made = schedule(CatchUp(mode=CatchUpMode.ALL, cap=2))
    _, missed, dropped = decide(made, slots(5, 4, 3, 2))
    assert missed == ["-3", "-2"]
    assert dropped == {"-5": LedgerReason.CATCH_UP_CAP, "-4": LedgerReason.CATCH_UP_CAP}


@pytest.mark.parametrize("mode", [CatchUpMode.LATEST, CatchUpMode.ALL])
def test_what_lies_before_the_window_is_too_late(mode):
    made = schedule(CatchUp(mode=mode, window=timedelta(minutes=3)))
    _, missed, dropped = decide(made, slots(5, 4, 3, 2))
    assert missed == (["-2"] if mode is CatchUpMode.LATEST else ["-3", "-2"])
    assert dropped["-5"] is dropped["-4"] is LedgerReason.TOO_LATE


def test_slots_of_a_disabled_task_are_ledgered_even_on_time():
    on_time, missed, dropped = decide(schedule(enabled=False), slots(5, 0))
    assert (on_time, missed) == ([], [])
    assert set(dropped.values()) == {LedgerReason.DISABLED}


def test_slots_before_the_task_was_enabled_stay_off():
    made = schedule(CatchUp(mode=CatchUpMode.ALL), enabled_since=to_micros(NOW - 3 * MINUTE))
    _, missed, dropped = decide(made, slots(5, 4, 3, 2))
    assert missed == ["-3", "-2"]
    assert dropped == {"-5": LedgerReason.DISABLED, "-4": LedgerReason.DISABLED}


def test_slots_inside_a_pause_are_ledgered_and_its_end_is_not():
    made = schedule(CatchUp(mode=CatchUpMode.ALL), paused_until=to_micros(NOW - 3 * MINUTE))
    _, missed, dropped = decide(made, slots(5, 4, 3, 2))
    assert missed == ["-3", "-2"]
    assert set(dropped.values()) == {LedgerReason.PAUSED}


@pytest.mark.parametrize("mode", list(CatchUpMode))
def test_a_past_instant_that_was_asked_for_runs_at_once(mode):
    made = schedule(
        CatchUp(mode=mode, window=MINUTE), cursor=PAST_ASKED_FOR, enabled_since=to_micros(NOW)
    )
    assert decide(made, slots(100_000)) == (["-100000"], [], {})
    off = replace(made, enabled=False)
    assert decide(off, slots(100_000))[2] == {"-100000": LedgerReason.DISABLED}


def test_lateness_counts_from_when_a_slot_is_due():
    staggered = Slot(key="s", at=NOW - 10 * MINUTE, due=NOW)
    assert decide(schedule(), [staggered])[0] == ["s"]


def test_with_more_behind_only_what_cannot_be_chosen_is_decided():
    made = schedule(CatchUp(mode=CatchUpMode.ALL, cap=2))
    choice = choose(made, slots(9, 8, 7, 6, 5), more=True, now=to_micros(NOW))
    assert choice.decided == 3
    assert choice.missed == ()
    assert [d.slot.key for d in choice.dropped] == ["-9", "-8", "-7"]


def combined(made, found, chunk):
    """Decide in chunks, each beginning behind what the last one decided."""
    on_time, missed, dropped, start = [], [], {}, 0
    while start < len(found):
        part = found[start : start + chunk]
        more = start + chunk < len(found)
        choice = choose(made, part, more=more, now=to_micros(NOW))
        assert choice.decided > 0
        on_time += [slot.key for _, slot in choice.on_time]
        missed += [slot.key for slot in choice.missed]
        dropped |= {d.slot.key: d.reason for d in choice.dropped}
        start += choice.decided
    return on_time, missed, dropped


@given(
    count=st.integers(0, 40),
    seconds=st.integers(1, 400),
    mode=st.sampled_from(CatchUpMode),
    cap=st.integers(1, 4),
    window=st.integers(1, 60),
    chunk=st.integers(6, 12),
    since=st.integers(0, 60),
    paused=st.none() | st.integers(0, 60),
    enabled=st.booleans(),
)
def test_chunks_give_the_same_answer_as_one_look(
    count, seconds, mode, cap, window, chunk, since, paused, enabled
):
    made = schedule(
        CatchUp(mode=mode, cap=cap, window=window * MINUTE),
        enabled=enabled,
        enabled_since=to_micros(NOW - since * MINUTE),
        paused_until=None if paused is None else to_micros(NOW - paused * MINUTE),
    )
    times = [NOW - timedelta(seconds=seconds * n) for n in reversed(range(count))]
    found = [Slot(key=str(n), at=at, due=at) for n, at in enumerate(times)]
    whole = decide(made, found)
    assert combined(made, found, chunk) == whole
    on_time, missed, dropped = whole
    assert sorted([*on_time, *missed, *dropped], key=int) == [slot.key for slot in found]


def drops(*reasons):
    return [
        SkippedSlot(index=index, slot=slots(100 - index)[0], reason=reason)
        for index, reason in enumerate(reasons)
        if reason is not None
    ]


OFF, LATE = LedgerReason.DISABLED, LedgerReason.TOO_LATE


@pytest.mark.parametrize(
    ("reasons", "rows"),
    [
        ((), []),
        ((OFF,), [(OFF, 1)]),
        ((OFF, OFF, OFF), [(OFF, 3)]),
        ((OFF, LATE, LATE, OFF), [(OFF, 1), (LATE, 2), (OFF, 1)]),
        ((OFF, None, OFF), [(OFF, 1), (OFF, 1)]),
    ],
)
def test_neighbours_with_one_reason_share_an_entry(reasons, rows):
    items = drops(*reasons)
    entries = ledger_entries(reversed(items))
    assert [(e.reason, e.count) for e in entries] == rows
    if entries:
        assert entries[0].first_key == items[0].slot.key
        assert entries[-1].last_key == items[-1].slot.key
        assert from_micros(entries[0].first_at) == items[0].slot.at

"""What a slot on time does while earlier runs of its task are unfinished."""

from __future__ import annotations

import pytest

from rota.model.schedules import ActiveRun
from rota.model.tasks import Overlap
from rota.rules.plans import OverlapDecision, decide


def run(number, state="queued", *, planned=True):
    return ActiveRun(run_id=number, epoch=0, state=state, planned=planned)


RUNNING, WAITING = run(1, "running"), run(2, "waiting")
FIRST, SECOND = run(3), run(4)
ASKED_FOR = run(5, planned=False)


@pytest.mark.parametrize("overlap", [None, *Overlap])
def test_alone_a_slot_runs(overlap):
    assert decide(overlap, ()) == OverlapDecision()


@pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.QUEUE_ALL])
def test_some_policies_look_at_nobody(overlap):
    assert decide(overlap, (RUNNING, WAITING, FIRST, SECOND)) == OverlapDecision()


@pytest.mark.parametrize("active", [RUNNING, WAITING, FIRST, ASKED_FOR], ids=lambda r: r.state)
def test_skip_gives_way_to_anything_unfinished(active):
    assert decide(Overlap.SKIP, (active,)) == OverlapDecision(runs=False)


@pytest.mark.parametrize("overlap", [None, Overlap.QUEUE])
@pytest.mark.parametrize(
    ("active", "replaces"),
    [
        ((RUNNING,), ()),
        ((FIRST,), ()),
        ((RUNNING, FIRST), (FIRST,)),
        ((WAITING, FIRST), (FIRST,)),
        ((FIRST, SECOND), (SECOND,)),
        ((RUNNING, FIRST, SECOND), (FIRST, SECOND)),
        ((RUNNING, ASKED_FOR), ()),
        ((RUNNING, ASKED_FOR, FIRST), (FIRST,)),
    ],
)
def test_queue_lets_one_wait_behind_and_a_newer_one_take_its_place(overlap, active, replaces):
    assert decide(overlap, active) == OverlapDecision(replaces=replaces)


def test_cancel_other_ends_the_queued_and_stops_the_running():
    verdict = decide(Overlap.CANCEL_OTHER, (RUNNING, WAITING, FIRST, ASKED_FOR))
    assert verdict == OverlapDecision(replaces=(FIRST,), stops=(RUNNING, WAITING))

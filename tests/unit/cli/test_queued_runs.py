"""Runs that are waited for in the queue: why they have not begun is told, and once."""

from __future__ import annotations

import pytest

from rota.cli.runs import QueueWaitReporter, find_wait_reason
from rota.errors import Unavailable

FULL = "in the queue for 4 s: the limit of 1 run in the background pool is reached"
LATER = "attempt 1 failed; it is retried at 09:00, in 5 min"


def run(**changed):
    return {"id": 7, "state": "queued", "attempt": 0, "slot_at": None, **changed}


class Desk:
    """Answers why a run waits, and keeps what is told beside the answer."""

    def __init__(self, sentence):
        self.sentence = sentence
        self.told = []
        self.out = self

    def call(self, method, path):
        assert (method, path) == ("GET", "/v1/runs/7/why")
        if self.sentence is None:
            message = "the daemon does not respond"
            raise Unavailable(message)
        others = {"run": 6, "sentence": "failed; run 6"}
        return {"slots": [others, {"run": 7, "sentence": f"{self.sentence}; run 7"}]}

    def talk(self, words):
        self.told.append(words)


@pytest.mark.parametrize("reason", [FULL, LATER])
def test_a_queued_run_is_said_to_wait_as_why_says_it(reason):
    assert find_wait_reason(Desk(f"requested (manual); {reason}"), run()) == reason
    assert find_wait_reason(Desk(reason), run(slot_at="2026-11-01T07:00:00Z")) == reason
    assert find_wait_reason(Desk(reason), run(state="running")) == ""
    assert find_wait_reason(Desk(None), run()) == ""


def test_a_full_queue_is_told_once_and_a_retry_again():
    desk = Desk(f"requested (manual); {FULL}")
    waiting = QueueWaitReporter(desk, delay_seconds=0.0)
    waiting.report(run())
    waiting.report(run())
    waiting.report(run(state="running", attempt=1))
    desk.sentence = f"requested (manual); {LATER}"
    waiting.report(run(attempt=1))
    waiting.report(run(attempt=1))
    assert desk.told == [f"Run 7 is queued: {FULL}.", f"Run 7 is queued: {LATER}."]


def test_a_run_that_begins_soon_is_not_talked_about():
    desk = Desk(FULL)
    QueueWaitReporter(desk, delay_seconds=60.0).report(run())
    assert desk.told == []


def test_a_number_without_its_option_is_told_where_it_goes(rota):
    said = rota.refused("limit", "set", "space", "background", "4")
    assert said == 'cap "4": use --cap: rota limit set space background --cap 4'

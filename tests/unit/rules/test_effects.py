"""For what writes through the gateway count."""

from __future__ import annotations

import pytest

from rota.model.runs import Lease
from rota.rules.effects import write_scope

FIRST = Lease(
    run_id=7, epoch=1, space_id=2, task_id=3, route="process", cause="schedule", retries=0,
    losses=0, created_micros=5_000_000, expires_micros=None, slot_micros=None, slot_key=None,
    depth=0, question_count=0, thread=None, key=None, payload="{}",
)  # fmt: skip


def test_every_attempt_of_a_run_writes_for_the_same():
    again = FIRST._replace(epoch=2, retries=1, cause="retry", losses=1, question_count=1)
    assert write_scope(again).key == write_scope(FIRST).key
    assert write_scope(FIRST).space_id == 2


def test_only_a_first_attempt_has_none_before_it():
    assert write_scope(FIRST).since is None
    assert write_scope(FIRST._replace(epoch=2)).since == 5.0


@pytest.mark.parametrize("name", ["run_id", "space_id", "task_id", "created_micros"])
def test_another_run_writes_for_itself_and_so_does_its_namesake_in_another_database(name):
    other = FIRST._replace(**{name: 11})
    assert write_scope(other).key != write_scope(FIRST).key

"""What a daemon cannot do, from what it knows: nothing is tried."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rota.errors import Busy, Refused, Stale, Unavailable
from rota.flow.observe.readiness import readiness, service_problems
from rota.store.last_write import LastWrite
from rota.store.sqlite import disk_space
from rota.store.sqlite.database import MemoryDatabase


@dataclass
class Loop:
    name: str = "planner"
    last_error: str | None = None
    silent_for: float = 0.0


async def test_a_store_that_answers_and_loops_that_work_are_ready(clock):
    store = MemoryDatabase(clock)
    await store.open()
    assert await readiness(store, [Loop(), Loop("postman", silent_for=3600)]) == []
    await store.close()


async def test_a_store_that_cannot_be_read_is_told_without_its_address(clock):
    (problem,) = await readiness(MemoryDatabase(clock), [])
    assert (problem.code, problem.sentence) == ("store_unreachable", "the database cannot be read")
    assert problem.whole().startswith("the database cannot be read: the store is not open")


def test_a_loop_that_fails_and_a_planner_that_hangs_are_told():
    found = service_problems([Loop("postman", "no route to 10.0.0.5"), Loop(silent_for=61.0)])
    assert [problem.code for problem in found] == ["service_failing", "planner_late"]
    assert found[0].sentence == "the postman fails and is retried"
    assert found[0].whole().endswith(": no route to 10.0.0.5")
    assert found[1].sentence == "the planner has not completed a step for 61 s"


@pytest.mark.parametrize(
    ("fault", "counts"),
    [
        (Unavailable("no room"), True),
        (Busy("locked"), True),
        (Stale("overtaken"), False),
        (Refused("wrong"), False),
        (ValueError("x"), False),
    ],
)
def test_only_what_the_database_refuses_counts(fault, counts):
    writes = LastWrite()
    writes.failed(fault)
    assert writes.refused == (str(fault) if counts else None)
    writes.done()
    assert writes.refused is None


def test_room_is_judged_where_the_database_is(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "rota.db")
    assert disk_space.room_problems(str(tmp_path / "link.db")) == []
    assert disk_space.room_problems(str(tmp_path / "gone" / "rota.db")) == []

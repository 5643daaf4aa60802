"""The files of a run go with its row, and those of a run that goes on stay."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.flow import maintain as prune_module
from rota.flow.maintain import prune_artifacts
from rota.model.instants import from_micros
from rota.ports.host import ArtifactFolder

OLD = timedelta(days=31)


class Shelves:
    """Folders that a test says are there."""

    def __init__(self, *shelves):
        self.there = list(shelves)

    def list_folders(self):
        return list(self.there)

    def delete_folder(self, shelf):
        self.there.remove(shelf)


@pytest.fixture
def shelf(desk):
    def made(run_id, *, age=timedelta(0), empty=False):
        return ArtifactFolder("main", run_id, from_micros(desk.store.now()) - age, empty)

    return made


async def two_runs(desk):
    """Return a run that has ended and one that waits."""
    await desk.worker("w1")
    task = await desk.task("job")
    await desk.queue(task)
    lease = await desk.claim_one()
    await desk.end(lease)
    (waiting,) = await desk.queue(task)
    return lease.run_id, waiting


async def test_files_stay_as_long_as_their_run_is_on_record(desk, shelf):
    ended, waiting = await two_runs(desk)
    kept = Shelves(shelf(ended, age=OLD), shelf(waiting, age=OLD))
    assert await prune_artifacts(desk.store, kept) == 0
    assert len(kept.there) == 2


async def test_files_of_a_run_that_is_gone_go_when_they_are_old(desk, shelf):
    await two_runs(desk)
    old, young = shelf(998, age=OLD), shelf(999)
    kept = Shelves(old, young, shelf(997, empty=True))
    assert await prune_artifacts(desk.store, kept) == 1
    assert old not in kept.there
    assert young in kept.there


async def test_an_empty_folder_goes_once_its_run_has_ended(desk, shelf):
    ended, waiting = await two_runs(desk)
    kept = Shelves(shelf(ended, empty=True), shelf(waiting, empty=True, age=OLD))
    assert await prune_artifacts(desk.store, kept) == 1
    assert [one.run_id for one in kept.there] == [waiting]


async def test_many_are_looked_up_in_few_questions(desk, shelf, monkeypatch):
    monkeypatch.setattr(prune_module, "MAX_PRUNED", 3)
    await desk.worker("w1")
    runs = await desk.queue(await desk.task("job"), 10)
    for lease in (await desk.claimed(10)).leases:
        await desk.end(lease)
    kept = Shelves(*(shelf(run, empty=True) for run in runs), shelf(500, age=OLD))
    while await prune_artifacts(desk.store, kept):
        pass
    assert kept.there == []

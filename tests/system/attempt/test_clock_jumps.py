"""The clock of a shared database leaps forward: whoever works goes on, and nobody works beside it."""

from __future__ import annotations

import asyncio
import os
import signal

import asyncpg
import pytest

from tests.system.attempt.conftest import Kept, processes

AN_HOUR = 3_600_000_000


@pytest.fixture
def shared(house, postgres_address):
    made = Kept(house, postgres_address)
    yield made
    made.go()
    for number in processes(made.token):
        os.kill(number, signal.SIGKILL)


def leap(address):
    """Make every lease an hour older, as they look when the clock has leapt by that."""

    async def change():
        line = await asyncpg.connect(address.replace("postgresql+rota", "postgresql"))
        try:
            await line.execute(
                "update rota.workers set lease_until = lease_until - $1, seen_at = seen_at - $1",
                AN_HOUR,
            )
            await line.execute("update rota.homes set until = until - $1", AN_HOUR)
        finally:
            await line.close()

    asyncio.run(change())


def test_a_run_whose_keeper_is_about_to_start_has_one_program(shared, tmp_path):
    shared.create("count", "python3", "count.py", "5", shared.token)
    shared.up(ROTA_FAULT="kept.written:1:stop")
    number = shared.json("run", "count")["run"]
    shared.until(number, lambda run: run["state"] == "running")
    shared.stopped()
    leap(shared.store)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    shared.house.up("--port", "0", **{**shared._extra(), "ROTA_HOME": str(other)})
    shared.daemon.signal(signal.SIGCONT)
    shared.until(number, lambda run: any("line 4" in part["text"] for part in run["logs"]))
    assert len(shared.living()) == 1
    shared.go()
    run = shared.until(number, lambda run: run["finished_at"] is not None)
    assert (run["state"], run["losses"]) == ("succeeded", 0)
    assert [attempt["number"] for attempt in run["attempts"]] == [1]

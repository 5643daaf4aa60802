"""Whoever waits for an attempt is woken when its keeper rings, and when it ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from rota.keeper import monitor
from rota.keeper.linux import start_time
from rota.keeper.monitor import KeeperEvents

LONG = 30.0


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_the_end_of_a_keeper_rings_at_once_and_it_is_watched_no_more(sleeper):
    own, before = KeeperEvents(), descriptors()
    assert own.watch("a", sleeper.pid, start_time(sleeper.pid))
    waiting = asyncio.ensure_future(own.wait("a", LONG))
    sleeper.kill()
    async with asyncio.timeout(LONG / 2):
        await waiting
    assert not own.is_watched("a")
    assert descriptors() == before


async def test_one_that_has_ended_already_is_not_watched(sleeper):
    own, before, began = KeeperEvents(), descriptors(), start_time(sleeper.pid)
    sleeper.kill()
    await asyncio.to_thread(os.waitid, os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not own.watch("a", sleeper.pid, began)
    assert descriptors() == before


async def test_another_process_of_the_same_number_is_not_watched(sleeper):
    own, before = KeeperEvents(), descriptors()
    began = start_time(sleeper.pid)
    assert not own.watch("a", sleeper.pid, began + 1)
    assert not own.watch("a", sleeper.pid, 0)
    assert not own.watch("a", 0x7FFFFFFF, began)
    assert descriptors() == before


async def test_no_more_are_watched_than_there_is_room_for(sleeper, monkeypatch):
    monkeypatch.setattr(monitor, "MAX_WATCHED", 1)
    own, before = KeeperEvents(), descriptors()
    began = start_time(sleeper.pid)
    assert own.watch("a", sleeper.pid, began)
    assert not own.watch("b", sleeper.pid, began)
    own.unregister("a")
    assert own.watch("b", sleeper.pid, began)
    own.close()
    assert descriptors() == before


async def test_what_is_rung_before_anybody_waits_is_kept():
    own = KeeperEvents()
    own.register("a")
    own.notify("a")
    own.notify("nobody")
    async with asyncio.timeout(LONG / 2):
        await own.wait("a", LONG)


async def test_whoever_waits_for_a_bell_that_is_taken_down_is_woken():
    own = KeeperEvents()
    waiting = asyncio.ensure_future(own.wait("a", LONG))
    await asyncio.sleep(0)
    own.unregister("a")
    async with asyncio.timeout(LONG / 2):
        await waiting

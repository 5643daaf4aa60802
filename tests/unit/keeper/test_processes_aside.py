"""What a look would have to wait for is done aside, and its end is told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from rota.keeper.cleanup import CleanupThread, reap_keeper
from rota.keeper.linux import children

LONG = 30.0


class Sweeper:
    """Sweeps once it may, and fails as often as it is told to."""

    def __init__(self, fails=0):
        self.may = threading.Event()
        self.fails = fails
        self.begun = []

    def __call__(self, name):
        self.begun.append(name)
        self.may.wait(LONG)
        if len(self.begun) <= self.fails:
            raise TimeoutError
        return 3


async def done(told):
    async with asyncio.timeout(LONG):
        assert await told.get() == "a"


async def test_a_sweep_is_begun_once_and_tells_when_it_is_done():
    told, sweeper = asyncio.Queue(), Sweeper()
    aside = CleanupThread(told.put_nowait, sweeper)
    assert [aside.kill_marked("a"), aside.kill_marked("a")] == [None, None]
    sweeper.may.set()
    await done(told)
    assert aside.kill_marked("a") == 3
    assert sweeper.begun == ["a"]


async def test_a_sweep_that_failed_says_so_and_is_begun_again():
    told, sweeper = asyncio.Queue(), Sweeper(fails=1)
    sweeper.may.set()
    aside = CleanupThread(told.put_nowait, sweeper)
    assert aside.kill_marked("a") is None
    await done(told)
    with pytest.raises(TimeoutError):
        aside.kill_marked("a")
    assert aside.kill_marked("a") is None
    await done(told)
    assert aside.kill_marked("a") == 3


@pytest.fixture
def keeper(tmp_path):
    """A child of this process that is called as a keeper is, and the folder of its attempt."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / "lock").write_text(str(child.pid))
    yield child, tmp_path
    child.kill()
    child.wait()
    child.stdin.close()


def is_buried(pid):
    return pid not in children(os.getpid())


def test_a_keeper_that_lives_is_not_waited_for_without_time(keeper):
    child, folder = keeper
    assert not reap_keeper(folder, seconds=0)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert reap_keeper(folder, seconds=0)
    assert is_buried(child.pid)


async def test_a_keeper_that_ends_later_is_waited_for_aside(keeper):
    child, folder = keeper
    CleanupThread(lambda _: None).reap_keeper(folder)
    child.kill()
    async with asyncio.timeout(LONG):
        while (folder / "lock").read_text():
            await asyncio.sleep(0)
    assert is_buried(child.pid)

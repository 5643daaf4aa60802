"""What may hang holds up nobody but who asks the same."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rota.app import probes
from rota.app.probes import LocalProbes
from rota.app.settings import load_settings
from rota.app.sites import LocalSiteChecker
from rota.keeper.home import MAX_CONCURRENT, BlockingCalls, LocalKeeperHome
from rota.model.attempts import KeptAttempt
from rota.model.programs import Site
from rota.model.spaces import SpaceRole

KEPT = KeptAttempt(run_id=1, epoch=1, home="h", nonce="0" * 16, boot="b", executor="slow")


class Hanging:
    """Does not answer until it is told to."""

    missing = ()

    def __init__(self):
        self._asked, self.go_on = threading.Semaphore(0), threading.Event()

    def __call__(self, *_):
        self._asked.release()
        assert self.go_on.wait(20)
        return self

    async def asked(self):
        while not self._asked.acquire(blocking=False):
            await asyncio.sleep(0)

    sweep = capture = __call__


@pytest.fixture
def hanging():
    made = Hanging()
    yield made
    made.go_on.set()


def sweeps(hanging, home, monkeypatch):
    return LocalKeeperHome(home, "here", {"slow": hanging}).clean_up(KEPT)


def shows(hanging, home, monkeypatch):
    return LocalKeeperHome(home, "here", {"slow": hanging}).take_sample(KEPT)


def admits(hanging, home, monkeypatch):
    sites = LocalSiteChecker(load_settings(str(home)))
    monkeypatch.setattr(sites, "try_out", hanging)
    return sites.admit(Site(executor="process"), SpaceRole.MAIN)


def answers(hanging, home, monkeypatch):
    monkeypatch.setattr(probes.UrlProbe, "ask", hanging)
    return LocalProbes(home).check_url("http://127.0.0.1", None, 10.0)


@pytest.mark.parametrize("work", [sweeps, shows, admits, answers])
async def test_who_waits_for_it_holds_no_thread_that_others_need(
    work, hanging, tmp_path, monkeypatch
):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(work(hanging, tmp_path, monkeypatch))
        await hanging.asked()
        async with asyncio.timeout(5):
            await asyncio.to_thread(int)
        hanging.go_on.set()


async def test_who_asks_something_else_does_not_wait(hanging):
    apart = BlockingCalls()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for _ in range(MAX_CONCURRENT + 1):
            group.create_task(apart.run("engine", hanging))
        await hanging.asked()
        assert await apart.run("pane", int, "7") == 7
        hanging.go_on.set()
    assert await apart.run("engine", int, "8") == 8


async def test_its_threads_end_with_what_they_do():
    apart = BlockingCalls()
    assert await apart.run("engine", lambda: threading.current_thread().name) == "rota-engine_0"
    for thread in threading.enumerate():
        if thread.name.startswith("rota-engine"):
            thread.join(5)
            assert not thread.is_alive()

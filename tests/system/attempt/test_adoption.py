"""A worker loses its lease and its home is looked at twice at once: each program is carried on once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time

import asyncpg
import pytest

from tests.system.attempt.conftest import Kept

SHORT = """
import time
from pathlib import Path
print("begun", flush=True)
while not Path("short-ends").exists():
    time.sleep(0.02)
"""
WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock'
"""


@pytest.fixture
def shared(house, postgres_address):
    made = Kept(house, postgres_address)
    (made.work / "short.py").write_text(SHORT)
    yield made
    (made.work / "short-ends").touch()
    made.go()


class Locks:
    """Two transactions that hold a run up, one after the other, and a line to look at them."""

    @classmethod
    async def connected(cls, address, stack):
        made = cls()
        made.first, made.second, made.look = [
            await asyncpg.connect(address.replace("postgresql+rota", "postgresql"))
            for _ in range(3)
        ]
        for line in (made.first, made.second, made.look):
            stack.push_async_callback(line.close)
        return made

    async def take(self, line, run_id):
        await line.execute("begin")
        await line.execute("select from rota.runs where id = $1 for update", run_id)

    async def until(self, query, *args):
        """Wait until a query returns something that is true."""
        end = time.monotonic() + 60.0
        while not (found := await self.look.fetchval(query, *args)):
            assert time.monotonic() < end, query
            await asyncio.sleep(0.02)
        return found


async def lose_the_lease(shared, short, long):
    """Let the second look adopt the short program's run, and hear nothing until that has ended."""
    async with contextlib.AsyncExitStack() as stack:
        locks = await Locks.connected(shared.store, stack)
        await locks.take(locks.first, long)
        await locks.look.execute("update rota.workers set fenced = 1")
        await locks.until(f"{WAITING} having count(*) >= 1")  # the first look waits for the run
        promised = await locks.look.fetchval("select until from rota.homes")
        (shared.work / "short-ends").touch()
        behind = asyncio.ensure_future(locks.take(locks.second, long))
        await locks.until(f"{WAITING} having count(*) >= 2")
        await locks.until("select 1 from rota.homes where until > $1", promised)
        await asyncio.to_thread(shared.json, "status")  # the second look is on its way
        await locks.first.execute("rollback")
        await behind
        await locks.until("select 1 from rota.runs where id = $1 and finished_at > 0", short)
        await locks.second.execute("rollback")


def test_two_looks_carry_each_program_on_once(shared):
    shared.create("short", "python3", "short.py", shared.token)
    shared.create("long", "python3", "count.py", "5", shared.token, pool="foreground")
    daemon = shared.up(ROTA_LOG_FORMAT="json", ROTA_LOG_LEVEL="info")
    short, long = (shared.json("run", name)["run"] for name in ("short", "long"))
    for number, words in ((short, "begun"), (long, "line 4")):
        shared.until(number, lambda run, words=words: words in json.dumps(run["logs"]))
    asyncio.run(lose_the_lease(shared, short, long))
    shared.go()
    for number in (short, long):
        run = shared.until(number, lambda run: run["finished_at"] is not None)
        assert (run["state"], run["losses"]) == ("succeeded", 0)
        assert [attempt["number"] for attempt in run["attempts"]] == [1]
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    log = daemon.log.rest()
    for number in (short, long):
        told = [line for line in log if "run.adopted" in line and f'"run_id": {number}' in line]
        assert len(told) == 1, log
    assert not any("run.not_ours" in line for line in log)

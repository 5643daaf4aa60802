"""One life of a planner, with the zone data that PYTHONTZPATH names: `life.py DATABASE FROM TO`.

The clock is virtual and moves by quarters of an hour. A life that finds no tasks declares them. At
its end the whole record is verified.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timedelta

from rota.flow.observe.verification import verify
from rota.model.tasks import CatchUp, CatchUpMode, Overlap
from rota.runtime.supervisor import Supervisor, SupervisorSettings
from rota.store.sqlite.database import SqliteDatabase
from rota.store.tasks import find_task
from rota.testing.fakes import FixedChance, VirtualClock
from tests.tools.store_bench import Bench

QUARTER = timedelta(minutes=15)
TOWN = "Rota/Town"
ALL = CatchUp(mode=CatchUpMode.ALL)
NONE = CatchUp(mode=CatchUpMode.NONE)
HOURS = ",".join(f"{hour:02}:30" for hour in range(24))
TASKS = {
    "cron": ({"overlap": Overlap.ALLOW, "catch_up": ALL}, {"cron": "30 0-23 * * *"}),
    "calendar": ({"overlap": Overlap.ALLOW, "catch_up": ALL}, {"times": HOURS}),
    "rrule": (
        {"overlap": Overlap.ALLOW, "catch_up": ALL},
        {"rrule": "FREQ=DAILY;BYMINUTE=30;BYSECOND=0;BYHOUR=" + ",".join(map(str, range(24)))},
    ),
    # Its first run is never done, so that every later slot is a ledger row.
    "busy": ({"overlap": Overlap.SKIP, "catch_up": NONE}, {"cron": "30 0-23 * * *"}),
    "elapsed": ({"overlap": Overlap.ALLOW, "catch_up": ALL}, {"cron": "30 * * * *"}),
    "daily": ({"overlap": Overlap.ALLOW, "catch_up": NONE}, {"cron": "0 9 * * *"}),
    "once": ({"overlap": Overlap.ALLOW, "catch_up": NONE}, {"at": "2026-03-10T09:00"}),
}


async def declare(bench: Bench) -> None:
    for name, (policy, when) in TASKS.items():
        task = await bench.task(name, **policy)
        await bench.planned(task, timezone=TOWN, **when)


async def live(path: str, begin: datetime, end: datetime) -> None:
    clock = VirtualClock(begin)
    store = SqliteDatabase(path, clock)
    await store.open()
    bench = Bench(store, clock)
    settings = SupervisorSettings(worker_id="w", home=path, host="here", pid=1)
    crew = Supervisor(store, [], {}, settings, clock, FixedChance())
    await crew.start()
    space = await bench.space()
    if await store.read(find_task, space.id, "cron") is None:
        await declare(bench)
    while clock.now() < end:
        await bench.plan()
        clock.advance(QUARTER)
    await bench.plan()
    report = await verify(store)
    await crew.stop()
    await store.close()
    assert report.clean, report.violations


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], *map(datetime.fromisoformat, sys.argv[2:])))

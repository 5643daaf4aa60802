"""APScheduler 3 with its SQLAlchemy job store on SQLite (WAL, synchronous NORMAL, which favours it)."""

from __future__ import annotations

import pickle
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from bench.kit import percentile, serve

STARTS: list[float] = []


def noop(number: int) -> None:  # noqa: ARG001
    STARTS.append(time.time())


def _scheduler(path: str) -> BackgroundScheduler:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    @sqlalchemy.event.listens_for(engine, "connect")
    def _(connection: Any, _record: Any) -> None:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")

    scheduler = BackgroundScheduler(
        timezone="UTC",
        executors={"default": ThreadPoolExecutor(10)},
        job_defaults={"misfire_grace_time": None, "max_instances": 1},
    )
    scheduler.add_jobstore(SQLAlchemyJobStore(engine=engine))
    scheduler.start(paused=True)
    return scheduler


def _fill(
    scheduler: BackgroundScheduler, path: str, count: int, trigger: Any, at: datetime, name: str
) -> None:
    """Rows as add_job would write them."""
    template = scheduler.add_job(
        "bench.sides.apscheduler_side:noop", trigger, args=[0], id="template"
    )
    rows = []
    for number in range(count):
        state = {
            **template.__getstate__(),
            "id": f"{name}{number}",
            "args": (number,),
            "next_run_time": at,
        }
        rows.append((state["id"], at.timestamp(), pickle.dumps(state, pickle.HIGHEST_PROTOCOL)))
    scheduler.remove_job("template")
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "insert into apscheduler_jobs (id, next_run_time, job_state) values (?, ?, ?)", rows
        )


def lateness(address: str, schedules: int, due: int) -> dict[str, Any]:
    import bench.sides.apscheduler_side as module  # noqa: PLW0406 - the jobs call this copy, not __main__

    path = address.removeprefix("sqlite:///")
    scheduler = _scheduler(path)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    _fill(scheduler, path, schedules - due, CronTrigger(hour=3, timezone="UTC"), tomorrow, "idle")
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    _fill(scheduler, path, due, IntervalTrigger(hours=1, timezone="UTC"), at, "due")
    scheduler.resume()
    until = time.time() + 60
    while len(module.STARTS) < due and time.time() < until:
        time.sleep(0.05)
    late = [(start - at.timestamp()) * 1e3 for start in module.STARTS]
    scheduler.shutdown(wait=False)
    if len(late) != due:
        raise RuntimeError(f"{len(late)} of {due} due jobs ran")
    return {"p50": percentile(late, 50), "p99": percentile(late, 99)}


def idle(address: str, schedules: int) -> dict[str, Any]:
    path = address.removeprefix("sqlite:///")
    scheduler = _scheduler(path)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    _fill(scheduler, path, schedules, CronTrigger(hour=3, timezone="UTC"), tomorrow, "idle")
    scheduler.resume()
    time.sleep(0.2)
    steps = []
    for _ in range(50):
        began = time.perf_counter()
        scheduler._process_jobs()  # noqa: SLF001
        steps.append((time.perf_counter() - began) * 1e3)
    scheduler.shutdown(wait=False)
    return {"step_ms": percentile(steps, 50)}


if __name__ == "__main__":
    serve(lateness, idle)

"""Celery beat, in memory with the memory broker: no file and no network, which favours it.

Lateness is taken when a message is handed to the broker, before any worker could have it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery
from celery.beat import ScheduleEntry, Scheduler
from celery.schedules import crontab, schedule
from celery.signals import after_task_publish

from bench.kit import percentile, serve

SENT: list[float] = []


def _beat(idle_count: int) -> Scheduler:
    app = Celery("bench", broker="memory://")
    app.conf.update(
        timezone="UTC", enable_utc=True, task_ignore_result=True, beat_max_loop_interval=1
    )
    beat = Scheduler(app=app, lazy=True)
    rare = crontab(minute=0, hour=3, day_of_month=1, month_of_year=1, app=app)
    now = datetime.now(UTC)
    beat.schedule = {
        f"idle-{n}": ScheduleEntry(
            f"idle-{n}", "noop", last_run_at=now, schedule=rare, args=(n,), app=app
        )
        for n in range(idle_count)
    }
    return beat


def lateness(address: str, schedules: int, due: int) -> dict[str, Any]:  # noqa: ARG001
    beat = _beat(schedules - due)
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10)
    hourly = schedule(timedelta(hours=1), app=beat.app)
    last = at - timedelta(hours=1)
    for number in range(due):
        name = f"due-{number}"
        beat.schedule[name] = ScheduleEntry(
            name, "noop", last_run_at=last, schedule=hourly, args=(number,), app=beat.app
        )

    def note(**_: Any) -> None:
        SENT.append(time.time())

    after_task_publish.connect(note, weak=False)
    until = time.time() + 120
    while len(SENT) < due and time.time() < until:
        rest = beat.tick()
        if rest and rest > 0:
            time.sleep(rest)
    late = [(sent - at.timestamp()) * 1e3 for sent in SENT[:due]]
    if len(late) != due:
        raise RuntimeError(f"{len(late)} of {due} entries were sent")
    return {"p50": percentile(late, 50), "p99": percentile(late, 99)}


def idle(address: str, schedules: int) -> dict[str, Any]:  # noqa: ARG001
    beat = _beat(schedules)
    beat.tick()
    steps = []
    for _ in range(20):
        began = time.perf_counter()
        beat.tick()
        steps.append((time.perf_counter() - began) * 1e3)
    return {"step_ms": percentile(steps, 50)}


if __name__ == "__main__":
    serve(lateness, idle)

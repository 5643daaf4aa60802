"""Facts for explanations, each with sensible values for what a test does not care about."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from rota.flow.observe.why_facts import WhyFacts, WhySpan, neighbours, planned_in
from rota.model.ids import Epoch, RunId, ScheduleId, SpaceId, TaskId, WorkerId
from rota.model.runs import AttemptCause, QueueState, Run, RunSource, RunState
from rota.model.schedules import LedgerReason, LedgerRow, ScheduleState, StoredSchedule
from rota.model.tasks import Policy, Pool, Task, TaskKind
from rota.model.views import WorkerView
from rota.timing.rule_builders import cron, to_record

DAY = datetime(2026, 11, 15, tzinfo=UTC)
NOW = DAY + timedelta(hours=12)


def at(hour, minute=0, second=0):
    return DAY + timedelta(hours=hour, minutes=minute, seconds=second)


def task(**changes):
    values = {
        "id": TaskId(1), "space_id": SpaceId(1), "space": "main", "name": "report", "title": "",
        "kind": TaskKind.PYTHON, "route": "python", "spec": {}, "policy": Policy(metered=False), "after": None,
        "origin": "cli", "enabled": True, "enabled_since": DAY - timedelta(days=9), "paused_until": None,
        "disabled_reason": None, "failures": 0, "created_at": DAY - timedelta(days=9),
        "updated_at": DAY - timedelta(days=9), "deleted_at": None,
    }  # fmt: skip
    return Task(**(values | changes))


def schedule(expression="0 * * * *", **changes):
    options = changes.pop("options", {})
    values = {
        "id": ScheduleId(1), "task_id": TaskId(1), "task": "report", "space": "main", "name": "default",
        "rule": json.dumps(to_record(cron(expression, **options))), "generation": 1, "version": 1,
        "state": ScheduleState.ACTIVE, "note": None, "cursor": NOW, "next_at": None,
        "created_at": DAY - timedelta(days=9), "updated_at": DAY - timedelta(days=9),
    }  # fmt: skip
    return StoredSchedule(**(values | changes))


def run(number, slot=None, **changes):
    began = changes.pop("began", slot)
    took = changes.pop("took", timedelta(seconds=2))
    values = {
        "id": RunId(number), "space": "main", "task_id": TaskId(1), "task": "report", "state": RunState.SUCCEEDED,
        "place": None, "source": RunSource.MANUAL if slot is None else RunSource.SLOT, "pool": Pool.BACKGROUND,
        "priority": 0, "lane": None, "route": "python", "epoch": Epoch(1), "cause": AttemptCause.FIRST, "retries": 0,
        "losses": 0, "created_at": slot or NOW, "available_at": slot or NOW, "started_at": began,
        "finished_at": None if began is None else began + took, "expires_at": None,
        "cancel_requested_at": None, "stuck": False, "holder": None,
        "schedule_id": None if slot is None else ScheduleId(1),
        "slot_key": None if slot is None else f"{slot:%Y-%m-%dT%H:%M}[UTC]#0", "slot_at": slot,
        "upstream_id": None, "key": None, "payload": "null", "result": None, "error_code": None, "error": None,
    }  # fmt: skip
    return Run(**(values | changes))


def queued(number, slot=None, **changes):
    values = {"state": RunState.QUEUED, "place": QueueState.READY, "began": None}
    return run(number, slot, **(values | changes))


def ledger(reason, first, last=None, count=1):
    return LedgerRow(
        schedule_id=ScheduleId(1),
        schedule="default",
        reason=LedgerReason(reason),
        first_key="a",
        last_key="b",
        first_at=first,
        last_at=last or first,
        count=count,
        noted_at=at(11),
    )


def worker(**changes):
    values = {
        "id": WorkerId("w1"), "host": "h", "pid": 1, "roles": "worker", "routes": ("python",), "slots": 5, "running": 0,
        "started_at": DAY, "seen_at": NOW, "lease_until": NOW + timedelta(seconds=20), "fenced": False,
    }  # fmt: skip
    return WorkerView(**(values | changes))


def facts(start, end, *, schedules=None, instant=None, **changes):
    own = [schedule()] if schedules is None else schedules
    span = WhySpan(start=start, end=end, instant=instant)
    planned, begin = planned_in(own, span)
    before, after = neighbours(own, span)
    values = {
        "task": task(), "now": NOW, "span": span, "schedules": own, "planned": planned, "before": before,
        "after": after, "narrowed": begin > start, "policies": {1: Policy(metered=False)},
    }  # fmt: skip
    return WhyFacts(**(values | changes))

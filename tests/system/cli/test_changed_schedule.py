"""A planner comes between a changed schedule's first look and its write: no slot has two fates."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

PATIENCE = 30.0
CURSOR = "select generation, cursor, next_at from schedules"
TWICE = "select count(*), count(distinct slot_at) from runs"


def row(house, query):
    with closing(sqlite3.connect(f"file:{house.database}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchone()


def until(test):
    end = time.monotonic() + PATIENCE
    while not (found := test()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def is_stopped(process):
    assert process.poll() is None, process.communicate()
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_what_a_planner_planned_meanwhile_is_not_planned_again(house):
    create = ("task", "create", "job", "--call", "work:patient", "--every", "1s")
    house.json(*create, "--overlap", "queue_all")
    until(lambda: row(house, CURSOR)[2] < time.time() * 1_000_000)
    change = subprocess.Popen(
        house._command(["task", "edit", "job", "--every", "2s", "--json"]), cwd=house.folder,
        env=house._environment({"ROTA_FAULT": "apply_plans.begin:1:stop"}),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until(lambda: is_stopped(change))
        before = row(house, CURSOR)
        daemon = house.up("--port", "0")
        until(lambda: row(house, CURSOR)[1] >= before[1] + 3_000_000)
        change.send_signal(signal.SIGCONT)
        said, fault = change.communicate(timeout=PATIENCE)
    finally:
        change.kill()
        change.wait(PATIENCE)
    assert change.returncode == 0, (said, fault)
    generation, cursor, _ = row(house, CURSOR)
    assert generation == before[0] + 1
    until(lambda: row(house, CURSOR)[1] > cursor)
    planned, instants = row(house, TWICE)
    assert planned == instants > 3
    assert json.loads(house.rota("verify", "--json").stdout)["violations"] == []
    (house.folder / "go").touch()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0

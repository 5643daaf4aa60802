"""The real daemon, killed for real: nothing acknowledged is lost, doubled or stranded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORST = [
    ("plan.advanced", "claim_runs.committed", "attempt.end", "settle.commit", "settle.committed"),
    (
        "fence_workers.committed",
        "renew_worker.commit",
        "delivery.sent",
        "put_schedule.commit",
        "enqueue.committed",
    ),
]
"""Where a kill hurts most; `make test-crash` kills everywhere."""
NOT_ALONE = {"fence_workers.committed"}
"""What nobody comes to who has a database alone."""
CHECKED = ("check.begin", "check.looked", "check.end")
KEPT = ("kept.written", "kept.started", "record_output.committed", "kept.adopted", "mailbox.served")
LONGEST_SECONDS = 110


MEMORY = Path("/dev/shm")
"""SIGKILL loses nothing that the kernel has, so a folder in memory is as good as one on disk."""


def crash(*words):
    command = [sys.executable, "-m", "tests.tools.crash", *words]
    quick = {"TMPDIR": str(MEMORY)} if MEMORY.is_dir() else {}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
        env={**os.environ, **quick},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("points", WORST, ids=lambda points: points[0])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_kill_loses_nothing(store, points, request):
    if store == "postgres":
        request.getfixturevalue("postgres_server")
    reached = [point for point in points if store == "postgres" or point not in NOT_ALONE]
    named = [word for point in reached for word in ("--point", point)]
    assert crash("--store", store, "--chain", *named)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_programs_go_on_whoever_dies(store, request):
    if store == "postgres":
        request.getfixturevalue("postgres_server")
    named = [word for point in KEPT for word in ("--point", point)]
    assert crash("--store", store, "--chain", *named)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_who_asks_is_answered_once_whoever_dies(store, request):
    if store == "postgres":
        request.getfixturevalue("postgres_server")
    assert crash("--store", store, "--asking", "--part", "3/8")


@pytest.mark.programs
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_check_is_looked_at_again_whoever_dies(store, request):
    if store == "postgres":
        request.getfixturevalue("postgres_server")
    named = [word for point in CHECKED for word in ("--point", point)]
    assert crash("--store", store, "--chain", *named)


def test_an_outage_of_postgresql_loses_nothing(postgres_server, tmp_path):
    record = tmp_path / "record.jsonl"
    assert crash("--store", "server", "--outages", "3", "--record", str(record))


def test_a_daemon_started_from_nothing_is_killed_the_same_way():
    assert crash("--store", "sqlite", "--point", "settle.commit", "--hits", "1", "--cold")

"""Timeouts through the daemon: hard, idle and grace, and no second attempt beside the first."""

from __future__ import annotations

import os
import time

import pytest

from tests.system.attempt.family import WORDS, together

FINISHED = {"succeeded", "failed", "cancelled", "expired"}


def ended(run):
    return run["state"] in FINISHED


@pytest.fixture
def family(kept):
    """A program whose children, double-forked and in sessions of their own, do not want to end."""
    (kept.work / "family.py").write_text(WORDS)
    kept.token = f"token-{os.getpid()}-{time.monotonic_ns()}"
    return ("python3", "family.py", kept.token)


@pytest.mark.parametrize("kind", ["timeout", "idle-timeout"])
def test_a_retry_finds_nothing_of_the_attempt_that_timed_out(kept, family, kind):
    kept.create(
        "family", *family, **{kind: "2s"}, grace="200ms", retry="2", **{"retry-base": "10ms"}
    )
    kept.up()
    number = kept.json("run", "family")["run"]
    run = kept.until(number, ended)
    assert (run["state"], run["error_code"]) == ("failed", "timeout")
    assert not together(kept.work)
    assert kept.living() == []
    for attempt in run["attempts"]:
        reason = "hard_timeout" if kind == "timeout" else "idle_timeout"
        assert attempt["ending"]["reason"] == reason
        assert (attempt["ending"]["killed"], attempt["ending"]["proven"]) == (True, True)
    assert "killed" in kept.rota("run", str(number)).stdout


def test_output_of_either_stream_puts_the_idle_timeout_off(kept):
    (kept.work / "talk.py").write_text(
        "import sys, time\n"
        "for n in range(6):\n"
        "    print(n, file=sys.stdout if n % 2 else sys.stderr, flush=True)\n"
        "    time.sleep(0.3)\n"
        "time.sleep(60)\n"
    )
    kept.create("talk", "python3", "talk.py", **{"idle-timeout": "1s"}, timeout="30s", grace="1s")
    kept.up()
    run = kept.until(kept.json("run", "talk")["run"], ended)
    (attempt,) = run["attempts"]
    assert attempt["ending"]["reason"] == "idle_timeout"
    assert attempt["ending"]["killed"] is False
    assert "wrote nothing for 1 s" in run["error"]
    assert (attempt["ending"]["out_bytes"], attempt["ending"]["err_bytes"]) == (6, 6)


def test_the_earlier_timeout_wins_though_the_program_talks(kept):
    (kept.work / "chat.py").write_text(
        "import time\nwhile True:\n    print('.', flush=True)\n    time.sleep(0.05)\n"
    )
    kept.create(
        "chat", "python3", "chat.py", **{"idle-timeout": "10s"}, timeout="700ms", grace="1s"
    )
    kept.up()
    run = kept.until(kept.json("run", "chat")["run"], ended)
    assert run["attempts"][0]["ending"]["reason"] == "hard_timeout"


def test_a_task_shows_its_timeouts_and_a_callable_has_only_one(kept):
    task = kept.create("slow", "true", **{"idle-timeout": "2m"}, grace="5s", timeout="1h")
    policy = task["policy"]
    assert (policy["timeout"], policy["idle_timeout"], policy["grace"]) == (3600.0, 120.0, 5.0)
    shown = kept.rota("task", "show", "slow").stdout
    assert "timeout 1 h, idle timeout 2 min, grace 5 s" in shown
    refused = kept.rota("task", "create", "f", "--call", "work:stubborn", "--idle-timeout", "2m")
    assert refused.returncode != 0
    assert "a callable has no output: use timeout" in refused.stderr

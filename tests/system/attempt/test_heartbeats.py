"""Heartbeats of a real daemon: what is heard, who shows it, and what a silent keeper comes to."""

from __future__ import annotations

import os
import signal

from rota.flow.attempt.output import OutputParser
from rota.flow.attempt.programs import FollowedAttempt, KeeperWatchdog
from rota.keeper.monitor import _stat
from rota.keeper.protocol import from_lines, to_lines
from rota.model.attempts import ExitReason
from tests.system.keeper.homes import sleeping

SOON = {"ROTA_HEARTBEAT": "1s"}
TALKER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
print("\\x1b[31mhalf way\\x1b[0m", flush=True)
while not __import__("pathlib").Path("go").exists():
    time.sleep(0.05)
child.kill()
"""


def heard(run):
    beat = run["heartbeat"]
    return beat is not None and beat["last_line"] == "half way" and (beat["cpu_seconds"] or 0) > 0.2


def test_a_running_program_is_told_of(kept):
    (kept.work / "talk.py").write_text(TALKER)
    kept.create("talk", "python3", "talk.py")
    kept.extra = SOON
    kept.up()
    number = kept.json("run", "talk")["run"]
    run = kept.until(number, heard)
    beat = run["heartbeat"]
    assert (beat["alive"], beat["state"], beat["attempt"], beat["missed_reason"]) == (
        True, "running", 1, None,
    )  # fmt: skip
    assert beat["processes"] >= 2
    assert beat["memory_bytes"] > 1024 * 1024
    assert beat["output_at"] is not None
    assert not [event for event in run["events"] if "heart" in event["name"]]
    shown = kept.rota("run", str(number)).stdout
    assert "half way" in shown
    assert "MiB" in shown
    assert "last heartbeat" in kept.rota("why", str(number)).stdout
    assert "last heartbeat" in kept.rota("why", "talk").stdout
    kept.go()
    assert kept.until(number, lambda run: run["state"] == "succeeded")


def test_a_function_in_this_process_is_told_of_too(kept):
    kept.json("task", "create", "patient", "--call", "work:patient")
    kept.extra = SOON
    kept.up()
    number = kept.json("run", "patient")["run"]
    run = kept.until(number, lambda run: run["heartbeat"] is not None)
    beat = run["heartbeat"]
    assert (beat["alive"], beat["state"], beat["pid"], beat["last_line"]) == (
        True, "running", None, None,
    )  # fmt: skip
    (kept.house.folder / "go").touch()
    kept.until(number, lambda run: run["state"] == "succeeded")


class Mute:
    def feed(self, line, *, cut=False):
        return ()


async def test_a_stopped_keeper_is_woken_and_the_program_goes_on(tmp_path):
    async with sleeping(tmp_path) as (yard, kept, sign):
        followed = {1: FollowedAttempt(kept, OutputParser(Mute()))}
        watch = KeeperWatchdog(yard, least=0.0)
        os.kill(sign.pid, signal.SIGSTOP)
        assert [(await watch.look(followed))[0].state for _ in range(2)] == ["running", "silent"]
        assert _stat(sign.pid)[0] != b"T"
        assert watch.ended == {}
        assert yard.exit_record(kept) is None


async def test_a_keeper_that_stays_silent_is_ended_with_its_tree(tmp_path):
    async with sleeping(tmp_path) as (yard, kept, sign):
        followed = {1: FollowedAttempt(kept, OutputParser(Mute()))}
        watch = KeeperWatchdog(yard, least=0.0)
        for _ in range(3):
            os.kill(sign.pid, signal.SIGSTOP)
            await watch.look(followed)
        assert list(watch.ended) == [1]
        while (ending := yard.exit_record(kept)) is None:
            await yard.wait_for_change(kept, 0.05)
        assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, True)
        assert not (await yard.take_sample(kept)).alive


async def test_a_number_that_went_to_another_process_is_told_apart(tmp_path):
    async with sleeping(tmp_path) as (yard, kept, sign):
        (folder,) = (tmp_path / "home" / "keepers" / "attempts").iterdir()
        facts, _ = from_lines((folder / "keeper").read_bytes())
        other = {**facts, "pid": os.getpid()}  # alive, but it began at another time
        (folder / "keeper").write_bytes(to_lines(other))
        seen = await yard.take_sample(kept)
        assert (seen.alive, seen.state, seen.pid) == (False, "gone", None)
        assert not yard.wake(kept, for_good=True)
        (folder / "keeper").write_bytes(to_lines(facts))
        assert (await yard.take_sample(kept)).pid == sign.pid

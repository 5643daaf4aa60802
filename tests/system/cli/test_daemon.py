from __future__ import annotations

import json
import os
import resource
import signal
import subprocess


def test_samples_run_within_seconds_and_people_can_read_it(house):
    daemon = house.up("--samples", ROTA_LOG_FORMAT="text")
    line = daemon.log.wait("hello", "succeeded")
    assert "run 1" in line
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert daemon.out.seen[0] == "Rota is running."
    assert {task["name"] for task in house.json("task", "list")["tasks"]} == {
        "hello",
        "count",
        "flaky",
        "summary",
    }


def test_a_run_asked_for_by_another_process_is_done_and_logged_as_json(house):
    daemon = house.up()
    house.json("task", "create", "hello", "--call", "rota.samples:hello")
    house.json("task", "run", "hello")
    line = json.loads(daemon.log.wait("run.settled"))
    assert (line["task"], line["outcome"], line["run_id"]) == ("hello", "succeeded", 1)
    stem, _, number = line["trace_id"].partition("-")
    assert (len(stem), number) == (8, "1")
    status = house.json("status")
    assert status["warnings"] == []
    assert status["workers"][0]["alive"] is True


def test_a_schedule_made_by_another_process_fires(house):
    daemon = house.up()
    house.json("task", "create", "tick", "--call", "rota.samples:hello", "--every", "1s")
    daemon.log.wait("run.settled", "tick")
    daemon.log.wait("run.settled", "tick")


def test_a_second_daemon_is_refused_and_the_first_goes_on(house):
    first = house.up()
    second = house.rota("up")
    assert second.returncode == 6
    assert second.stdout == ""
    last = second.stderr.splitlines()[-1]
    assert last.startswith(f"rota: another Rota (process {first.process.pid}) has this database")
    house.json("task", "create", "hello", "--call", "rota.samples:hello")
    house.json("task", "run", "hello")
    first.log.wait("run.settled", "hello")
    assert house.rota("once").returncode == 6


def test_sigterm_lets_a_run_end(house):
    daemon = house.up()
    house.json("task", "create", "patient", "--call", "work:patient")
    house.json("task", "run", "patient")
    daemon.out.wait("begun 1")
    daemon.signal(signal.SIGTERM)
    daemon.log.wait("daemon.draining", '"running": 1')
    (house.folder / "go").touch()
    assert daemon.wait() == 0
    assert house.json("run", "1")["state"] == "succeeded"
    assert not house.database.with_name("rota.db.wake").exists()


def test_a_run_past_the_bound_is_given_back(house):
    daemon = house.up(ROTA_DRAIN="100ms")
    house.json("task", "create", "patient", "--call", "work:patient")
    house.json("task", "run", "patient")
    daemon.out.wait("begun 1")
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 0
    run = house.json("run", "1")
    assert (run["state"], run["cause"]) == ("queued", "released")


def test_a_function_that_cannot_be_stopped_does_not_keep_the_daemon(house):
    daemon = house.up(ROTA_DRAIN="100ms")
    house.json("task", "create", "stubborn", "--call", "work:stubborn", "--on-lost", "fail")
    house.json("task", "run", "stubborn")
    daemon.out.wait("begun")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert house.rota("once").returncode == 0
    run = house.json("run", "1")
    assert (run["state"], run["error_code"]) == ("failed", "lost")


def test_a_second_interrupt_stops_at_once(house):
    daemon = house.up()
    house.json("task", "create", "hangs", "--call", "work:first_hangs")
    house.json("task", "run", "hangs")
    daemon.out.wait("begun 1")
    daemon.signal(signal.SIGINT)
    daemon.log.wait("daemon.draining")
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 130
    assert house.rota("once").returncode == 0
    run = house.json("run", "1")
    assert (run["state"], run["attempt"], run["cause"]) == ("succeeded", 2, "lost")


def test_a_killed_daemon_finishes_its_run_after_a_restart(house):
    daemon = house.up()
    house.json("task", "create", "hangs", "--call", "work:first_hangs")
    house.json("task", "run", "hangs")
    daemon.out.wait("begun 1")
    daemon.signal(signal.SIGKILL)
    assert daemon.wait() == -signal.SIGKILL
    again = house.up()
    again.out.wait("begun 2")
    line = json.loads(again.log.wait("run.settled"))
    assert (line["outcome"], line["attempt"]) == ("succeeded", 2)
    attempts = house.json("run", "1")["attempts"]
    assert [a["outcome"] for a in attempts] == ["lost", "succeeded"]


def test_a_killed_daemon_is_known_to_be_gone_at_once(house):
    daemon = house.up()
    house.json("task", "create", "hello", "--call", "rota.samples:hello", "--every", "1h")
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    status = house.json("status")
    assert [worker["alive"] for worker in status["workers"]] == [False]
    assert [warning["code"] for warning in status["warnings"]] == ["no_worker"]
    assert status["idle"] == "no worker is running: start `rota up`"
    said = house.rota("run", "hello")
    assert said.stderr.splitlines() == ["No worker is running: start `rota up`."]
    assert "no worker is running, start `rota up`" in house.rota("why", "hello").stdout
    assert "start `rota up`" in house.rota("doctor").stdout


def test_a_stopped_daemon_is_to_be_started_and_not_doubled(house):
    daemon = house.up()
    house.json("task", "create", "hello", "--call", "rota.samples:hello")
    house.json("stop")
    daemon.log.wait("daemon.idle")
    said = house.rota("run", "hello")
    assert said.stderr == "The daemon is stopped: run `rota start`.\n"
    for words in (["status"], ["why", "hello"], ["doctor"]):
        told = house.rota(*words).stdout
        assert "`rota start`" in told, words
        assert "rota up" not in told, words
    house.json("start")
    daemon.log.wait("run.settled", "hello")


def test_a_running_run_is_cancelled_from_another_process(house):
    daemon = house.up()
    house.json("task", "create", "patient", "--call", "work:patient")
    house.json("task", "run", "patient")
    daemon.out.wait("begun 1")
    assert house.json("cancel", "1")["cancel_requested_at"] is not None
    daemon.log.wait("run.settled", "cancelled")
    assert house.json("run", "1")["state"] == "cancelled"


def test_explicit_limits_win_at_every_start_and_defaults_only_fill_gaps(house):
    house.json("limit", "set", "pool", "background", "--cap", "9")
    daemon = house.up(ROTA_LIMIT_FOREGROUND="7")
    found = {(x["scope"], x["key"]): x["cap"] for x in house.json("limit", "list")["limits"]}
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert found == {
        ("pool", "background"): 9,
        ("pool", "foreground"): 7,
        ("space", "background"): 1,
        ("space", "foreground"): 2,
        ("space", "queued"): 1000,
        ("space", "schedules"): 200,
    }


def test_logs_follow_a_run_to_its_end(house):
    house.json("task", "create", "slow", "--call", "work:patient")
    house.up("--port", "0")
    number = str(house.json("run", "slow")["run"])
    follower = subprocess.Popen(
        house._command(["logs", number, "-f", "--json"]),
        cwd=house.folder, env=house._environment({}), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    (house.folder / "go").touch()
    out, _ = follower.communicate(timeout=30)
    assert follower.returncode == 0
    names = [json.loads(line)["name"] for line in out.splitlines()]
    assert names[-1] == "run.settled"
    assert house.rota("logs", number).stdout.startswith(f"run {number} of slow\n")


def test_the_first_start_imports_the_tasks_of_the_home_and_later_ones_nothing(house):
    house.home.mkdir(mode=0o700)
    file = house.home / "tasks.toml"
    file.write_text('[tasks.hello]\ncall = "rota.samples:hello"\nschedule = "every day at 7:00"\n')
    daemon = house.up()
    assert "hello: created" in daemon.out.seen
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    file.write_text('[tasks.other]\ncall = "rota.samples:hello"\n')
    house.up()
    assert [task["name"] for task in house.json("task", "list")["tasks"]] == ["hello"]


def test_a_daemon_may_open_more_files_than_usual_and_its_programs_may_not(house):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        daemon = house.up()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[0] > 512
    house.json("task", "create", "limit", "--shell", "--command", "ulimit -Sn")
    house.json("task", "run", "limit")
    daemon.log.wait("run.settled", "limit")
    assert house.json("run", "1")["result"] == "512"


def test_the_doctor_tells_which_programs_the_daemon_finds(house):
    for name in ("daemons", "terminals"):
        program = house.folder / f"of-{name}" / f"only-{name}"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        house.rota("task", "create", name, "--command", program.name)
    usual = os.environ["PATH"]
    house.up("--port", "0", PATH=f"{house.folder}/of-daemons:{usual}")
    done = house.rota("doctor", "--json", PATH=f"{house.folder}/of-terminals:{usual}")
    found = json.loads(done.stdout)["findings"]
    end = "is not on the PATH of the daemon, needed by the task terminals"
    told = [each["message"] for each in found if each["code"] == "programs"]
    assert told == [f"the program only-terminals {end}"]


def test_waiting_tells_why_a_run_is_still_queued(house):
    daemon = house.up("--port", "0")
    house.rota("limit", "set", "space", "background", "--cap", "0")
    house.rota("task", "create", "held", "--command", "true")
    done = house.rota("run", "held", "--wait", "--timeout", "1s")
    assert done.returncode == 8
    reason = "the limit of 0 runs for one space in the background pool is reached; to change it:"
    command = "`rota limit set space background --cap N`"
    assert "is still queued: in the queue for " in done.stderr
    assert f"{reason} {command}. To follow it: rota logs" in done.stderr
    assert f"{reason} {command}" in house.rota("run", "1").stdout
    (house.folder / "bad.py").write_text("def fail(run):\n    raise OSError('again')\n")
    retries = ("--retry", "2", "--retry-base", "1h")
    house.rota("task", "create", "bad", "--call", "bad:fail", *retries)
    house.rota("run", "bad")
    daemon.log.wait("run.settled", "bad")
    done = house.rota("run", "2", "--wait", "--timeout", "1s")
    assert done.returncode == 8
    assert done.stderr.count("attempt 1 failed; it is retried at ") == 2

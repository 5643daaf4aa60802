"""A callable in a child process: its result comes back, and it can be stopped for certain."""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from rota.doors.library.client import Rota
from rota.errors import Invalid
from rota.executors.inprocess.child import path_of
from rota.model.states import RunState

WORK = """
import os, sys, time

def add(run):
    run.send("added", to="log:")
    return sum(run.payload)

async def where(run):
    return os.getpid()

def fail(run):
    raise ValueError("no luck")

def vanish(run):
    os._exit(3)

def chatter(run):
    print("x" * 200_000)
    return "done"

def bad(run):
    return {1, 2}

def sleep(run):
    open(run.payload, "w").write(str(os.getpid()))
    time.sleep(600)

async def ask(run):
    return await run.ask("Go on?")

def about(run):
    names = ("ROTA_RUN_ID", "ROTA_TASK", "ROTA_TRACE_ID")
    return {"told": [os.environ[name] for name in names], "trace": run.trace_id}
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    name = f"isolated_work_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


async def run_one(function, payload=None, **options):
    rota = Rota("memory:")
    rota.task("job", isolate=True, **options)(function)
    async with rota:
        run_id = await rota.enqueue("job", payload)
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        return run, await rota.store.list_deliveries(run_id, 10)


async def test_the_result_and_the_messages_come_back(work):
    run, deliveries = await run_one(work.add, [1, 2, 3])
    assert (run.state, run.result) == (RunState.SUCCEEDED, "6")
    assert [delivery.body for delivery in deliveries] == ["added"]


async def test_no_file_in_the_current_folder_takes_the_place_of_a_module(
    work, tmp_path, monkeypatch
):
    left = tmp_path / "left"
    left.mkdir()
    for name in ("json", "asyncio", "sitecustomize", "conftest"):
        (left / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(left)
    run, _ = await run_one(work.add, [1, 2, 3])
    assert (run.state, run.result) == (RunState.SUCCEEDED, "6")


async def test_it_runs_in_another_process(work):
    run, _ = await run_one(work.where)
    assert int(run.result) != os.getpid()


async def test_its_environment_says_which_run_it_works_for(work):
    run, _ = await run_one(work.about)
    found = json.loads(run.result)
    assert found["told"] == [str(run.id), "job", found["trace"]]
    stem, number = found["trace"].split("-")
    assert (len(stem), number) == (8, str(run.id))


async def test_what_it_raises_is_its_failure(work):
    run, _ = await run_one(work.fail)
    assert run.state is RunState.FAILED
    assert run.error.startswith("ValueError: no luck")


async def test_an_end_without_a_result_is_a_failure(work):
    run, _ = await run_one(work.vanish)
    assert (run.state, run.error_code) == (RunState.FAILED, "exit")


async def test_what_it_prints_is_not_its_result(work):
    run, _ = await run_one(work.chatter)
    assert run.result == '"done"'


async def test_a_result_that_is_not_json_fails(work):
    run, _ = await run_one(work.bad)
    assert (run.state, run.error_code) == (RunState.FAILED, "bad_result")


async def test_it_may_ask(work):
    run, _ = await run_one(work.ask)
    assert run.state is RunState.WAITING


async def test_past_its_timeout_its_process_is_gone(work, tmp_path):
    marker = tmp_path / "pid"
    run, _ = await run_one(work.sleep, str(marker), timeout=timedelta(seconds=2))
    assert (run.state, run.error_code) == (RunState.FAILED, "timeout")
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_a_callable_that_a_child_cannot_import_is_refused():
    def local(run):
        return None

    with pytest.raises(Invalid, match="importable module"):
        path_of(local)


PARENT = """
import asyncio, sys
from rota.doors.library.client import Rota
from {module} import sleep

async def main():
    rota = Rota("memory:")
    rota.task("job", isolate=True)(sleep)
    async with rota:
        await rota.enqueue("job", sys.argv[1])
        await rota.work()

asyncio.run(main())
"""


def test_a_child_does_not_outlive_a_killed_parent(work, tmp_path):
    program, told = tmp_path / "parent.py", tmp_path / "pid"
    program.write_text(PARENT.format(module=work.__name__))
    os.mkfifo(told)
    parent = subprocess.Popen([sys.executable, str(program), str(told)])
    child = os.pidfd_open(int(told.read_text()))
    try:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        ended, _, _ = select.select([child], [], [], 10.0)
        assert ended, "the child works on though nobody waits for it"
    finally:
        if not ended:
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)

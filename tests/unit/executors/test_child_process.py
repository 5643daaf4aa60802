"""A callable in a child process: its result comes back, and it can be stopped for certain."""

import asyncio
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from rota.errors import Invalid
from rota.executors.inprocess.child_process import path_of
from rota.library.rota import Rota
from rota.model.runs import RunState
from rota.store.views import list_deliveries

WORK = """
import atexit, os, sys, time

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

def hold(run):
    begun, go_on = run.payload
    open(begun, "w").write("begun")
    open(go_on).read()

def send(run):
    for _ in range(run.payload):
        run.send("x" * 60_000, to="log:")

def daemonise(run):
    if os.fork() == 0:
        os.setsid()
        open(run.payload).read()
        os._exit(0)
    return "done"

def crash(run):
    atexit.register(os._exit, 7)
    return "done"
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
        return run, await rota.store.read(list_deliveries, run_id, 10)


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


@pytest.fixture
def fifo(tmp_path):
    def made(name):
        os.mkfifo(tmp_path / name)
        return tmp_path / name

    return made


async def written_to(path):
    """Wait, without a thread, until somebody writes to a FIFO."""
    loop, written = asyncio.get_running_loop(), asyncio.Event()
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    loop.add_reader(reader, written.set)
    try:
        await written.wait()
    finally:
        loop.remove_reader(reader)
        os.close(reader)


async def test_one_that_works_holds_no_thread_that_others_need(work, fifo):
    begun, go_on = fifo("begun"), fifo("go on")
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        working = group.create_task(run_one(work.hold, [str(begun), str(go_on)]))
        await written_to(begun)
        await asyncio.to_thread(go_on.write_text, "")
        run, _ = await working
    assert run.state is RunState.SUCCEEDED


async def test_much_that_it_sends_is_sent(work):
    run, deliveries = await run_one(work.send, 30)
    assert (run.state, run.error) == (RunState.SUCCEEDED, None)
    assert len(deliveries) == 10


async def test_one_that_sends_too_much_is_told_so(work):
    run, deliveries = await run_one(work.send, 300)
    assert (run.state, run.error_code) == (RunState.FAILED, "bad_result")
    assert "at most 16 MiB are allowed" in run.error
    assert deliveries == []


async def test_it_ends_with_its_process_though_a_daemon_of_its_own_goes_on(work, fifo):
    held = fifo("held")
    try:
        async with asyncio.timeout(20):
            run, _ = await run_one(work.daemonise, str(held))
    finally:
        await asyncio.to_thread(held.write_text, "")  # the daemon ends
    assert (run.state, run.result) == (RunState.SUCCEEDED, '"done"')


async def test_what_it_came_to_counts_though_its_process_ends_badly(work):
    run, _ = await run_one(work.crash)
    assert (run.state, run.result) == (RunState.SUCCEEDED, '"done"')


def test_a_callable_that_a_child_cannot_import_is_refused():
    def local(run):
        return None

    with pytest.raises(Invalid, match="importable module"):
        path_of(local)


PARENT = """
import asyncio, sys
from rota.library.rota import Rota
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

"""The yard of a home and its keepers, as a daemon has them."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import pytest

from rota.errors import Exhausted
from rota.executors.process.executor import ProcessExecutor
from rota.keeper.build import Interpreter
from rota.keeper.linux import children, start_time
from rota.keeper.protocol import from_lines
from rota.model.attempts import ExitReason, OutputStream
from rota.ports.agent import WorkspaceFile
from rota.ports.executor import ProcessTreeMode
from tests.system.keeper.homes import a_home, sleeping


class Guarded(ProcessExecutor):
    """A machine without PID namespaces: a guard gathers strays, and two kills outwit it."""

    def wrap(self, command, room):
        return replace(super().wrap(command, room), tree=ProcessTreeMode.GUARD)


GUARDED = Guarded(Interpreter.running(), hierarchy=None, certain_kill=False)
HELD = """
import ctypes, sys
SEIZE, AT_EXIT = 0x4206, 0x40
held = ctypes.CDLL(None).ptrace(SEIZE, int(sys.argv[1]), 0, AT_EXIT) == 0
print("held" if held else "refused", flush=True)
sys.stdin.read()
"""
"""Keeps a process from being gone, however often it is killed."""


@contextmanager
def no_more_files():
    """Let this process open no file."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_wish_that_no_disk_takes_is_said_by_a_signal(tmp_path):
    async with a_home(tmp_path) as home:
        kept = home.next_try()
        await home.start(kept, "sleep", "60")
        await home.runs(kept)
        wish = home.attempt(kept) / "cancel"
        wish.unlink()
        wish.mkdir()
        home.yard.cancel(kept, 0.0, "stop")
        assert (await home.ending(kept)).reason is ExitReason.KEEPER_SIGTERM


async def test_a_machine_that_has_run_out_of_something_is_told_of(tmp_path):
    async with a_home(tmp_path) as home:
        before, first = bells(), home.next_try()
        with no_more_files(), pytest.raises(Exhausted, match="Too many open files"):
            await home.start(first, "true")
        assert bells() == before
        ending = await home.ending(first)
        assert (ending.reason, ending.proven) == (ExitReason.LOST_NEVER_STARTED, True)
        kept = home.next_try()
        await home.start(kept, "true")
        assert (await home.ending(kept)).code == 0


async def test_a_later_try_that_could_not_be_started_is_not_taken_for_unbegun(tmp_path):
    async with a_home(tmp_path) as home:
        later = replace(home.next_try(), launches=1)
        with no_more_files(), pytest.raises(OSError, match="Too many open files"):
            await home.start(later, "true")


async def test_a_wish_that_could_not_be_said_is_not_taken_for_said(tmp_path):
    async with sleeping(tmp_path) as (yard, kept, _):
        with no_more_files(), pytest.raises(OSError, match="Too many open files"):
            yard.cancel(kept, 0.0, "stop")


@pytest.mark.parametrize(
    "leave", [os.mkfifo, lambda path: path.symlink_to("/dev/null")], ids=["fifo", "link"]
)
async def test_whatever_an_earlier_try_left_a_file_is_put_in_its_place(tmp_path, leave):
    async with a_home(tmp_path) as home:
        (home.folder / "files").mkdir()
        leave(home.folder / "files" / "words")
        kept = home.next_try()
        words = WorkspaceFile(name="words", content=b"told\n")
        await home.start(kept, "cat", str(home.folder / "files" / "words"), files=(words,))
        assert (await home.ending(kept)).code == 0
        assert home.yard.read_output(kept, OutputStream.OUT, 0, 10) == b"told\n"


def bells():
    gc.collect()
    return sum(isinstance(each, asyncio.Event) for each in gc.get_objects())


async def test_no_bell_is_left_of_what_has_ended(tmp_path):
    """Of a gate, a check or an earlier attempt nobody says that it is forgotten."""
    async with a_home(tmp_path) as home:
        before = bells()
        for _ in range(3):
            kept = home.next_try()
            await home.start(kept, "true")
            await home.ending(kept)
        assert bells() == before


async def test_a_keeper_whose_disk_takes_no_beat_is_not_silent(tmp_path):
    async with a_home(tmp_path) as home:
        kept = home.next_try()
        await home.start(kept, "sh", "-c", "read word; exec sleep 60", keep_stdin_open=True)
        before = await home.runs(kept)
        resource.prlimit(before.pid, resource.RLIMIT_FSIZE, (0, 0))
        home.yard.write_input(kept, 0, b"word\n")
        async with asyncio.timeout(10.0):
            while (after := await home.yard.take_sample(kept)).heartbeat == before.heartbeat:
                await home.yard.wait_for_change(kept, 1.0)
        assert after.heartbeat > before.heartbeat


@asynccontextmanager
async def undying(pid):
    """Let a process not die until it may."""
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-c", HELD, str(pid))
    holder = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    try:
        if await holder.stdout.readline() != b"held\n":
            pytest.skip("no process may hold another here")
        yield
    finally:
        holder.stdin.close()
        await holder.wait()


async def test_a_tree_that_does_not_die_holds_nobody_up_and_is_not_over_before(tmp_path):
    async with a_home(tmp_path, GUARDED) as home:
        kept = home.next_try()
        await home.start(kept, "sleep", "60")
        await home.runs(kept)
        facts, _ = from_lines((home.attempt(kept) / "keeper").read_bytes())
        keeper, guard = int(facts["pid"]), int(facts["inner"])
        (program,) = children(guard)
        clock = asyncio.get_running_loop().time
        async with undying(program):
            os.kill(guard, signal.SIGSTOP)
            for pid in (keeper, guard):
                os.kill(pid, signal.SIGKILL)
            longest, end = 0.0, clock() + 1.0
            while (before := clock()) < end:
                assert home.yard.exit_record(kept) is None
                longest = max(longest, clock() - before)
                await home.yard.wait_for_change(kept, 0.05)
        assert longest < 0.5
        ending = await home.ending(kept)
        assert (ending.reason, ending.proven) == (ExitReason.LOST_KEEPER_DIED, False)
        assert start_time(program) == 0

"""Cleanup: processes found by their marker, and folders that nobody needs any more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from rota.errors import Unavailable
from rota.keeper.cleanup import (
    RETENTION_SECONDS,
    UNSWEPT,
    CleanupThread,
    find_uncleaned,
    kill_marked,
    marked_processes,
    reap_keeper,
    remove_old_folders,
)
from rota.keeper.home import LocalKeeperHome
from rota.keeper.linux import children, descendants, parent, send_signal, start_time
from rota.keeper.workspace import FolderLocks, attempt_folder_name, egress_name
from rota.model.attempts import KeptAttempt

# folders

NOW = 1_700_000_000.0
LONG_AGO = NOW - RETENTION_SECONDS - 1


def kept(run_id):
    nonce = f"{run_id:016x}"
    return KeptAttempt(
        run_id=run_id, epoch=1, home="here", nonce=nonce, boot="boot", executor="process"
    )  # fmt: skip


@pytest.fixture
def keepers(tmp_path):
    for name in ("attempts", "rooms", "mailboxes"):
        (tmp_path / name).mkdir()
    (tmp_path / "lease").touch()
    os.utime(tmp_path / "lease", (NOW, NOW))
    return tmp_path


def claims(keepers):
    return FolderLocks(keepers / "rooms", keepers / "spaces", ())


def leave(keepers, one, at, *, ended=True):
    """Leave the folders of an attempt behind, and return their paths."""
    attempt = keepers / "attempts" / attempt_folder_name(one)
    attempt.mkdir()
    if ended:
        (attempt / "exit").touch()
        os.utime(attempt / "exit", (at, at))
    beside = [
        keepers / name / egress_name(one.run_id, one.epoch) for name in ("rooms", "mailboxes")
    ]
    for folder in beside:
        folder.mkdir()
        os.utime(folder, (at, at))
    return [attempt, *beside]


def test_what_ended_long_ago_and_is_not_known_goes(keepers):
    left = leave(keepers, kept(1), LONG_AGO)
    remove_old_folders(keepers, [], claims(keepers))
    assert not [path for path in left if path.exists()]


def test_what_is_known_stays_however_old(keepers):
    left = leave(keepers, kept(1), LONG_AGO)
    remove_old_folders(keepers, [kept(1)], claims(keepers))
    assert all(path.exists() for path in left)


def test_what_has_just_ended_stays(keepers):
    left = leave(keepers, kept(1), NOW)
    remove_old_folders(keepers, [], claims(keepers))
    assert all(path.exists() for path in left)


def test_an_attempt_without_an_ending_is_not_taken_away(keepers):
    attempt, *_ = leave(keepers, kept(1), LONG_AGO, ended=False)
    remove_old_folders(keepers, [], claims(keepers))
    assert attempt.exists()


def not_swept(keepers, one, **left):
    """Leave an attempt behind whose executor may have left something."""
    attempt, *_ = leave(keepers, one, LONG_AGO, **left)
    (attempt / UNSWEPT).write_text("container")
    return attempt


def test_what_is_not_swept_stays_until_it_is(keepers):
    attempt = not_swept(keepers, kept(1))
    remove_old_folders(keepers, [], claims(keepers))
    assert attempt.exists()
    (attempt / UNSWEPT).unlink()
    remove_old_folders(keepers, [], claims(keepers))
    assert not attempt.exists()


def test_only_what_has_ended_unknown_and_unswept_is_still_to_be_swept(keepers):
    not_swept(keepers, kept(1))
    not_swept(keepers, kept(2), ended=False)
    not_swept(keepers, kept(3))
    leave(keepers, kept(4), LONG_AGO)
    (left,) = find_uncleaned(keepers, "here", [kept(3)])
    assert left == replace(kept(1), boot="", executor="container")


class Engine:
    """An executor that ends what is left as soon as it answers."""

    def __init__(self):
        self.answers = False

    def sweep(self, spec):
        if not self.answers:
            raise Unavailable(f"it does not answer for {spec.name}")


async def test_an_executor_is_remembered_until_it_has_swept(tmp_path):
    engine = Engine()
    yard = LocalKeeperHome(tmp_path, "here", {"container": engine})
    keepers = tmp_path / "keepers"
    for name in ("attempts", "rooms", "mailboxes"):
        (keepers / name).mkdir(parents=True)
    attempt = not_swept(keepers, kept(1))
    (left,) = await yard.find_uncleaned([])
    with pytest.raises(Unavailable):
        await yard.clean_up(left)
    assert await yard.find_uncleaned([]) == [left]
    engine.answers = True
    await yard.clean_up(left)
    assert await yard.find_uncleaned([]) == []
    assert attempt.exists()


def test_what_somebody_else_takes_away_meanwhile_is_no_fault(keepers):
    (keepers / "rooms" / "9-1").symlink_to(keepers / "nowhere")
    remove_old_folders(keepers, [], claims(keepers))


# processes

FORKING = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        time.sleep(30)\nprint('ready', flush=True)\ntime.sleep(30)"


@pytest.fixture
def tree(request):
    name = f"sweep-{os.getpid()}"
    words = [sys.executable, "-I", "-S", "-c", FORKING]
    with subprocess.Popen(words, env={"ROTA_KEEPER": name}, stdout=subprocess.PIPE) as root:
        root.stdout.readline()
        yield name, root
        kill_marked(name)


def test_everything_that_carries_a_marker_is_ended(tree):
    name, root = tree
    assert len(marked_processes(name)) == 4
    assert kill_marked(name) == 4
    assert root.wait(5) == -9
    assert marked_processes(name) == []
    assert kill_marked(name) == 0


def test_a_marker_that_only_begins_alike_is_another(tree):
    name, _ = tree
    assert marked_processes(name[:-1]) == []
    assert marked_processes(name + "1") == []


def test_a_descendant_without_the_marker_is_found_through_its_parent(tree):
    name, _ = tree
    words = ["sh", "-c", "env -i sleep 30 & echo up; wait"]
    environment = {"ROTA_KEEPER": name, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        while len(descendants(other.pid)) != 1:
            pass
        assert kill_marked(name) == 6


def test_the_one_who_sweeps_is_spared(monkeypatch):
    """A daemon that was started inside an attempt carries its marker itself."""
    code = "from rota.keeper.cleanup import kill_marked\nprint(kill_marked('inside'))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"ROTA_KEEPER": "inside"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "0\n"


def test_descendants_are_parents_first(tree):
    _, root = tree
    found = descendants(os.getpid())
    assert found.index(root.pid) < min(found.index(child) for child in children(root.pid))
    assert {parent(child) for child in children(root.pid)} == {root.pid}


def test_a_process_is_struck_only_if_it_is_still_the_one(tree):
    _, root = tree
    began = start_time(root.pid)
    assert began > 0
    assert not send_signal(root.pid, 9, lambda pid: start_time(pid) == began + 1)
    assert root.poll() is None
    assert send_signal(root.pid, 9, lambda pid: start_time(pid) == began)
    root.wait(5)
    assert start_time(root.pid) == 0
    assert not send_signal(root.pid, 9, lambda _: True)


# what is done beside the event loop

LONG = 30.0


class Sweeper:
    """Sweeps once it may, and fails as often as it is told to."""

    def __init__(self, fails=0):
        self.may = threading.Event()
        self.fails = fails
        self.begun = []

    def __call__(self, name):
        self.begun.append(name)
        self.may.wait(LONG)
        if len(self.begun) <= self.fails:
            raise TimeoutError
        return 3


async def done(told):
    async with asyncio.timeout(LONG):
        assert await told.get() == "a"


async def test_a_sweep_is_begun_once_and_tells_when_it_is_done():
    told, sweeper = asyncio.Queue(), Sweeper()
    aside = CleanupThread(told.put_nowait, sweeper)
    assert [aside.kill_marked("a"), aside.kill_marked("a")] == [None, None]
    sweeper.may.set()
    await done(told)
    assert aside.kill_marked("a") == 3
    assert sweeper.begun == ["a"]


async def test_a_sweep_that_failed_says_so_and_is_begun_again():
    told, sweeper = asyncio.Queue(), Sweeper(fails=1)
    sweeper.may.set()
    aside = CleanupThread(told.put_nowait, sweeper)
    assert aside.kill_marked("a") is None
    await done(told)
    with pytest.raises(TimeoutError):
        aside.kill_marked("a")
    assert aside.kill_marked("a") is None
    await done(told)
    assert aside.kill_marked("a") == 3


@pytest.fixture
def keeper(tmp_path):
    """A child of this process that is called as a keeper is, and the folder of its attempt."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / "lock").write_text(str(child.pid))
    yield child, tmp_path
    child.kill()
    child.wait()
    child.stdin.close()


def is_buried(pid):
    return pid not in children(os.getpid())


def test_a_keeper_that_lives_is_not_waited_for_without_time(keeper):
    child, folder = keeper
    assert not reap_keeper(folder, seconds=0)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert reap_keeper(folder, seconds=0)
    assert is_buried(child.pid)


async def test_a_keeper_that_ends_later_is_waited_for_aside(keeper):
    child, folder = keeper
    CleanupThread(lambda _: None).reap_keeper(folder)
    child.kill()
    async with asyncio.timeout(LONG):
        while (folder / "lock").read_text():
            await asyncio.sleep(0)
    assert is_buried(child.pid)

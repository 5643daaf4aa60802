"""A database file is its owner's alone, whatever the umask, unless it was shared on purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import apsw
import pytest

from rota.library.rota import Rota
from rota.store.sqlite.database import SqliteDatabase
from rota.store.sqlite.file_modes import create_private, make_private
from tests.tools.store_bench import Bench

FILES = ("rota.db", "rota.db-wal", "rota.db-shm", "rota.db.lock", "rota.db.wake")
STRANGER = 65_534
GREEDY = """
import fcntl, sys
opened = []
for name in sys.argv[1:]:
    try:
        file = open(name, "rb")
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        opened.append(file)
    except OSError as fault:
        print(type(fault).__name__, flush=True)
print("done", flush=True)
sys.stdin.read()
"""
RIVAL = """
import apsw, sys
try:
    apsw.Connection(sys.argv[1]).execute("begin immediate")
except apsw.BusyError:
    print("busy")
"""


@pytest.fixture
def folder():
    """A folder that every user can get into."""
    made = Path(tempfile.mkdtemp(prefix="rota-open-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=[0o022, 0o000], ids=["022", "000"])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder):
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def lock_as_a_stranger(names):
    """Have another user open and lock files; return its process, and what it said of each."""
    become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
    stranger = subprocess.Popen(
        [*become, "/usr/bin/env", "python3", "-c", GREEDY, *names],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
    )  # fmt: skip
    return stranger, [stranger.stdout.readline().strip() for _ in range(len(names) + 1)]


async def test_what_is_made_is_private_whatever_the_umask(folder, clock, umask):
    store = SqliteDatabase(str(folder / "rota.db"), clock)
    await store.open()
    await store.take_roles()
    assert modes(folder) == dict.fromkeys(FILES, 0o600)
    assert folder.stat().st_mode & 0o777 == 0o755
    await store.backup(str(folder / "backup.zip"))
    await store.close()
    restored = await SqliteDatabase(str(folder / "rota.db"), clock).restore(
        str(folder / "backup.zip"), None, force=True
    )
    assert str(restored.aside) in {str(path) for path in folder.iterdir()}
    assert set(modes(folder).values()) == {0o600}


def test_a_file_is_private_before_sqlite_opens_it(folder, umask):
    create_private(str(folder / "rota.db"))
    assert modes(folder) == {"rota.db": 0o600}


def test_creating_a_file_leaves_one_that_is_there_alone(folder):
    (folder / "rota.db").write_bytes(b"kept")
    (folder / "rota.db").chmod(0o640)
    create_private(str(folder / "rota.db"))
    assert (folder / "rota.db").read_bytes() == b"kept"
    assert modes(folder) == {"rota.db": 0o640}


async def test_a_database_that_others_could_read_is_taken_from_them(folder, clock, caplog):
    path = folder / "rota.db"
    connection = apsw.Connection(str(path))
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table notes(x)")
    (folder / "rota.db.before-0005").touch()
    for each in folder.iterdir():
        each.chmod(0o644)
    connection.execute("insert into notes values (1)")
    store = SqliteDatabase(str(path), clock)
    with caplog.at_level("WARNING"):
        await store.open()
    assert set(modes(folder).values()) == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o755
    (told,) = [each for each in caplog.records if each.message == "store.made_private"]
    assert str(path) in told.files
    connection.execute("insert into notes values (2)")  # its locks and its files are what they were
    assert connection.execute("select count(*) from notes").get == 2
    await store.close()
    connection.close()


def test_locks_of_this_process_outlive_a_change_of_permissions(folder):
    path = folder / "rota.db"
    create_private(str(path))
    holder = apsw.Connection(str(path))
    holder.execute("begin immediate")
    path.chmod(0o644)
    make_private(str(path))
    create_private(str(path))
    rival = [sys.executable, "-c", RIVAL, str(path)]
    assert subprocess.run(rival, capture_output=True, text=True, check=True).stdout == "busy\n"
    assert path.stat().st_mode & 0o777 == 0o600
    holder.close()


@pytest.mark.parametrize("mode", [0o660, 0o664, 0o666])
async def test_a_database_that_others_may_write_to_was_shared_on_purpose(folder, clock, mode):
    path = folder / "rota.db"
    path.touch()
    path.chmod(mode)
    store = SqliteDatabase(str(path), clock)
    await store.open()
    await Bench(store, clock).task()
    found = modes(folder)
    assert (found["rota.db"], found["rota.db-shm"], found["rota.db-wal"]) == (mode, mode, mode)
    await store.close()


async def test_looking_changes_no_permissions(folder, clock):
    path = folder / "rota.db"
    store = SqliteDatabase(str(path), clock)
    await store.open()
    await store.close()
    path.chmod(0o644)
    store = SqliteDatabase(str(path), clock)
    await store.open_read_only()
    assert path.stat().st_mode & 0o777 == 0o644
    await store.close()


async def test_a_database_behind_a_link_is_made_private_too(folder, clock):
    (folder / "there").mkdir()
    real = folder / "there" / "real.db"
    real.touch(mode=0o644)
    (folder / "rota.db").symlink_to(real)
    store = SqliteDatabase(str(folder / "rota.db"), clock)
    await store.open()
    await Bench(store, clock).task()
    assert modes(folder / "there") == dict.fromkeys(
        ("real.db", "real.db-wal", "real.db-shm"), 0o600
    )
    await store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
async def test_another_user_can_neither_read_it_nor_stop_writes(folder, clock, umask):
    store = SqliteDatabase(str(folder / "rota.db"), clock)
    await store.open()
    bench = Bench(store, clock)
    await bench.queue(await bench.task(), 3)
    names = [str(path) for path in folder.iterdir()]
    stranger, said = lock_as_a_stranger(names)
    assert said == ["PermissionError"] * len(names) + ["done"]
    assert len(await bench.queue(await bench.task(), 100)) == 100
    stranger.communicate()
    await store.close()


async def test_the_library_makes_a_private_file_and_leaves_the_folder(folder, umask):
    async with Rota(f"sqlite:///{folder}/jobs.db"):
        assert set(modes(folder).values()) == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o755

"""Killed in the middle of a restore or a backup: the old one or the new one, never a half."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress

import apsw
import pytest

from rota.errors import Unavailable
from rota.flow.maintain import restore
from rota.flow.observe.verification import verify
from rota.store.backup import open_backup
from tests.tools.store_bench import Bench

PATIENCE = 60

# Runs a command again and again, each time in a process of its own that kills itself one touch of a
# file later than the one before it, until one of them ends by itself.
CHILD = """
import os, signal, sys
from rota.cli.main import main
import rota.cli.command_line, rota.cli.database
import rota.store.sqlite.database, rota.app.settings
watched = {"open", "os.rename", "os.remove", "os.link"}
n = code = 0
while code == 0:
    n += 1
    child = os.fork()
    if child == 0:
        left = n
        def hook(event, args):
            global left
            if event in watched and not str(args[0]).endswith((".py", ".pyc", ".toml", ".sql")):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        os._exit(10 + main(sys.argv[1:] + ["--json"]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = max(code, 0) if code == -signal.SIGKILL else code
    print("next", flush=True)
    sys.stdin.readline()
sys.exit(code)
"""


def killed(*words):
    """Run a command, killed ever later; yield after each time, and last when it was not killed."""
    command = [sys.executable, "-c", CHILD, *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout:
            if line == "next\n":
                yield
                process.stdin.write("\n")
                process.stdin.flush()
    assert process.returncode == 10


async def fill(store, clock, runs):
    await store.open()
    bench = Bench(store, clock)
    await bench.queue(await bench.task(), runs)
    for lease in await bench.claim(runs // 2):
        await bench.end(lease)


def incarnation(path):
    connection = apsw.Connection(str(path))
    try:
        assert connection.execute("pragma integrity_check").get == "ok"
        return connection.execute("select value from facts where name = 'incarnation'").get
    finally:
        connection.close()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_restore_that_is_killed_leaves_the_old_file_or_the_new_one(place, clock, tmp_path):
    store = place.store()
    await fill(store, clock, 50)
    backup = await store.backup(str(tmp_path / "backup.zip"))
    await fill(store, clock, 30)
    await store.close()
    file = tmp_path / "one.db"
    words = (
        "restore",
        backup.path,
        "--force",
        "--store",
        f"sqlite:///{file}",
        "--home",
        str(tmp_path),
    )
    first, seen = incarnation(file), []
    for _ in killed(*words):
        seen.append(incarnation(file))
        again = place.store()
        await again.open()
        found = await verify(again)
        await again.close()
        assert found.violations == ()
        assert found.counts["runs"] == (80 if seen[-1] == first else 50)
    assert seen.count(first) > 5
    assert seen[-1] not in {first, seen[-2]}
    assert {p.name for p in tmp_path.iterdir() if p.name.startswith(".")} == set()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_backup_that_is_killed_is_not_there_and_leaves_nothing(place, clock, tmp_path):
    store = place.store()
    await fill(store, clock, 50)
    await store.close()
    folder = tmp_path / "backups"
    folder.mkdir()
    path = folder / "backup.zip"
    words = (
        "backup",
        str(path),
        "--store",
        f"sqlite:///{tmp_path}/one.db",
        "--home",
        str(tmp_path),
    )
    whole = []
    for _ in killed(*words):
        whole.append(path.exists())
        if path.exists():
            with open_backup(str(path), "SQLite") as archive:
                assert archive.backup.rows["runs"] == 50
            path.unlink()
    assert whole.count(False) > 5
    assert whole[-1]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_restore_whose_connection_ends_leaves_everything_as_it_was(
    place, opened_at, clock, tmp_path
):
    store = await opened_at()
    await fill(store, clock, 50)
    backup = await store.backup(str(tmp_path / "backup.zip"))
    await fill(store, clock, 30)
    await store.close()
    rows = await place.rows()
    steps = 0
    cut = 0
    for steps in range(1, 400, 7):
        restoring = asyncio.ensure_future(restore(place.store(), backup.path, force=True))
        for _ in range(steps):
            await asyncio.sleep(0.001)
        if restoring.done():
            break
        restoring.cancel()
        with suppress(asyncio.CancelledError, Unavailable):
            await restoring
        if await place.rows() != rows:
            break  # it was cut off while it heard of its commit
        cut += 1
    assert cut > 3
    assert (await verify(await opened_at())).counts["runs"] == 50

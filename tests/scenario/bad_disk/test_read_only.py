"""A database that may only be read: reading works, everything else is one clear sentence."""

from __future__ import annotations

import asyncio
import os

import asyncpg
import pytest

from rota.cli.main import main
from rota.errors import Unavailable
from rota.flow.observe.verification import verify
from rota.library.rota import Rota
from rota.model.runs import RunState
from rota.runtime.clock import SystemClock
from rota.store.postgres.database import PostgresDatabase
from tests.tools.store_bench import Bench

WRITING = (
    ("task", "create", "other", "--call", "rota.samples:hello"),
    ("task", "run", "hello"),
    ("task", "list"),
    ("runs",),
    ("status",),
    ("once",),
    ("up",),
)


@pytest.fixture
def read_only_home(disk, capsys):
    home = disk.folder / "home"
    create = ("task", "create", "hello", "--call", "rota.samples:hello")
    assert main([*create, "--home", str(home)]) == 0
    assert main(["task", "run", "hello", "--home", str(home)]) == 0
    capsys.readouterr()
    disk.remount("ro")
    yield home
    disk.remount("rw")


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_a_command_that_needs_to_write_says_so_in_one_sentence(read_only_home, capsys, words):
    assert main([*words, "--home", str(read_only_home)]) == 6
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    if words[0] == "up":
        assert err.startswith("rota: cannot write the log ")
        assert err.endswith(": read-only file system\n")
    else:
        assert err.startswith("rota: cannot open the database ")
        assert err.endswith(": check that its folder exists and is writable\n")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file")
def test_a_file_that_may_only_be_read_can_be_looked_at(tmp_path, capsys):
    home = tmp_path / "home"
    create = ("task", "create", "hello", "--call", "rota.samples:hello")
    assert main([*create, "--home", str(home)]) == 0
    (home / "rota.db").chmod(0o400)
    for words in (["task", "list"], ["status"], ["verify"]):
        assert main([*words, "--home", str(home)]) == 0
    capsys.readouterr()
    for words in (["task", "run", "hello"], ["once"], ["up"]):
        assert main([*words, "--home", str(home)]) == 6
        err = capsys.readouterr().err
        assert err.startswith("rota: cannot write to the database ")
        assert err.endswith(": check the rights to the file and its folder\n")


def test_looking_and_backing_up_need_no_right_to_write(read_only_home, capsys, tmp_path):
    assert main(["verify", "--home", str(read_only_home)]) == 0
    assert main(["backup", str(tmp_path / "backup.zip"), "--home", str(read_only_home)]) == 0
    restored = f"sqlite:///{tmp_path}/rota.db"
    assert main(["restore", str(tmp_path / "backup.zip"), "--store", restored]) == 0
    assert main(["verify", "--store", restored]) == 0


def test_a_restore_into_it_is_refused_in_one_sentence(read_only_home, capsys, tmp_path):
    file = str(tmp_path / "backup.zip")
    assert main(["backup", file, "--home", str(read_only_home)]) == 0
    capsys.readouterr()
    assert main(["restore", file, "--force", "--home", str(read_only_home)]) == 6
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "read-only file system" in err


async def set_read_only(address, value):
    """Let new connections to a database only read, and end the ones there are."""
    name = address.partition("?")[0].rpartition("/")[2]
    admin = await asyncpg.connect(address)
    await admin.execute("set default_transaction_read_only = off")
    await admin.execute(f'alter database "{name}" set default_transaction_read_only = {value}')
    await admin.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    await admin.close()


async def test_a_server_that_only_allows_reading_is_survived(postgres_address):
    rota = Rota(postgres_address)
    release, begun = asyncio.Event(), asyncio.Event()

    @rota.task("job")
    async def job(run):
        begun.set()
        await release.wait()

    async with rota:
        first = await rota.enqueue("job")
        working = asyncio.ensure_future(rota.work())
        await begun.wait()
        await set_read_only(postgres_address, "on")
        sentence = ""
        while "it may only be read" not in sentence:  # first the connections that have ended go
            with pytest.raises(Unavailable) as refused:
                await rota.enqueue("job")
            sentence = str(refused.value)
        assert (await rota.run(first)).state is RunState.RUNNING
        release.set()
        settler = rota.crew.worker.settler
        while "it may only be read" not in (settler.last_error or ""):
            settler.wake()
            await asyncio.sleep(0.01)
        await set_read_only(postgres_address, "off")
        while (await rota.run(first)).state is not RunState.SUCCEEDED:
            settler.wake()
            await asyncio.sleep(0.01)
        await rota.crew.stop()
        await working
        assert (await verify(rota.store)).violations == ()


async def test_a_server_that_only_allows_reading_can_be_looked_at(postgres_address):
    store = PostgresDatabase(postgres_address, SystemClock())
    await store.open()
    bench = Bench(store, SystemClock())
    await bench.queue(await bench.task(), 3)
    await store.close()
    await set_read_only(postgres_address, "on")
    await store.open_read_only()
    assert (await verify(store)).counts["runs"] == 3
    await store.close()
    with pytest.raises(Unavailable, match="it may only be read"):
        store = PostgresDatabase(postgres_address, SystemClock())
        await store.open()
        try:
            await Bench(store, SystemClock()).task("another")
        finally:
            await store.close()

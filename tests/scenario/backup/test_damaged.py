"""A backup that is not what was written is refused in one sentence, and changes nothing."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zipfile
from contextlib import suppress

import apsw
import pytest

from rota.errors import Invalid, SchemaMismatch, Unavailable
from rota.flow.maintain import restore
from rota.store.backup import open_backup
from tests.tools.store_bench import Bench

FLIPS = 40
CUTS = 30


@pytest.fixture
def saved(place, opened_at, clock, runner, tmp_path):
    """A backup of a few runs, and the rows it holds."""

    async def fill():
        store = await opened_at()
        bench = Bench(store, clock)
        await bench.queue(await bench.task(), 200)
        for lease in await bench.claim(100):
            await bench.end(lease)
        backup = await store.backup(str(tmp_path / "backup.zip"))
        await store.close()
        return backup, await place.rows()

    return runner.run(fill())


async def refused(place, path, rows):
    """Try a damaged backup; true if it was refused and the database is as it was."""
    try:
        await restore(place.store("one"), str(path), force=True, as_it_stood=True)
    except Invalid as fault:
        assert str(fault).startswith('file "')
        assert "\n" not in str(fault)
        return True
    finally:
        found = await place.rows()
        found["events"] = found["events"][: len(rows["events"])]
        assert found == rows
    return False


async def test_a_backup_that_was_cut_short_is_refused(place, saved, tmp_path):
    _, rows = saved
    whole = (tmp_path / "backup.zip").read_bytes()
    cut = tmp_path / "cut.zip"
    for n in range(CUTS):
        cut.write_bytes(whole[: len(whole) * n // CUTS])
        assert await refused(place, cut, rows), n
    cut.write_bytes(whole[:-1])
    assert await refused(place, cut, rows)


async def test_a_byte_that_was_changed_is_noticed_or_means_nothing(place, saved, tmp_path):
    _, rows = saved
    whole = (tmp_path / "backup.zip").read_bytes()
    chance = random.Random(11)
    changed = tmp_path / "changed.zip"
    noticed = 0
    for _ in range(FLIPS):
        at = chance.randrange(len(whole))
        data = bytearray(whole)
        data[at] ^= 1 << chance.randrange(8)
        changed.write_bytes(data)
        noticed += await refused(place, changed, rows)
    assert noticed > FLIPS * 0.5


async def test_every_bit_of_the_directory_is_looked_at(saved, tmp_path):
    """Where the parts are and how they are packed, and what vouches for them."""
    whole = (tmp_path / "backup.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "backup.zip") as archive:
        begin = archive.infolist()[-1].header_offset
    changed = tmp_path / "changed.zip"
    for at in range(begin, len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        changed.write_bytes(data)
        with suppress(Invalid), open_backup(str(changed), saved[0].store) as found:
            assert found.backup.incarnation == saved[0].incarnation


@pytest.mark.parametrize("text", [b"", b"hello", b"SQLite format 3\0" + bytes(4_000)])
async def test_what_is_no_backup_is_refused(place, saved, tmp_path, text):
    _, rows = saved
    path = tmp_path / "other"
    path.write_bytes(text)
    assert await refused(place, path, rows)


async def test_a_backup_that_is_not_there_is_refused(place, tmp_path):
    with pytest.raises(Invalid, match="there is no such backup"):
        await restore(place.store(), str(tmp_path / "nothing.zip"))
    with pytest.raises(Unavailable, match="cannot read the backup .*: is a directory"):
        await restore(place.store(), str(tmp_path))


def rewritten(source, target, change):
    """Write a backup anew with other parts, and a manifest that vouches for them."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        manifest = json.loads(old.read("manifest.json"))
        for name, facts in manifest["parts"].items():
            data = change(name, old.read(name))
            facts["size"], facts["sha256"] = len(data), hashlib.sha256(data).hexdigest()
            new.writestr(name, data)
        change("manifest.json", manifest)
        new.writestr("manifest.json", json.dumps(manifest))
    return str(target)


async def test_a_backup_of_a_newer_rota_is_refused(place, saved, tmp_path):
    def newer(name, data):
        if name == "manifest.json":
            data["schema"] = 999
        return data

    path = rewritten(saved[0].path, tmp_path / "newer.zip", newer)
    with pytest.raises(SchemaMismatch, match="999"):
        await restore(place.store("two"), path)


async def test_a_backup_of_another_kind_of_store_is_refused(place, saved, tmp_path):
    def other(name, data):
        if name == "manifest.json":
            data["store"] = "Oracle"
        return data

    path = rewritten(saved[0].path, tmp_path / "other.zip", other)
    with pytest.raises(Invalid, match="it was taken from Oracle, and this is "):
        await restore(place.store("two"), path)


async def test_rows_that_are_missing_are_noticed(place, saved, tmp_path):
    def fewer(name, data):
        if name == "manifest.json":
            data["rows"]["runs"] += 1
        return data

    path = rewritten(saved[0].path, tmp_path / "fewer.zip", fewer)
    with pytest.raises(Invalid, match="its table runs is not whole"):
        await restore(place.store("two"), path)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_hostile_file_brings_nothing_but_rows(place, saved, tmp_path):
    def hostile(name, data):
        if name == "manifest.json":
            return data
        file = tmp_path / "hostile.db"
        file.write_bytes(data)
        connection = apsw.Connection(str(file))
        connection.execute(
            "create trigger evil after insert on runs begin delete from tasks; end;"
            " create view loot as select * from facts;"
            " create table extra (x)"
        )
        connection.close()
        return file.read_bytes()

    path = rewritten(saved[0].path, tmp_path / "hostile.zip", hostile)
    await restore(place.store("two"), path, as_it_stood=True)
    connection = apsw.Connection(str(tmp_path / "two.db"))
    names = {row[0] for row in connection.execute("select name from sqlite_master")}
    connection.close()
    assert not names & {"evil", "loot", "extra"}
    assert (await place.rows("two"))["runs"] == saved[1]["runs"]


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_tables_that_are_not_rotas_are_refused(place, saved, tmp_path):
    def strange(name, data):
        if name == "manifest.json":
            return data
        file = tmp_path / "strange.db"
        file.write_bytes(data)
        connection = apsw.Connection(str(file))
        connection.execute("drop table attempts; create table attempts (x)")
        connection.close()
        return file.read_bytes()

    path = rewritten(saved[0].path, tmp_path / "strange.zip", strange)
    with pytest.raises(Invalid, match="its rows do not fit Rota's tables"):
        await restore(place.store("two"), path)
    assert not (tmp_path / "two.db").exists()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_database_that_is_beyond_reading_can_be_replaced(place, saved, tmp_path):
    file = tmp_path / "one.db"
    shutil.copy(file, tmp_path / "kept.db")
    file.write_bytes(b"rubbish" * 5_000)
    with pytest.raises(Exception, match="not empty: --force"):
        await restore(place.store(), saved[0].path)
    await restore(place.store(), saved[0].path, force=True, as_it_stood=True)
    assert (await place.rows())["runs"] == saved[1]["runs"]

"""The notes of writes that happen once: what a death leaves, what is bounded, and what is not told."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest

from rota.gateway import journal as module
from rota.gateway.grants import RETENTION_SECONDS
from rota.gateway.journal import JournalEntry, JournalFull, JournalKey, WriteJournal, journal_key

ONE, TWO = journal_key(1, "run 1", "order"), journal_key(1, "run 1", "mail")
SAID = JournalEntry("digest", 201, (("content-type", "a/b"), ("x-é", "ÿ")), b"\n\x00body\n")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(tmp_path):
    made = Clock()
    made.now = tmp_path.stat().st_mtime
    return made


@pytest.fixture
def ledger(tmp_path, clock):
    return WriteJournal(str(tmp_path), clock)


def run(*work):
    async def go():
        return [await each for each in work]

    return asyncio.run(go())[-1]


def path_of(tmp_path, key):
    return tmp_path / "effects" / str(key.space) / key.digest


def begun(ledger, key=ONE):
    run(ledger.begin(key, "digest"))
    ledger.close(key)


def test_an_effect_is_begun_and_then_answered_as_it_was_whoever_looks(ledger, tmp_path, clock):
    assert run(ledger.find(ONE)) is None
    begun(ledger)
    assert run(WriteJournal(str(tmp_path), clock).find(ONE)) == JournalEntry("digest")
    run(ledger.end(ONE, SAID))
    assert run(WriteJournal(str(tmp_path), clock).find(ONE)) == SAID
    assert run(ledger.find(TWO)) is None


def test_what_was_refused_is_free_again(ledger):
    begun(ledger)
    run(ledger.end(ONE, None))
    assert run(ledger.find(ONE)) is None
    begun(ledger)
    assert run(ledger.find(ONE)) == JournalEntry("digest")


def test_a_name_is_of_one_run_in_one_space(ledger):
    others = [journal_key(2, "run 1", "order"), journal_key(1, "run 2", "order"), TWO]
    begun(ledger)
    assert [run(ledger.find(key)) for key in others] == [None, None, None]


def test_an_answer_too_long_is_known_without_its_body(ledger):
    begun(ledger)
    run(ledger.end(ONE, JournalEntry("digest", 200, (), None)))
    assert run(ledger.find(ONE)) == JournalEntry("digest", 200, (), None)


@pytest.mark.parametrize(
    "left", [b"", b"{}", b"[1]\n", b"\xff\xfe", b'{"request": 1, "status": 2}\n']
)
def test_a_note_that_cannot_be_read_was_begun(ledger, tmp_path, left):
    begun(ledger)
    path_of(tmp_path, ONE).write_bytes(left)
    assert run(ledger.find(ONE)) == JournalEntry("")


def test_an_answer_that_is_shorter_than_it_says_is_not_told(ledger, tmp_path):
    begun(ledger)
    run(ledger.end(ONE, SAID))
    path = path_of(tmp_path, ONE)
    path.write_bytes(path.read_bytes()[:-1])
    assert run(ledger.find(ONE)) == JournalEntry("")


def test_nobody_else_reads_them(ledger, tmp_path):
    os.umask(0o022)
    begun(ledger)
    run(ledger.end(ONE, SAID))
    for path in (tmp_path / "effects").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


def test_what_was_being_written_at_a_death_is_neither_begun_nor_counted(ledger, tmp_path, clock):
    begun(ledger)
    left = path_of(tmp_path, TWO).with_name(f"{TWO.digest}~")
    left.write_bytes(b"x")
    again = WriteJournal(str(tmp_path), clock)
    assert run(again.find(TWO)) is None
    begun(again, TWO)
    assert not left.exists()
    assert run(again.find(TWO)) == JournalEntry("digest")


def test_a_space_has_so_many_names_and_another_one_its_own(ledger, monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)
    begun(ledger)
    begun(ledger, TWO)
    third = journal_key(1, "run 1", "third")
    with pytest.raises(JournalFull):
        begun(ledger, third)
    assert run(ledger.find(third)) is None
    begun(ledger, JournalKey(2, third.digest))
    run(ledger.end(TWO, None))
    begun(ledger, third)


def test_a_space_has_so_many_bytes_with_room_for_what_is_under_way(ledger, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 2 * module.MAX_STORED_BYTES + 2000)
    keys = [journal_key(1, "run 1", f"order-{n}") for n in range(3)]
    run(ledger.begin(keys[0], "digest"))
    run(ledger.begin(keys[1], "digest"))
    with pytest.raises(JournalFull):
        run(ledger.begin(keys[2], "digest"))
    run(ledger.end(keys[0], SAID))
    ledger.close(keys[0])
    run(ledger.begin(keys[2], "digest"))


def test_what_is_old_is_forgotten_and_who_comes_later_is_told_that(ledger, tmp_path, clock):
    begun(ledger)
    begun(ledger, TWO)
    path = path_of(tmp_path, ONE)
    old = path.stat().st_mtime - RETENTION_SECONDS - 60
    os.utime(path, (old, old))
    assert run(ledger.find(ONE)) == JournalEntry("digest")
    clock.now += 2 * module.RECOUNT_SECONDS
    begun(ledger, journal_key(1, "run 1", "third"))
    assert run(ledger.find(ONE)) is None
    assert run(ledger.find(TWO)) == JournalEntry("digest")
    assert ledger.is_expired(old)
    assert not ledger.is_expired(clock.now - 60)
    assert not ledger.is_expired(None)


def test_a_gateway_that_begins_forgets_what_is_old_in_every_space(ledger, tmp_path, clock):
    keys = [ONE, TWO, JournalKey(2, ONE.digest)]
    for key in keys:
        begun(ledger, key)
    for key in (ONE, keys[2]):
        path = path_of(tmp_path, key)
        old = path.stat().st_mtime - RETENTION_SECONDS - 60
        os.utime(path, (old, old))
    again = WriteJournal(str(tmp_path), clock)
    again.open()
    assert [run(again.find(key)) for key in keys] == [None, JournalEntry("digest"), None]


def test_what_cannot_be_noted_is_told_and_can_be_begun_later(ledger, tmp_path):
    (tmp_path / "effects").write_text("no folder")
    with pytest.raises(OSError, match="Not a directory|File exists"):
        run(ledger.begin(ONE, "digest"))
    (tmp_path / "effects").unlink()
    begun(ledger)


def test_who_is_cancelled_leaves_a_whole_note_before_anybody_else_looks(ledger):
    async def go():
        beginning = asyncio.ensure_future(ledger.begin(ONE, "digest"))
        while not beginning.done() and not ledger._disk_lock.locked():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.wait({beginning})
        assert beginning.cancelled()
        assert not ledger._disk_lock.locked()
        return await ledger.find(ONE)

    assert asyncio.run(go()) == JournalEntry("digest")
    assert ledger._reserved[1] == 0

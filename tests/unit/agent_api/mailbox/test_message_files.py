"""Files of messages in a mailbox: all of a message's or none, whatever happens on the way."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from dataclasses import replace
from functools import partial

import pytest

from rota.agent_api.mailbox import contents
from rota.errors import Unavailable
from rota.flow.attempt.conversation import message_text
from rota.model.threads import MessageFile, NewFile, NewMessage
from rota.store.threads import add_message
from tests.unit.agent_api.mailbox.test_contents import asked

SENT = {"a b.png": bytes(range(256)), "notes.txt": b""}


async def message(bench, **files):
    """Return a message that somebody has sent files with."""
    space = await bench.space()
    sent = []
    for name, content in (files or SENT).items():
        digest = hashlib.sha256(content).hexdigest()
        sent.append(NewFile(MessageFile(name, "image/png", len(content), digest), content))
    said = NewMessage(space.id, "cli:default", "ann", "Look.", files=tuple(sent))
    return await bench.store.write(add_message, said, None)


def lying(folder):
    """Return what a program finds of the files of messages."""
    files = folder.path / "in" / "files"
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in files.rglob("*")
        if path.is_file()
    }


async def test_files_lie_there_as_they_were_sent_and_for_their_owner_alone(office):
    folder = await office.opened()
    said = await message(office.bench)
    for _ in range(2):
        await office.post.put_files(folder.kept, said)
        assert lying(folder) == {f"{said.id}/{name}": sent for name, sent in SENT.items()}
    place = folder.path / "in" / "files" / str(said.id)
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    assert len(list(place.parent.iterdir())) == 1, "nothing passing is left"


async def test_the_next_process_finds_them_there(office):
    folder, said = await office.opened(), await message(office.bench)
    await office.post.put_files(folder.kept, said)
    office.post.shut()
    office.post = office.another()
    folder.given = folder.given._replace(kept=folder.kept)
    await office.open(folder)
    await office.post.put_files(folder.kept, said)
    assert len(lying(folder)) == 2


async def test_what_a_process_left_half_done_is_no_message(office):
    folder, said = await office.opened(), await message(office.bench)
    half = folder.path / "in" / "files" / ".0123456789abcdef"
    half.mkdir()
    (half / "a b.png").write_bytes(b"half")
    await office.post.put_files(folder.kept, said)
    assert lying(folder)[f"{said.id}/a b.png"] == SENT["a b.png"]


@pytest.mark.parametrize("at", ["mkdir", "open", "rename"])
async def test_on_a_full_disk_none_lies_there_and_the_reason_is_told(office, monkeypatch, at):
    folder, said = await office.opened(), await message(office.bench)
    real = getattr(os, at)

    def full(*given, **named):
        if at == "open" and "notes.txt" not in given:
            return real(*given, **named)
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(contents.os, at, full)
        with pytest.raises(Unavailable, match=r"message \d+ cannot be written: no space left"):
            await office.post.put_files(folder.kept, said)
    assert list((folder.path / "in" / "files").iterdir()) == []
    await office.post.put_files(folder.kept, said)
    assert len(lying(folder)) == 2


@pytest.mark.parametrize("how", ["changed", "gone"])
async def test_a_file_that_is_not_what_was_sent_is_left_out_and_named(office, how):
    folder, said = await office.opened(), await message(office.bench)
    good, bad = said.files
    bad = bad._replace(sha256="0" * 64)
    sent = (bad, good) if how == "changed" else (good, said.files[1], bad._replace(name="c"))
    damaged = replace(said, files=sent)
    for _ in range(2):
        lies = await office.post.put_files(folder.kept, damaged)
        assert lies.files == sent
        assert lies.lost == ({"notes.txt", "a b.png"} if how == "changed" else {"c"})
    kept = {} if how == "changed" else {f"{said.id}/{name}": sent for name, sent in SENT.items()}
    assert lying(folder) == kept
    assert len(list((folder.path / "in" / "files").iterdir())) == 1, "nothing passing is left"


async def test_who_is_cancelled_on_the_way_leaves_nothing_behind(office, monkeypatch):
    folder, said = await office.opened(), await message(office.bench)
    writing, go_on = threading.Event(), threading.Event()
    real = contents.FileDelivery._add

    def slow(self, *given):
        writing.set()
        go_on.wait(10)
        return real(self, *given)

    monkeypatch.setattr(contents.FileDelivery, "_add", slow)
    doing = asyncio.ensure_future(office.post.put_files(folder.kept, said))
    await asyncio.to_thread(writing.wait, 10)
    doing.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await doing
    assert list((folder.path / "in" / "files").iterdir()) == []


async def test_a_program_that_listens_is_told_which_file_is_lost(office):
    folder, said = await office.opened(), await message(office.bench)
    await asked(office, folder, "l", "listen")
    damaged = replace(said, files=(said.files[0], said.files[1]._replace(sha256="0" * 64)))
    tell = partial(message_text, files="/box")
    assert await office.post.put_message(folder.kept.run_id, folder.kept.epoch, damaged, tell) == 1
    first, second = folder.shown("messages/0001.json")["files"]
    assert first["media_path"] == f"/box/{said.id}/a b.png"
    assert "media_error" not in first
    assert second["media_name"] == "notes.txt"
    assert second["media_error"].startswith("this file is damaged")
    assert "media_path" not in second


async def test_who_is_not_served_is_brought_nothing(office):
    folder, said = await office.opened(), await message(office.bench)
    office.post.release(folder.kept.run_id)
    with pytest.raises(Unavailable, match="no mailbox"):
        await office.post.put_files(folder.kept, said)


async def test_only_who_listens_is_brought_the_files_of_what_comes_later(office):
    folder, said = await office.opened(), await message(office.bench)
    give = (folder.kept.run_id, folder.kept.epoch, said, partial(message_text, files="/box"))
    assert await office.post.put_message(*give) is None
    assert lying(folder) == {}
    await asked(office, folder, "l", "listen")
    assert await office.post.put_message(*give) == 1
    assert len(lying(folder)) == 2


async def test_a_program_that_puts_a_link_in_the_way_harms_itself_alone(office, tmp_path):
    folder, said = await office.opened(), await message(office.bench)
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder.path / "in" / "files").rmdir()
    (folder.path / "in" / "files").symlink_to(outside)
    with pytest.raises(Unavailable):
        await office.post.put_files(folder.kept, said)
    assert list(outside.iterdir()) == []

"""Files that go with messages: artifacts of the run, fixed by their hashes (G2-44)."""

from __future__ import annotations

import hashlib
import os

import pytest

from rota.errors import Invalid, NotFound, Unavailable
from rota.flow.define import attempt_requests
from rota.keeper.workspace import LocalArtifactStore, artifacts_folder
from rota.model.notifications import Attachment
from rota.store.views import list_deliveries


@pytest.fixture
def shelf(tmp_path):
    """How a program leaves files; they are those of the run of an attempt."""

    def of(talkers, agent):
        talkers.artifacts = LocalArtifactStore(tmp_path)
        folder = artifacts_folder(tmp_path / "spaces" / "main", agent.run_id)
        folder.mkdir(parents=True)
        return folder

    return of


async def begun(talkers):
    return await talkers.begin(await talkers.task(thread="cli:default"))


def enclosed(name, content):
    return Attachment(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


async def test_g2_44_a_message_has_files_as_they_were_when_it_was_sent(talkers, shelf):
    agent = await begun(talkers)
    folder = shelf(talkers, agent)
    (folder / "plots").mkdir()
    (folder / "report.pdf").write_bytes(b"%PDF")
    (folder / "plots" / "one.png").write_bytes(b"")
    files = ["report.pdf", "plots/one.png"]
    await agent("send_message", text="Here it is.", files=files)
    (delivery,) = await talkers.store.read(list_deliveries, agent.run_id, 10)
    assert delivery.attachments == (enclosed("report.pdf", b"%PDF"), enclosed("plots/one.png", b""))
    again = await agent("send_message", text="Here it is.", files=files)
    assert again["again"]
    (folder / "report.pdf").write_bytes(b"%PDF 2")
    another = await agent("send_message", text="Here it is.", files=files)
    assert not another["again"]
    assert len(await talkers.store.read(list_deliveries, agent.run_id, 10)) == 2


async def test_deferred_messages_have_files_too(talkers, shelf):
    agent = await begun(talkers)
    (shelf(talkers, agent) / "a.txt").write_bytes(b"a")
    await agent("defer_message", text="Done.", files=["a.txt"])
    assert await talkers.store.read(list_deliveries, agent.run_id, 10) == []
    assert await agent.end()
    (delivery,) = await talkers.store.read(list_deliveries, agent.run_id, 10)
    assert (delivery.body, delivery.attachments) == ("Done.", (enclosed("a.txt", b"a"),))


@pytest.mark.parametrize(
    "name", ["missing", "../../../rota.db", "/etc/passwd", "link", "pipe", "twin", "folder", "a\0b"]
)
async def test_nothing_but_plain_files_of_the_run_goes_with_a_message(small, shelf, name):
    agent = await begun(small)
    folder = shelf(small, agent)
    (folder / "folder").mkdir()
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    (folder / "one").write_bytes(b"1")
    os.link(folder / "one", folder / "twin")
    with pytest.raises((NotFound, Invalid)):
        await agent("send_message", text="hi", files=[name])
    assert await small.store.read(list_deliveries, agent.run_id, 10) == []


async def test_files_are_bounded_in_number_and_size(small, shelf, monkeypatch):
    agent = await begun(small)
    folder = shelf(small, agent)
    monkeypatch.setattr(attempt_requests, "LARGEST", 10)
    for name in ("a", "b"):
        (folder / name).write_bytes(b"123456")
    for files in (["a", "b"], ["a", "a"], ["a"] * 11):
        with pytest.raises(Invalid, match="files"):
            await agent("send_message", text="hi", files=files)
    assert await agent("send_message", text="hi", files=["a"])


async def test_where_the_files_are_not_nothing_is_enclosed(small):
    agent = await begun(small)
    with pytest.raises(Unavailable, match="the daemon of its home"):
        await agent("send_message", text="hi", files=["a"])

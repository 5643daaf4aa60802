"""Follow-ups and snapshots: what a program finds in its mailbox, and how it says it has read it."""

from __future__ import annotations

import pytest

from rota.agent_api.mailbox.contents import MOST_UNREAD
from rota.model.threads import MessageState, NewMessage, ThreadMessage
from rota.store.tasks import add_thread
from rota.store.threads import add_message
from tests.unit.agent_api.mailbox.conftest import until


async def asked(office, folder, name, verb, **fields):
    folder.command(name, verb, **fields)
    return await office.answered(folder, name)


async def given(office, folder, text):
    return await give(office, folder.kept.run_id, folder.kept.epoch, text)


async def give(office, run_id, epoch, text=""):
    said = ThreadMessage(
        id=1, thread="cli:default", sender="ann", body=text, at=office.bench.clock.now(),
        state=MessageState.PENDING, reader_run_id=None, run_id=None, epoch=None, read_at=None,
    )  # fmt: skip
    return await office.post.put_message(run_id, epoch, said, lambda said: {"text": said.body})


async def test_nothing_is_given_to_a_program_that_does_not_listen(office):
    folder = await office.opened()
    assert await given(office, folder, "hello") is None
    assert await asked(office, folder, "l", "listen") == {"ok": True, "unread": []}
    assert await give(office, folder.kept.run_id, folder.kept.epoch + 1) is None
    assert await give(office, folder.kept.run_id + 1, folder.kept.epoch) is None
    assert list(folder.messages.iterdir()) == []
    assert await given(office, folder, "hello") == 1


async def test_a_message_is_read_when_it_is_acknowledged_and_not_before(office):
    folder = await office.opened()
    await asked(office, folder, "l", "listen")
    assert [await given(office, folder, text) for text in ("one", "two")] == [1, 2]
    assert folder.shown("messages/0002.json") == {"text": "two", "number": 2}
    assert office.acknowledged == []
    assert await asked(office, folder, "a", "ack", number=2) == {"ok": True, "number": 2}
    assert office.acknowledged == [(folder.kept.run_id, 2)]
    assert [path.name for path in folder.messages.iterdir()] == ["0001.json"]
    assert await asked(office, folder, "b", "ack", number=2) == {"ok": True, "number": 2}
    assert office.acknowledged == [(folder.kept.run_id, 2)], "once"


@pytest.mark.parametrize("fields", [{}, {"number": 0}, {"number": 3}, {"number": "1"},
                                    {"number": True}, {"number": 1, "run": 1}])  # fmt: skip
async def test_what_was_not_given_cannot_be_acknowledged(office, fields):
    folder = await office.opened()
    await asked(office, folder, "l", "listen")
    await given(office, folder, "one")
    answer = await asked(office, folder, "a", "ack", **fields)
    assert answer["error"]["code"] in {"invalid", "not_found"}
    assert office.acknowledged == []


async def test_who_has_closed_is_given_nothing_more_and_told_what_is_unread(office):
    folder = await office.opened()
    await asked(office, folder, "l", "listen")
    await given(office, folder, "one")
    assert await asked(office, folder, "c", "close") == {"ok": True, "unread": [1]}
    assert await given(office, folder, "two") is None
    assert (await asked(office, folder, "a", "ack", number=1))["ok"]
    assert (await asked(office, folder, "d", "close", run=1))["error"]["code"] == "invalid"


async def test_a_mailbox_takes_so_many_messages(office):
    folder = await office.opened()
    await asked(office, folder, "l", "listen")
    for number in range(MOST_UNREAD):
        assert await given(office, folder, "x") == number + 1
    assert await given(office, folder, "x") is None


async def test_the_next_process_knows_who_listens_and_goes_on_counting(office):
    folder = await office.opened()
    await asked(office, folder, "l", "listen")
    assert await given(office, folder, "one") == 1
    await asked(office, folder, "a", "ack", number=1)
    office.post.shut()
    office.post = office.another()
    folder.given = folder.given._replace(kept=folder.kept)
    await office.open(folder)
    assert await given(office, folder, "two") == 2


async def test_a_program_finds_what_there_is_before_it_begins(office):
    bench = office.bench
    owner = await bench.space("main")
    await bench.store.write(add_thread, owner.id, "cli:default")
    await bench.store.write(add_thread, (await bench.space("ada")).id, "web:ada")
    words = NewMessage(owner.id, "cli:default", "Ann", "Hello.")
    await bench.store.write(add_message, words, None)
    folder = await office.opened()
    assert folder.shown("tasks.json") == {"tasks": [{"name": "job"}], "next": None}
    assert folder.shown("threads.json")["threads"] == [
        {"space": "ada", "thread": "web:ada", "title": "", "task": None, "said_at": None},
        {
            "space": "main", "thread": "cli:default", "title": "", "task": None,
            "said_at": bench.clock.now().isoformat(),
        },
    ]  # fmt: skip
    assert not (folder.path / "in" / "sessions.json").exists(), "nobody here tells of sessions"


async def test_a_program_may_have_it_told_again(office):
    folder = await office.opened()
    (folder.path / "in" / "tasks.json").unlink()
    answer = await asked(office, folder, "r", "refresh")
    assert answer == {"ok": True, "files": ["tasks.json", "threads.json"]}
    assert folder.shown("tasks.json")["tasks"] == [{"name": "job"}]
    assert (await asked(office, folder, "s", "refresh", a=1))["error"]["code"] == "invalid"


async def test_a_snapshot_is_not_made_again_for_a_program_that_goes_on(office):
    folder = await office.opened()
    office.post.release(folder.kept.run_id)
    count = len(office.notebook.asked)
    folder.given = folder.given._replace(kept=folder.kept)
    await office.open(folder)
    assert len(office.notebook.asked) == count
    folder.command("a", "note")
    await until(lambda: office.notebook.notes)

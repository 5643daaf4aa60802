"""Serving mailboxes: each command once, answered under its id, in whose name its folder says."""

from __future__ import annotations

import asyncio
import os

import pytest

from rota.agent_api.mailbox import processor as serving_module
from rota.agent_api.mailbox.folder import Mailbox
from rota.agent_api.mailbox.processor import FolderWatcher
from rota.errors import Unavailable
from rota.store.audit import list_audit_entries
from tests.unit.agent_api.mailbox.conftest import CANARY, until


@pytest.fixture(autouse=True)
def no_poll(monkeypatch):
    """Only a ring may wake it, so that a lost one is seen."""
    monkeypatch.setattr(serving_module, "POLL_SECONDS", 3600.0)


async def test_a_command_is_carried_out_answered_and_taken_away(office):
    folder = await office.opened()
    folder.command("First-1", "note", text="hello")
    assert await office.answered(folder, "First-1") == {"ok": True, "note": 1}
    await until(lambda: folder.left() == [])
    assert office.notebook.notes == [(folder.kept.run_id, "hello")]
    assert not (office.home / "errors").exists()


async def test_who_asks_is_told_by_the_folder_and_never_by_the_file(office):
    first, second = await office.opened(), await office.opened()
    claims = {"run_id": first.kept.run_id, "attempt": 9, "space": "other", "agent": "root"}
    second.command("a", "note", text="mine", **claims)
    await office.answered(second, "a")
    held, verb, fields, request_id = office.notebook.asked[-1]
    assert (held.run_id, held.epoch, held.space) == (second.kept.run_id, 1, "main")
    assert (verb, request_id, fields) == ("note", "a", {"text": "mine", **claims})


async def test_what_waits_is_served_in_the_order_of_names(office):
    folder = await office.opened()
    office.notebook.free.clear()
    folder.command("a", "note", text="a")
    await office.notebook.begun.wait()
    for name in ("d", "b", "c"):
        folder.command(name, "note", text=name)
    office.notebook.free.set()
    for name in "bcd":
        await office.answered(folder, name)
    assert [text for _, text in office.notebook.notes] == ["a", "b", "c", "d"]


async def test_a_command_that_comes_while_another_is_served_is_not_missed(office):
    folder = await office.opened()
    for round_number in range(20):
        office.notebook.begun.clear()
        office.notebook.free.clear()
        folder.command(f"a{round_number}", "note")
        await office.notebook.begun.wait()
        folder.command(f"b{round_number}", "note")
        office.notebook.free.set()
        assert (await office.answered(folder, f"b{round_number}"))["ok"]


async def test_files_that_are_still_written_are_left_alone(office):
    folder = await office.opened()
    (folder.out / "half.json.tmp").write_bytes(b'{"request_id": "x", "ty')
    folder.command("a", "note")
    await office.answered(folder, "a")
    assert folder.left() == [b"half.json.tmp"]


async def test_what_the_desk_refuses_is_answered_and_kept_for_people(office):
    folder = await office.opened()
    folder.command("a", "dance", to="what")
    answer = await office.answered(folder, "a")
    assert answer["error"]["code"] == "not_found"
    await until(lambda: folder.left() == [])
    (kept,) = office.errors()
    assert (kept["run"], kept["error"]) == (folder.kept.run_id, answer["error"])
    assert '"to": "what"' in kept["content"]
    assert ((office.home / "errors").stat().st_mode & 0o777) == 0o700


async def test_a_file_that_is_no_command_is_refused_and_on_record(office, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    folder = await office.opened()
    (folder.out / "link.json").symlink_to(secret)
    (folder.out / os.fsdecode(b"\xff\n.json")).write_text("{}")
    (folder.out / "full.json" / "deep").mkdir(parents=True)
    folder.put("half", b'{"request_id": "x"')
    folder.command("z", "note")
    await office.answered(folder, "z")
    await until(lambda: folder.left() == [b"full.json"])
    assert folder.reply("link")["error"]["code"] == "symlink"
    assert folder.reply("half")["error"]["code"] == "not_json"
    assert folder.reply("full")["error"]["code"] == "not_a_file"
    (odd,) = folder.replies.glob("refused-*.json")
    assert folder.reply(odd.stem)["error"]["code"] == "bad_name"
    requests = await office.bench.store.read(list_audit_entries, None, 1 << 62, 10)
    said = {(each.caller, each.command, each.subject["why"]) for each in requests}
    name = f"attempt:{folder.kept.run_id}.1"
    whys = ("symlink", "not_json", "not_a_file", "bad_name")
    assert said == {(name, "mailbox_rejected", why) for why in whys}
    assert "the secret" not in str(office.errors())
    folder.command("again", "note")
    await office.answered(folder, "again")
    assert len(await office.bench.store.read(list_audit_entries, None, 1 << 62, 10)) == 4, (
        "told once"
    )


async def test_what_is_kept_for_people_holds_no_secret(office):
    folder = await office.opened()
    folder.command("a", "dance", text=f'"{CANARY}"')
    folder.put(CANARY, b"{ half " + b"." * 65_530 + CANARY.encode())
    await office.answered(folder, "a")
    await office.answered(folder, CANARY)
    written = [file.name + file.read_text() for file in (office.home / "errors").iterdir()]
    assert len(written) == 2
    assert not any(CANARY[:8] in each for each in written), written
    assert all("[secret canary]" in each for each in written)


async def test_a_flood_ends_its_own_program_and_nobody_else_s(office):
    hostile, other = await office.opened(), await office.opened()
    for number in range(serving_module.MOST_WAITING + 1):
        (hostile.out / f"f{number}.json.tmp").touch()
    hostile.command("a", "note")
    await until(lambda: office.stopped)
    other.command("a", "note")
    assert (await office.answered(other, "a"))["ok"]
    assert office.stopped == [serving_module.FLOODED]
    assert await office.post.close(hostile.kept, drain=True) == serving_module.FLOODED
    assert await office.post.close(other.kept, drain=True) is None


async def test_who_only_writes_rubbish_is_stopped(office, monkeypatch):
    monkeypatch.setattr(serving_module, "MOST_REFUSED", 3)
    folder = await office.opened()
    for number in range(4):
        folder.put(f"x{number}", b"rubbish")
    await until(lambda: office.stopped)
    assert "invalid files" in office.stopped[0]
    assert len(office.errors()) == 3


async def test_what_was_left_at_the_end_is_done_before_the_end_and_nothing_after(office):
    folder = await office.opened()
    office.notebook.free.clear()
    folder.command("a", "note", text="a")
    await office.notebook.begun.wait()
    for name in "bc":
        folder.command(name, "note", text=name)
    closing = asyncio.ensure_future(office.post.close(folder.kept, drain=True))
    await asyncio.sleep(0)
    assert not closing.done()
    office.notebook.free.set()
    assert await closing is None
    assert [text for _, text in office.notebook.notes] == ["a", "b", "c"]
    folder.command("d", "note", text="late")
    await office.opened()
    assert await office.post.close(folder.kept, drain=True) is None
    assert folder.left() == [b"d.json"]
    assert len(office.notebook.notes) == 3


async def test_nothing_more_is_done_for_a_run_that_somebody_stopped(office):
    folder = await office.opened()
    office.notebook.free.clear()
    folder.command("a", "note")
    await office.notebook.begun.wait()
    folder.command("b", "note")
    assert await office.post.close(folder.kept, drain=False) is None
    assert len(office.notebook.notes) == 1


async def test_an_attempt_that_is_over_is_told_once_and_not_served_again(office):
    folder = await office.opened()
    folder.command("a", "over")
    assert (await office.answered(folder, "a"))["error"]["code"] == "fenced"
    await until(lambda: folder.left() == [])
    folder.command("b", "note")
    assert await office.post.close(folder.kept, drain=True) is None
    assert (office.notebook.notes, office.stopped) == ([], [])


async def test_the_next_process_serves_what_the_last_one_had_begun_and_answers_the_same(office):
    folder = await office.opened()
    office.notebook.free.clear()
    folder.command("a", "note", text="once")
    await office.notebook.begun.wait()
    office.post.shut()
    assert folder.left() == [b"a.json"], "it was carried out, and nobody was told"
    office.notebook.free.set()
    office.post = office.another()
    folder.given = folder.given._replace(kept=folder.kept)
    await office.open(folder)
    assert await office.answered(folder, "a") == {"ok": True, "note": 1}
    assert office.notebook.notes == [(folder.kept.run_id, "once")]


class Wavering:
    """A desk whose store does not answer at first."""

    def __init__(self, desk, times):
        self._desk, self.left = desk, times

    async def serve(self, held, verb, fields, request_id):
        if verb == "note" and self.left:
            self.left -= 1
            raise Unavailable("the store is gone")
        return await self._desk.serve(held, verb, fields, request_id)


@pytest.mark.parametrize(("times", "ok"), [(2, True), (10, False)])
async def test_a_store_that_is_gone_for_a_moment_is_waited_for(office, monkeypatch, times, ok):
    monkeypatch.setattr(serving_module, "PATIENCE", (0.0, 0.0, 0.0))
    office.post.shut()
    wavering, office.notebook = Wavering(office.notebook, times), office.notebook
    notebook, office.notebook = office.notebook, wavering
    office.post, office.notebook = office.another(), notebook
    folder = await office.opened()
    folder.command("a", "note")
    assert (await office.answered(folder, "a"))["ok"] is ok
    assert len(notebook.notes) == int(ok)


@pytest.mark.parametrize("broken", ["poll", "watch"])
async def test_without_a_ring_it_is_looked_into_now_and_then(office, monkeypatch, broken):
    if broken == "poll":
        monkeypatch.setattr(FolderWatcher, "arm", lambda self, folder, ring: 1)
        monkeypatch.setattr(serving_module, "POLL_SECONDS", 0.01)
    else:
        monkeypatch.setattr(FolderWatcher, "arm", lambda self, folder, ring: None)
        monkeypatch.setattr(serving_module, "UNWATCHED_SECONDS", 0.01)
    folder = await office.opened()
    folder.command("a", "note")
    assert (await office.answered(folder, "a"))["ok"]


async def test_a_mailbox_in_which_nothing_changes_is_not_listed_again(office, monkeypatch):
    listed, looked = 0, asyncio.Event()
    waiting, changed = Mailbox.waiting, Mailbox.changed

    def listing(box, most):
        nonlocal listed
        listed += 1
        return waiting(box, most)

    looks = iter(range(1_000))

    def look(box):
        if next(looks) == 20:
            looked.set()
        return changed(box)

    monkeypatch.setattr(serving_module, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(FolderWatcher, "arm", lambda self, folder, ring: 1)
    monkeypatch.setattr(Mailbox, "waiting", listing)
    monkeypatch.setattr(Mailbox, "changed", look)
    folder = await office.opened()
    await looked.wait()
    assert listed <= 3  # at first, and until two looks were alike
    folder.command("a", "note")  # and nobody rings for it
    assert (await office.answered(folder, "a"))["ok"]


async def test_a_mailbox_that_was_taken_away_fails_the_attempt(office):
    folder = await office.opened()
    folder.replies.rmdir()
    folder.command("a", "note")
    await until(lambda: office.stopped)
    assert "its mailbox is damaged" in await office.post.close(folder.kept, drain=True)


async def test_a_mailbox_that_is_not_there_is_unavailable(office):
    folder = await office.opened()
    office.post.release(folder.kept.run_id)
    folder.out.rmdir()
    with pytest.raises(Unavailable, match="its mailbox cannot be opened"):
        await office.open(folder)


async def test_only_so_many_errors_are_kept(office, monkeypatch):
    monkeypatch.setattr("rota.agent_api.mailbox.processor.MAX_FILES", 3)
    folder = await office.opened()
    for number in range(6):
        folder.command(f"r{number}", "dance")
        await office.answered(folder, f"r{number}")
        office.bench.clock.advance(seconds=1)
    assert [each["file"] for each in office.errors()] == ["r3.json", "r4.json", "r5.json"]

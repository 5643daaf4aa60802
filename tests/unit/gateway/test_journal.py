"""Writes under a name: passed on once, noted before, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import stat

import pytest

from rota.gateway import grants, journal
from rota.gateway import journal as module
from rota.gateway.grants import RETENTION_SECONDS, WriteMarks
from rota.gateway.journal import JournalEntry, JournalFull, JournalKey, WriteJournal, journal_key
from tests.system.gateway.upstream import Upstream
from tests.unit.gateway.gateways import HEAD, Door, ask

# at the gateway

ORDER = HEAD + "Rota-Effect: order-17\r\nContent-Length: 2\r\n"


@pytest.fixture
def provider():
    with Upstream() as made:
        made.script.go.set()
        yield made


@pytest.fixture
def door(provider, tmp_path):
    return Door(provider, tmp_path / "exit", effects=True)


def told(door, first="POST /models/v1/201", headers=ORDER, body=b"{}", times=1):
    """Ask so many times, and return each answer: its status, what it says of the effect, its body."""

    async def go():
        async with door.open() as port:
            return [await ask(port, first, headers, body) for _ in range(times)]

    return [(status, mark_in(head), whole) for status, head, whole in asyncio.run(go())]


def mark_in(head):
    return next((line[13:] for line in head.splitlines() if line.startswith("rota-effect: ")), None)


def code_of(answer):
    return answer[0], json.loads(answer[2])["error"]["code"]


def count(provider):
    return len(provider.script.noted)


def test_a_write_under_a_name_is_passed_on_once_and_answered_alike(door, provider):
    first, again, third = told(door, times=3)
    assert first == (201, "done", b'{"order": 1}')
    assert again == third == (201, "already-done", b'{"order": 1}')
    assert count(provider) == 1
    assert door.wrote == [("1-1", 0)]
    assert door.used == ["models"]


def test_the_name_is_between_the_program_and_the_gateway_alone(door, provider):
    """An upstream neither hears it, though the operator lets it, nor speaks in its place."""
    object.__setattr__(door.gate.upstreams["models"], "passed", ("rota-effect",))
    assert told(door)[0][1] == "done"
    plain = HEAD + "Content-Length: 2\r\n"
    assert told(door, headers=plain)[0][1] is None
    assert count(provider) == 2
    assert all("rota-effect" not in noted.headers for noted in provider.script.noted)


def test_without_a_name_everything_is_done_as_often_as_it_is_asked_for(door, provider, tmp_path):
    told(door, headers=HEAD + "Content-Length: 2\r\n", times=3)
    assert count(provider) == 3
    assert not (tmp_path / "effects").exists()


@pytest.mark.parametrize(
    ("first", "body"),
    [
        ("POST /models/v1/201", b"[]"),
        ("POST /models/v1/200", b"{}"),
        ("POST /models/v1/201?a=b", b"{}"),
    ],
)
def test_another_request_under_the_same_name_is_refused(door, provider, first, body):
    told(door)
    assert code_of(told(door, first, body=body)[0]) == (409, "effect_differs")
    assert told(door)[0][1] == "already-done"
    assert count(provider) == 1


def test_a_body_in_chunks_is_the_same_as_one_in_a_piece(door, provider):
    chunked = HEAD + "Rota-Effect: order-17\r\nTransfer-Encoding: chunked\r\n"
    assert told(door)[0][1] == "done"
    assert (
        told(door, headers=chunked, body=b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n")[0][1] == "already-done"
    )
    assert provider.script.noted[0].headers["content-length"] == ["2"]


def test_another_attempt_of_the_run_is_told_and_another_run_is_not(door, provider):
    told(door)
    door.permit.name = "1-2"
    assert told(door)[0][1] == "already-done"
    door.permit.scope = "run 2"
    assert told(door)[0] == (201, "done", b'{"order": 2}')
    door.permit.space = 2
    assert told(door)[0][1] == "done"


@pytest.mark.parametrize("status", [200, 204, 303])
def test_an_answer_that_is_no_refusal_is_kept(door, provider, status):
    first, again = told(door, f"POST /models/v1/{status}", times=2)
    assert (first[0], first[1], again[0], again[1]) == (status, "done", status, "already-done")
    assert (first[2], count(provider)) == (again[2], 1)


@pytest.mark.parametrize("status", [307, 308, 400, 401, 409, 422, 429])
def test_who_refuses_has_not_done_it_and_may_be_asked_again(door, provider, status):
    first, again = told(door, f"POST /models/v1/{status}", times=2)
    assert (first[:2], again[:2]) == ((status, "refused"), (status, "refused"))
    assert count(provider) == 2
    assert told(door)[0][1] == "done"


def test_a_write_may_follow_to_where_it_was_sent_under_its_name(door, provider):
    assert told(door, "POST /models/v1/307")[0][:2] == (307, "refused")
    assert told(door, "POST /models/v1/201")[0][:2] == (201, "done")
    assert told(door, "POST /models/v1/201")[0][:2] == (201, "already-done")
    assert count(provider) == 2


def test_whose_bytes_run_out_in_the_middle_of_a_write_is_told_that_nobody_knows(door, provider):
    noting = door.note_write

    async def and_others_spend(name):
        await noting(name)
        door.permit.bytes_left = 1

    door.exchange.on_write = and_others_spend
    assert code_of(told(door)[0]) == (409, "effect_unknown")
    door.permit.bytes_left = 1 << 20
    assert code_of(told(door)[0]) == (409, "effect_unknown")


@pytest.mark.parametrize("status", [300, 301, 302, 408, 500, 502, 503, 504])
def test_who_fails_may_have_done_it_and_is_not_asked_again(door, provider, status):
    first, again = told(door, f"POST /models/v1/{status}", times=2)
    assert first == (status, "unknown", b'{"order": 1}')
    assert code_of(again) == (409, "effect_unknown")
    assert "may have happened" in again[2].decode()
    assert count(provider) == 1


@pytest.mark.parametrize("path", ["hangs-up", "cut"])
def test_an_answer_that_breaks_off_leaves_it_unknown(door, provider, path):
    answers = told(door, f"POST /models/v1/{path}", times=2)
    assert [code_of(answer) for answer in answers] == [(409, "effect_unknown")] * 2
    assert count(provider) == 1


def test_an_upstream_that_is_not_reached_leaves_the_name_free(door, provider, tmp_path):
    known = door.gate.upstreams["models"]
    port = known.port
    object.__setattr__(known, "port", 1)
    assert code_of(told(door)[0]) == (502, "upstream_unreached")
    assert not (tmp_path / "effects").exists()
    object.__setattr__(known, "port", port)
    assert told(door)[0][1] == "done"


def test_two_at_once_are_one(door, provider):
    provider.script.go.clear()

    async def go():
        async with door.open() as port:
            first = asyncio.ensure_future(ask(port, "POST /models/v1/slow", ORDER, b"{}"))
            await asyncio.to_thread(provider.script.begun.wait, 20)
            others = [
                asyncio.ensure_future(ask(port, "POST /models/v1/slow", ORDER, b"{}"))
                for _ in range(20)
            ]
            other = ORDER.replace("order-17", "other")
            assert (await ask(port, "POST /models/v1/201", other, b"{}"))[0] == 201
            provider.script.go.set()
            return await asyncio.gather(first, *others)

    answers = asyncio.run(asyncio.wait_for(go(), 30))
    assert sorted(mark_in(head) for _, head, _ in answers) == ["already-done"] * 20 + ["done"]
    assert {whole for _, _, whole in answers} == {b'{"order": 2}'}
    assert count(provider) == 2
    assert all("set-cookie" not in head for _, head, _ in answers)


def test_who_hangs_up_meanwhile_is_told_the_answer_when_it_asks_again(door, provider):
    provider.script.go.clear()

    async def go():
        async with door.open() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"POST /models/v1/slow HTTP/1.1\r\n{ORDER}\r\n{{}}".encode())
            await asyncio.to_thread(provider.script.begun.wait, 20)
            writer.transport.abort()
            again = asyncio.ensure_future(ask(port, "POST /models/v1/slow", ORDER, b"{}"))
            provider.script.go.set()
            return await again

    _, head, whole = asyncio.run(asyncio.wait_for(go(), 30))
    assert (mark_in(head), whole) == ("already-done", b'{"order": 1}')
    assert count(provider) == 1


@pytest.mark.parametrize(
    "named",
    [
        "Rota-Effect: \r\n",
        "Rota-Effect: two words\r\n",
        "Rota-Effect: a/b\r\n",
        "Rota-Effect: ../../x\r\n",
        "Rota-Effect: \xe4\r\n",
        f"Rota-Effect: {'x' * 201}\r\n",
        "Rota-Effect: a\r\nRota-Effect: b\r\n",
    ],
)
def test_a_name_that_is_none_is_refused(door, provider, named):
    answer = told(door, headers=HEAD + named + "Content-Length: 2\r\n")[0]
    assert code_of(answer) == (400, "bad_request")
    assert "Rota-Effect takes one name" in answer[2].decode()
    assert count(provider) == 0


def test_a_read_has_no_name(door, provider):
    answer = told(door, "GET /models/v1/x", HEAD + "Rota-Effect: a\r\n", b"")[0]
    assert code_of(answer) == (400, "bad_request")
    assert count(provider) == 0


def test_a_request_too_long_is_refused_before_it_is_read_or_once_it_is(door, provider):
    length = journal.MAX_STORED_BYTES + 1
    more = HEAD + f"Rota-Effect: a\r\nContent-Length: {length}\r\n"
    assert code_of(told(door, headers=more, body=b"")[0]) == (413, "effect_too_long")
    more = HEAD + "Rota-Effect: a\r\nTransfer-Encoding: chunked\r\n"
    body = b"%x\r\n" % length + b"x" * length + b"\r\n"
    assert code_of(told(door, headers=more, body=body)[0]) == (413, "effect_too_long")
    assert count(provider) == 0


def test_an_answer_too_long_to_keep_is_told_once_and_known_as_done(door, provider):
    provider.script.flood = 2 * journal.MAX_STORED_BYTES
    first, again = told(door, "POST /models/v1/long", times=2)
    assert (first[:2], len(first[2])) == ((200, "done"), 2 + provider.script.flood)
    assert code_of(again) == (409, "effect_done")
    assert "status 200" in again[2].decode()
    assert count(provider) == 1


def test_a_space_that_is_full_writes_under_no_new_name(door, provider, monkeypatch):
    monkeypatch.setattr(journal, "MAX_ENTRIES", 1)
    told(door)
    full = told(door, headers=ORDER.replace("order-17", "other"))[0]
    assert code_of(full) == (403, "effects_full")
    assert told(door)[0][1] == "already-done"
    assert count(provider) == 1


def test_what_cannot_be_noted_is_not_passed_on(door, provider, tmp_path):
    (tmp_path / "effects").mkdir()
    (tmp_path / "effects" / "1").touch()
    assert code_of(told(door)[0]) == (503, "not_noted")
    assert count(provider) == 0


def test_an_answer_that_cannot_be_kept_is_told_as_one(door, provider, tmp_path):
    provider.script.go.clear()

    async def go():
        async with door.open() as port:
            first = asyncio.ensure_future(ask(port, "POST /models/v1/slow", ORDER, b"{}"))
            await asyncio.to_thread(provider.script.begun.wait, 20)
            (note,) = (tmp_path / "effects" / "1").iterdir()
            note.with_name(f"{note.name}~").mkdir()
            provider.script.go.set()
            return await first, await ask(port, "POST /models/v1/slow", ORDER, b"{}")

    first, again = asyncio.run(asyncio.wait_for(go(), 30))
    assert (first[0], mark_in(first[1])) == (201, "unknown")
    assert again[0] == 409
    assert count(provider) == 1


def test_a_run_older_than_effects_are_kept_is_told_that_nobody_knows(door, provider, tmp_path):
    told(door)
    door.permit.since = tmp_path.stat().st_mtime - RETENTION_SECONDS - 60
    assert told(door)[0][1] == "already-done"
    other = told(door, headers=ORDER.replace("order-17", "other"))[0]
    assert code_of(other) == (409, "effect_unknown")
    assert "without Rota-Effect" in other[2].decode()
    assert count(provider) == 1


def test_what_is_told_again_counts_against_the_budget(provider, tmp_path):
    door = Door(provider, tmp_path / "exit", requests_left=2)
    answers = told(door, times=3)
    assert [status for status, _, _ in answers] == [201, 201, 403]
    assert door.permit.byte_count == 2 + 2 * len(answers[0][2])


def test_the_connection_stays_for_the_next_request(door, provider):
    async def go():
        async with door.open() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for mark in (b"done", b"already-done"):
                writer.write(f"POST /models/v1/201 HTTP/1.1\r\n{ORDER}\r\n{{}}".encode())
                assert b"rota-effect: %b\r\n" % mark in await reader.readuntil(b"}")
            writer.close()

    asyncio.run(asyncio.wait_for(go(), 20))
    assert count(provider) == 1


def test_who_expects_to_be_told_to_go_on_is_told(door, provider):
    more = ORDER + "Expect: 100-continue\r\n"
    ((status, _, rest),) = told(door, headers=more)
    assert (status, rest.startswith(b"HTTP/1.1 201 ")) == (100, True)
    assert "expect" not in provider.script.noted[0].headers


def test_nothing_is_left_open(door, provider):
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    told(door, times=10)
    told(door, "POST /models/v1/503", ORDER.replace("order-17", "other"), times=10)
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


# notes of writes

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


# attempts that have written


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


@pytest.fixture
def writes(folder):
    made = WriteMarks(folder)
    made.open()
    return made


def test_what_is_not_noted_is_not_known(folder, writes, tmp_path):
    assert grants.has_written(folder, "1-1") is None
    (tmp_path / "wrote" / "1-1").touch()  # it was being written when the power went
    assert grants.has_written(folder, "1-1") is None
    assert grants.has_written(str(tmp_path / "gone"), "1-1") is None


def test_the_first_write_counts_for_every_try_until_the_attempt_is_forgotten(folder, writes):
    grants.mark_started(folder, "1-1")
    assert grants.has_written(folder, "1-1") is False
    asyncio.run(writes.mark_written("1-1"))
    grants.mark_started(folder, "1-1")
    writes.close("1-1")
    assert grants.has_written(folder, "1-1") is True
    assert grants.has_written(folder, "1-2") is None
    grants.delete_mark(folder, "1-1")
    assert grants.has_written(folder, "1-1") is None


def test_many_at_once_are_noted_once(folder, writes):
    async def many():
        await asyncio.gather(*(writes.mark_written("1-1") for _ in range(20)))

    asyncio.run(many())
    assert os.listdir(os.path.join(folder, "wrote")) == ["1-1"]  # noqa: PTH118, PTH208


def test_what_cannot_be_noted_is_told_and_tried_again(folder, writes, tmp_path):
    (tmp_path / "wrote").rmdir()
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(writes.mark_written("1-1"))
    writes.open()
    asyncio.run(writes.mark_written("1-1"))
    assert grants.has_written(folder, "1-1") is True


def test_what_nobody_came_back_for_is_forgotten_after_a_while(folder, writes, tmp_path):
    grants.mark_started(folder, "1-1")
    grants.mark_started(folder, "2-1")
    path = tmp_path / "wrote" / "1-1"
    old = path.stat().st_mtime - RETENTION_SECONDS - 60
    os.utime(path, (old, old))
    writes.open()
    assert (grants.has_written(folder, "1-1"), grants.has_written(folder, "2-1")) == (None, False)

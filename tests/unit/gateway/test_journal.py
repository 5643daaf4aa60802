"""Writes under a name at the gateway itself: passed on once, whatever is asked for again."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from rota.gateway import journal
from rota.gateway.grants import RETENTION_SECONDS
from tests.system.gateway.upstream import Upstream
from tests.unit.gateway.gateways import HEAD, Door, ask

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

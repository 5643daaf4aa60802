"""One caller never takes all of what callers share: connections, requests, and long bodies."""

import asyncio
import re
import socket

import pytest

from rota.api.http_server import ListenAddress
from rota.api.middleware import (
    LONGEST_BODY,
    SMALL_BODY,
    Reading,
)
from rota.api.middleware import (
    MAX_BODY_BYTES_OF_SPACE as MOST_HELD_OF_SPACE,
)
from rota.commands.catalogue import MAX_ERRORS
from rota.commands.json_size import MOST_VALUES
from rota.model.keys import KeyScope
from tests.api.conftest import PATIENCE
from tests.api.test_attacks import read_all, status_of

MOST = 24


@pytest.fixture
def place(parser):
    return ListenAddress(port=0, connections=MOST)


@pytest.fixture
def wires():
    """Connections that are open until the test ends."""
    opened = []
    yield opened
    for wire in opened:
        wire.close()


@pytest.fixture
def connect(door, wires):
    def connected():
        wires.append(socket.create_connection(("127.0.0.1", door.port), PATIENCE))
        return wires[-1]

    return connected


def head(client, *lines, first="GET /v1/tasks HTTP/1.1"):
    always = ["Host: 127.0.0.1", f"Authorization: Bearer {client.token}"]
    return "\r\n".join([first, *always, *lines, "", ""]).encode()


def ask(wire, client):
    """Ask on a connection that stays open, and return what came; nothing once it was closed."""
    try:
        wire.sendall(head(client))
        return answer_on(wire)
    except ConnectionError:
        return b""


def answer_on(wire):
    """Read one answer to its end, and leave the connection open."""
    answer = b""
    while part := wire.recv(1 << 16):
        answer += part
        lines, end, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", lines)
        if end and (length is None or len(body) >= int(length[1])):
            break
    return answer


def test_idle_strangers_make_room_for_whoever_comes(door, connect):
    strangers = [connect() for _ in range(3 * MOST)]
    assert door.ann.get("/v1/tasks").status == 200
    assert door.nobody.get("/healthz").status == 200
    assert [wire.recv(1) for wire in strangers[: 2 * MOST]] == [b""] * (2 * MOST), "oldest first"


def test_strangers_with_half_a_head_or_a_refused_request_make_room_too(door, connect):
    for _ in range(MOST):
        connect().sendall(b"GET /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    assert door.ann.get("/v1/tasks").status == 200
    for _ in range(MOST):
        wire = connect()
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert status_of(answer_on(wire)) == 200
    assert door.ann.get("/v1/tasks").status == 200


def test_strangers_do_not_close_the_connections_of_those_who_have_a_key(door, connect):
    known = [connect() for _ in range(MOST // 2)]
    assert {status_of(ask(wire, door.ann)) for wire in known} == {200}
    for _ in range(5 * MOST):
        connect()
    assert {status_of(ask(wire, door.ann)) for wire in known} == {200}


def test_the_space_with_the_most_idle_connections_makes_room(door, connect):
    of_bob = connect()
    assert status_of(ask(of_bob, door.bob)) == 200
    of_ann = [connect() for _ in range(MOST - 1)]
    assert {status_of(ask(wire, door.ann)) for wire in of_ann} == {200}
    assert door.main.get("/v1/tasks").status == 200
    assert ask(of_ann[0], door.ann) == b"", "the one that was idle for longest"
    assert status_of(ask(of_bob, door.bob)) == 200


def test_whoever_finds_every_connection_at_work_is_told_to_come_again(door, connect):
    for _ in range(MOST):
        wire = connect()
        wire.sendall(head(door.main, first="GET /v1/events HTTP/1.1"))
        assert status_of(answer_on(wire)) == 200
    answer = read_all(connect())
    assert status_of(answer) == 503
    assert b"retry-after" in answer


class TestRequests:
    @pytest.fixture
    def bounds(self):
        return {"requests_of_space": 2}

    def test_a_space_has_only_so_many_requests_under_way(self, door, connect):
        post = "POST /v1/tasks HTTP/1.1"
        begun = [connect() for _ in range(2)]
        for wire in begun:
            wire.sendall(
                head(door.ann, "Content-Type: application/json", "Content-Length: 9", first=post)
                + b"{"
            )
        while (refused := door.client("ann").get("/v1/tasks")).status == 200:
            pass  # until the server has seen both heads
        assert (refused.status, refused.code) == (429, "too_many_requests")
        assert "retry-after" in refused.headers
        assert door.bob.get("/v1/tasks").status == 200
        assert door.main.get("/v1/tasks").status == 200
        for wire in begun:
            wire.sendall(b"       }")
            assert status_of(answer_on(wire)) == 400
        assert door.ann.get("/v1/tasks").status == 200


def test_a_body_that_its_key_does_not_allow_is_not_read(door, connect):
    reader = door.client("ann", {KeyScope.READ})
    wire = connect()
    lines = ["Content-Type: application/json", f"Content-Length: {LONGEST_BODY}"]
    wire.sendall(head(reader, *lines, first="POST /v1/tasks HTTP/1.1"))
    answer = answer_on(wire)
    assert status_of(answer) == 403, "answered before any of it has come"


def test_a_body_of_too_many_values_is_refused_before_they_are_built(door):
    crowd = {"payload": [0] * (MOST_VALUES + 1), "text": "x" * SMALL_BODY}
    told = door.ann.post("/v1/tasks", crowd)
    assert (told.status, told.code) == (400, "invalid")
    assert f"at most {MOST_VALUES} values" in told.sentence
    commas = {"name": "job", "instructions": "," * (2 * MOST_VALUES) + "x" * SMALL_BODY}
    assert "values" not in door.ann.post("/v1/tasks", commas).text, "a text may have any number"


def test_of_very_many_errors_none_is_looked_for(door):
    told = door.ann.post("/v1/tasks", {f"k{n}": 1 for n in range(MAX_ERRORS + 1)})
    assert (told.status, told.field) == (400, "body")
    assert "errors" in told.sentence


def test_bodies_of_a_space_are_counted_together_whatever_its_keys(door, connect):
    lines = ["Content-Type: application/json", f"Content-Length: {LONGEST_BODY}"]
    keys = [door.ann, door.client("ann")]
    many = MOST_HELD_OF_SPACE // LONGEST_BODY
    for n in range(many):
        client = keys[n % 2]
        connect().sendall(head(client, *lines, first="POST /v1/tasks HTTP/1.1"))
    wanted = {"name": "job", "instructions": "x" * SMALL_BODY, "what": "is this?"}
    for client in keys:
        while (told := client.post("/v1/tasks", wanted)).status == 400:
            pass  # until the server has seen all heads
        assert (told.status, told.code) == (429, "too_many_bodies")
    assert door.ann.get("/v1/tasks").status == 200
    assert door.bob.post("/v1/tasks", wanted).status == 400, "read, and found wrong"


class TestReading:
    async def test_large_bodies_are_read_one_after_the_other(self):
        reading, under_way, order = Reading(), [], []

        def read(body):
            assert not under_way
            order.append(body[:1])
            return len(body)

        bodies = [bytes([n]) * (SMALL_BODY + 1) for n in range(4)]
        sizes = await asyncio.gather(*(reading.read(body, read) for body in bodies))
        assert sizes == [SMALL_BODY + 1] * 4
        assert order == [body[:1] for body in bodies]

    async def test_a_small_body_does_not_wait_for_large_ones(self):
        reading, order = Reading(), []
        bodies = [b"a" * (SMALL_BODY + 1), b"b" * (SMALL_BODY + 1), b"c"]
        await asyncio.gather(
            *(reading.read(body, lambda b: order.append(b[:1])) for body in bodies)
        )
        assert order == [b"a", b"c", b"b"]


class TestQuotas:
    def test_a_full_queue_refuses_whichever_way_a_run_comes(self, door):
        assert door.ann.post("/v1/tasks", {"name": "job", "instructions": "Look."}).status == 201
        assert door.ann.get("/v1/tasks/job").status == 200
        limit = {"scope": "space", "key": "queued/ann", "cap": 1}
        assert door.main.put("/v1/limits", limit).status == 200
        first = door.ann.post("/v1/tasks/job/run-now", Idempotency_Key="one")
        assert first.status == 201
        for path, body in (
            ("/v1/tasks/job/run-now", {}),
            ("/v1/runs", {"task": "job"}),
            ("/v1/threads/cli:ann/messages", {"text": "hello"}),
        ):
            told = door.ann.post(path, body)
            assert (told.status, told.code) == (409, "over_limit"), path
            assert "limit_space_queued" in told.sentence
        again = door.ann.post("/v1/tasks/job/run-now", Idempotency_Key="one")
        assert (again.status, again.json) == (201, first.json)
        assert door.main.put("/v1/limits", limit | {"key": "queued/main"}).status == 400

    def test_a_schedule_too_many_is_refused_and_its_task_is_not_made(self, door):
        limit = {"scope": "space", "key": "schedules", "cap": 2}
        assert door.main.put("/v1/limits", limit).status == 200
        wish = {"instructions": "Look.", "schedule": {"every": "1h"}}
        told = [door.ann.post("/v1/tasks", wish | {"name": f"job{n}"}) for n in range(3)]
        assert [each.status for each in told] == [201, 201, 409]
        assert "limit_space_schedules" in told[2].sentence
        assert door.ann.get("/v1/tasks/job2").status == 404
        assert door.main.post("/v1/tasks", wish | {"name": "job"}).status == 201

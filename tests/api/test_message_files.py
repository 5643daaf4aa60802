"""Files with messages over HTTP: what is taken, what is refused, and how much at once."""

import base64
import hashlib
import json
import socket
import time
from contextlib import closing

import pytest

from rota.api.middleware import LONGER, LONGER_SCOPE, LONGEST_BODY, LONGEST_OF_ALL
from rota.cli.remote import DaemonRefused, HttpClient
from rota.commands.catalogue import every_command
from rota.model.keys import KeyScope
from rota.model.threads import MAX_FILES_BYTES, MAX_PENDING_BYTES
from rota.store.threads import read_message_file
from tests.api.conftest import PATIENCE
from tests.api.test_attacks import read_all, status_of
from tests.conftest import KINDS

PATH = "/v1/threads/web:ann:1/messages"
ODD = bytes(range(256))


def file_of(content=ODD, name="a.png", **more):
    return {"name": name, "data": base64.b64encode(content).decode(), **more}


def say(client, *files, text="Look.", path=PATH, **more):
    return client.post(path, {"text": text, "files": list(files)}, **more)


def content(door, message, position=0):
    return door.run(door.store.read(read_message_file, message, position))


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_taken_and_told_but_for_their_content(door):
    told = say(door.ann, file_of(), file_of(b"", "b", type="text/Plain"), text="")
    assert told.status == 201, told.json
    digest = hashlib.sha256(ODD).hexdigest()
    assert told.json["files"][0] == {
        "name": "a.png", "type": "image/png", "size": 256, "sha256": digest
    }  # fmt: skip
    assert told.json["files"][1]["type"] == "text/plain"
    (shown,) = door.ann.get(PATH).json["messages"]
    assert (shown["text"], shown["files"]) == ("", told.json["files"])
    assert [content(door, told.json["id"], at) for at in range(2)] == [ODD, b""]


@pytest.mark.parametrize("kind", KINDS)
def test_ten_mebibytes_go_with_a_message_and_not_one_byte_more(door):
    most = file_of(bytes(MAX_FILES_BYTES))
    told = say(door.ann, most)
    assert told.status == 201, told.json
    assert content(door, told.json["id"]) == bytes(MAX_FILES_BYTES)
    told = say(door.ann, most, file_of(b"x", "b"))
    assert (told.status, told.json["error"]["field"]) == (400, "files")
    assert "10 MiB" in told.json["error"]["message"]
    assert len(door.ann.get(PATH).json["messages"]) == 1


@pytest.mark.parametrize(
    "files",
    [[file_of(name="../x")], [file_of(name="a/b")], [file_of(name="")], [file_of(name="x" * 121)],
     [file_of(name="a\u202eb")], [file_of(), file_of(name="A.PNG")], [file_of(type="png")],
     [file_of(type="a/b; c=d")], [file_of(name=f"{n}.txt") for n in range(11)],
     [{"name": "a"}], [{"name": "a", "data": "e"}], [{"name": "a", "data": "e==="}],
     [{"name": "a", "data": "ab\ncd"}], [{"name": "a", "data": "_-8="}], [{"name": "a", "data": "aR=="}],
     [{"name": "a", "data": "é==="}], [{"name": "a", "data": 7}], [file_of() | {"more": 1}],
     "a.png", [["a"]], [None], {"name": "a"}],
)  # fmt: skip
def test_rubbish_is_refused_in_one_sentence_and_nothing_is_said(door, files):
    told = door.ann.post(PATH, {"text": "Look.", "files": files})
    assert told.status == 400, told.json
    assert len(told.json["error"]["message"]) < 500
    assert door.ann.get(PATH).status == 404


def test_a_message_says_something_or_carries_something(door):
    for said in ({}, {"text": ""}, {"text": "", "files": []}):
        told = door.ann.post(PATH, said)
        assert (told.status, told.json["error"]["field"]) == (400, "text"), told.json


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_request_sends_the_files_once_and_another_one_is_a_conflict(door):
    key = {"Idempotency_Key": "once"}
    first = say(door.ann, file_of(), **key)
    again = say(door.ann, file_of(), **key)
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert say(door.ann, file_of(b"x"), **key).status == 409
    assert len(door.ann.get(PATH).json["messages"]) == 1


def test_a_rehearsal_leaves_nothing(door):
    told = say(door.ann, file_of(), Rota_Dry_Run="true")
    assert told.status == 204
    assert door.ann.get(PATH).status == 404


def test_they_are_no_strangers_business(door):
    assert say(door.ann, file_of()).status == 201
    assert say(door.bob, file_of()).status == 404
    assert door.bob.get(PATH).status == 404


def test_so_many_bytes_wait_for_a_reader(door):
    most = file_of(bytes(MAX_FILES_BYTES))
    for _ in range(MAX_PENDING_BYTES // MAX_FILES_BYTES):
        assert say(door.ann, most).status == 201
    told = say(door.ann, file_of())
    assert told.status == 409
    assert "to be read" in told.json["error"]["message"]


def head(client, path=PATH, length=LONGEST_BODY + 1, *more):
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {client.token}",
             "Content-Type: application/json", f"Content-Length: {length}", *more]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode()


def wire_to(door):
    return socket.create_connection(("127.0.0.1", door.port), PATIENCE)


def test_what_takes_longer_bodies_is_a_command():
    known = {(command.method, command.path): command.scope for command in every_command()}
    assert {known[each] for each in LONGER} == {LONGER_SCOPE}


def test_everything_else_stays_short(door):
    for path in ("/v1/tasks", "/v1/threads/a/b/messages", "/v1/threads/a/messages/b"):
        with wire_to(door) as wire:
            wire.sendall(head(door.ann, path))
            assert status_of(read_all(wire)) == 413
    with wire_to(door) as wire:
        wire.sendall(head(door.ann, PATH, LONGEST_OF_ALL + 1))
        assert status_of(read_all(wire)) == 413


def test_a_long_body_that_does_not_say_its_length_is_cut_off(door, parser):
    with wire_to(door) as wire:
        lines = head(door.ann).replace(b"Content-Length: 1048577", b"Transfer-Encoding: chunked")
        wire.sendall(lines)
        wire.settimeout(PATIENCE)
        try:
            for _ in range(40):
                wire.sendall(b"ffff\r\n" + b" " * 0xFFFF + b"\r\n")
            answer = read_all(wire)
        except (BrokenPipeError, ConnectionResetError):
            return
    assert answer == b"" or status_of(answer) == 413


def begun(door, client, length=LONGEST_OF_ALL):
    """Begin a long body, and leave it at that once it is waited for."""
    wire = wire_to(door)
    wire.sendall(head(client, PATH, length, "Expect: 100-continue"))
    assert wire.recv(1024).startswith(b"HTTP/1.1 100")
    return wire


def let_go(door):
    """Wait until nothing is held any more."""
    until = time.monotonic() + PATIENCE
    while door.guard.bodies.held:
        assert time.monotonic() < until
        time.sleep(0.01)


def refused(door, client):
    """Return how a long body is answered that finds no room."""
    with wire_to(door) as wire:
        wire.sendall(head(client, length=LONGEST_OF_ALL))
        answer = read_all(wire)
    lines, _, body = answer.partition(b"\r\n\r\n")
    assert b"retry-after: 2" in lines.lower()
    return status_of(answer), json.loads(body)["error"]["code"]


def test_long_bodies_find_room_for_two_and_one_caller_has_one_of_them(door, parser):
    with begun(door, door.ann):
        assert door.guard.bodies.held == LONGEST_OF_ALL
        assert refused(door, door.ann) == (429, "too_many_bodies")
        assert door.ann.post(PATH, {"text": "short ones go on"}).status == 201
        with begun(door, door.bob):
            assert refused(door, door.main) == (503, "too_many_bodies")
    let_go(door)
    assert say(door.ann, file_of(bytes(LONGEST_BODY))).status == 201
    let_go(door)


def test_the_command_line_tells_why_a_long_request_was_turned_away(door, parser):
    long = {"text": "", "files": [file_of(bytes(MAX_FILES_BYTES))]}
    with closing(HttpClient(f"http://127.0.0.1:{door.port}", door.ann.token)) as daemon:
        with (
            begun(door, door.ann),
            pytest.raises(DaemonRefused, match="requests of your space") as told,
        ):
            daemon.call("POST", PATH, long)
        assert told.value.code == "too_many_bodies"
        let_go(door)
        assert daemon.call("POST", PATH, long)["files"][0]["size"] == MAX_FILES_BYTES


def test_who_may_not_say_anything_holds_nothing(door):
    reader = door.client("ann", scopes=frozenset({KeyScope.READ}))
    with wire_to(door) as wire:
        wire.sendall(head(reader, PATH, LONGEST_OF_ALL))
        assert status_of(read_all(wire)) == 403
    assert door.guard.bodies.held == 0


def test_strangers_hold_nothing(door):
    with wire_to(door) as wire:
        lines = head(door.ann, PATH, LONGEST_OF_ALL).replace(door.ann.token.encode(), b"rota_no")
        wire.sendall(lines)
        assert status_of(read_all(wire)) == 401
    assert door.guard.bodies.held == 0


@pytest.mark.parametrize("size", range(8))
def test_files_of_every_length_come_through(door, size):
    told = say(door.ann, file_of(ODD[-size:] if size else b""))
    assert told.json["files"][0]["size"] == size

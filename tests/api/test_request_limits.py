"""F10: requests that are too long, too many or never end; the door bounds what they take."""

import gzip
import socket
import time

import pytest

from rota.api.http_server import ListenAddress
from tests.api.conftest import PATIENCE
from tests.api.test_attacks import read_all, status_of

SOON = 1.0


@pytest.fixture
def place(parser):
    return ListenAddress(port=0, head_seconds=0.5)


@pytest.fixture
def bounds():
    return {"body_seconds": 0.5}


def connect(door):
    return socket.create_connection(("127.0.0.1", door.port), PATIENCE)


def head(door, *lines, first="POST /v1/tasks HTTP/1.1"):
    always = ["Host: 127.0.0.1", f"Authorization: Bearer {door.main.token}",
              "Content-Type: application/json"]  # fmt: skip
    return "\r\n".join([first, *always, *lines, "", ""]).encode()


def pour(wire, piece, most):
    """Send a piece again and again until the server has had enough; return how much it took."""
    sent = 0
    wire.settimeout(PATIENCE)
    try:
        while sent < most:
            wire.sendall(piece)
            sent += len(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


def health(door):
    began = time.monotonic()
    assert door.nobody.get("/healthz").status == 200
    return time.monotonic() - began


def test_f10_a_gigabyte_is_refused_before_it_is_sent(door):
    with connect(door) as wire:
        wire.sendall(head(door, f"Content-Length: {1 << 30}"))
        assert status_of(read_all(wire)) == 413


def test_f10_a_body_without_end_is_cut_off(door):
    with connect(door) as wire:
        wire.sendall(head(door, "Transfer-Encoding: chunked"))
        sent = pour(wire, b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n", 64 << 20)
    assert sent < 32 << 20
    assert health(door) < SOON


def test_f10_a_body_in_single_bytes_is_cut_off(door):
    with connect(door) as wire:
        wire.sendall(head(door, "Transfer-Encoding: chunked"))
        sent = pour(wire, b"1;x=yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\na\r\n" * 1_000, 64 << 20)
    assert sent < 32 << 20


def test_f10_trailers_without_end_are_cut_off(door):
    with connect(door) as wire:
        wire.sendall(head(door, "Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n")
        sent = pour(wire, b"a: b\r\n" * 10_000, 64 << 20)
    assert sent < 32 << 20


@pytest.mark.parametrize("piece", [b"a: b\r\n" * 1_000, b"a" * 65_536])
def test_f10_headers_without_end_are_cut_off(door, piece):
    with connect(door) as wire:
        wire.sendall(b"GET /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\na: ")
        sent = pour(wire, piece, 64 << 20)
    assert sent < 32 << 20
    assert health(door) < SOON


def test_f10_a_hundred_thousand_headers_are_refused(door):
    with connect(door) as wire:
        pour(wire, b"GET /v1/tasks HTTP/1.1\r\n" + b"a: b\r\n" * 100_000 + b"\r\n", 1)
        answer = read_all(wire)
    assert answer == b"" or status_of(answer) in {400, 431}


def test_f10_many_headers_and_long_addresses_are_refused(door):
    with connect(door) as wire:
        wire.sendall(head(door, *["a: b"] * 150))
        assert status_of(read_all(wire)) == 431
    with connect(door) as wire:
        wire.sendall(head(door, first=f"GET /v1/tasks?text={'a' * 9_000} HTTP/1.1"))
        assert status_of(read_all(wire)) == 414


def test_f10_a_bomb_in_gzip_stays_packed(door):
    bomb = gzip.compress(b"0" * (32 << 20))
    with connect(door) as wire:
        lines = ("Content-Encoding: gzip", f"Content-Length: {len(bomb)}")
        wire.sendall(head(door, *lines) + bomb)
        assert status_of(read_all(wire)) == 415


def test_f10_ranges_are_not_served_in_pieces(door):
    whole = door.main.get("/v1/openapi.json")
    many = ",".join(f"{n}-" for n in range(1_000))
    part = door.main.get("/v1/openapi.json", Range=f"bytes={many}")
    assert (part.status, part.json) == (200, whole.json)


def test_f10_a_form_without_end_is_refused(door):
    with connect(door) as wire:
        lines = ["POST /v1/tasks HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked",
                 f"Authorization: Bearer {door.main.token}",
                 "Content-Type: multipart/form-data; boundary=a", "", ""]  # fmt: skip
        wire.sendall("\r\n".join(lines).encode())
        assert status_of(read_all(wire)) == 415


def test_f10_who_never_ends_a_head_is_hung_up_on(door):
    wires = [connect(door) for _ in range(200)]
    began = time.monotonic()
    for n, wire in enumerate(wires):
        if n % 3:
            wire.sendall(b"GET /v1/tasks HTTP/1.1\r\nHost: 127")
    assert health(door) < SOON
    for wire in wires:
        assert wire.recv(1) == b""
        wire.close()
    assert time.monotonic() - began < 10


def test_f10_single_bytes_do_not_buy_more_time(door):
    with connect(door) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\na: ")
        began = time.monotonic()
        wire.settimeout(0.05)
        while time.monotonic() - began < PATIENCE:
            try:
                wire.sendall(b"a")
                if wire.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                break
        assert time.monotonic() - began < 5


def test_f10_a_connection_that_is_kept_must_send_its_next_head_in_time(door):
    with connect(door) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while b"ok" not in wire.recv(65_536):
            pass
        wire.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert wire.recv(1) == b""


def test_f10_a_body_that_trickles_is_cut_off(door):
    with connect(door) as wire:
        wire.sendall(head(door, "Content-Length: 1000") + b"{")
        answer = read_all(wire)
    assert status_of(answer) == 408
    assert b"too_slow" in answer
    assert health(door) < SOON


def test_f10_a_slow_answer_is_no_slow_request(door):
    """The time that counts is the client's: what was sent whole is answered, however late."""
    with connect(door) as wire:
        body = b'{"schedule": {"cron": "0 9 * * *"}}'
        wire.sendall(
            head(door, f"Content-Length: {len(body)}", first="POST /v1/schedules/preview HTTP/1.1")
            + body
        )
        first = wire.recv(65_536)
        assert status_of(first) == 200
        wire.sendall(head(door, first="GET /v1/tasks HTTP/1.1"))
        assert status_of(wire.recv(65_536)) == 200

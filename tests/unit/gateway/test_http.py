"""What could be read in two ways is no request."""

import pytest

from rota.gateway.http import (
    BodyLength,
    InvalidHead,
    client_headers,
    read_request_head,
    read_response_head,
    upstream_headers,
)

HOST = "Host: 127.0.0.1:7683\r\n"


def asking(first="GET /x/y HTTP/1.1", headers=HOST):
    return read_request_head(f"{first}\r\n{headers}\r\n".encode("latin-1"))


@pytest.mark.parametrize(
    "first",
    [
        *("GET  /x HTTP/1.1", "get /x HTTP/1.1", "GET /x", "GET /x HTTP/2", "GET /x HTTP/1.1 "),
        *("GET /x y HTTP/1.1", "GET /\x00 HTTP/1.1", "GET /\n HTTP/1.1", "", "GET \x7f HTTP/1.1"),
    ],
)
def test_a_request_has_one_first_line(first):
    with pytest.raises(InvalidHead):
        asking(first)


@pytest.mark.parametrize(
    "headers",
    [
        "",
        HOST + HOST,
        "Host: api.anthropic.com\r\n",
        "Host: 127.0.0.1.evil.com\r\n",
        "Host: 127.0.0.1:7683@evil\r\n",
        HOST + "Content-Length: 3\r\nContent-Length: 4\r\n",
        HOST + "Content-Length: +3\r\n",
        HOST + "Content-Length: 3, 3\r\n",
        HOST + "Content-Length: 0x3\r\n",
        HOST + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        HOST + "Transfer-Encoding: gzip, chunked\r\n",
        HOST + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        HOST + "Transfer-Encoding: xchunked\r\n",
        HOST + "Content-Length : 3\r\n",
        HOST + " folded: yes\r\n",
        HOST + "a: b\x00c\r\n",
        HOST + "a: b\nc: d\r\n",
        HOST + "a: b\rc: d\r\n",
        HOST + "no colon\r\n",
        HOST + "a: b\r\n" * 200,
    ],
)
def test_a_head_has_one_reading(headers):
    with pytest.raises(InvalidHead):
        asking(headers=headers)


@pytest.mark.timeout(10)
def test_a_header_of_many_spaces_is_refused_at_once():
    """Everybody waits while one head is read."""
    with pytest.raises(InvalidHead):
        asking(headers=f"{HOST}a:{' ' * 60_000}\x00\r\n")


def test_an_ordinary_request_is_read():
    found = asking(
        "POST /a?b=c HTTP/1.1", HOST + "X-Api-Key:  k \r\nTransfer-Encoding: chunked\r\n"
    )
    assert (found.method, found.target, found.keep_alive) == ("POST", "/a?b=c", True)
    assert list(found.all("x-api-key")) == ["k"]
    assert found.body == BodyLength(length=None, chunked=True)
    assert not asking("GET / HTTP/1.0").keep_alive
    assert not asking(headers=HOST + "Connection: Close\r\n").keep_alive


def test_c5_nothing_that_a_program_says_about_who_it_is_goes_through():
    said = (
        "Authorization: Bearer mine\r\nX-Api-Key: mine\r\napi-key: mine\r\nCookie: a=mine\r\n"
        "X-Goog-Api-Key: mine\r\nOpenAI-Organization: mine\r\nX-Whatever-Token: mine\r\n"
        "Proxy-Authorization: mine\r\nX-Forwarded-For: mine\r\nConnection: x-api-key\r\n"
        "anthropic-version: 2023-06-01\r\nContent-Type: application/json\r\n"
    )
    told = upstream_headers(asking(headers=HOST + said), (), (("x-api-key", "real"),))
    assert dict(told) == {
        "anthropic-version": "2023-06-01",
        "content-type": "application/json",
        "x-api-key": "real",
    }


def test_what_an_operator_lets_through_never_replaces_the_key():
    told = upstream_headers(
        asking(headers=HOST + "x-api-key: mine\r\n"), ("x-api-key",), (("x-api-key", "r"),)
    )
    assert told == (("x-api-key", "r"),)


def answering(first="HTTP/1.1 200 OK", headers="", method="GET"):
    return read_response_head(f"{first}\r\n{headers}\r\n".encode("latin-1"), method)


def test_how_long_an_answer_is():
    assert answering(headers="Content-Length: 5\r\n").body == BodyLength(length=5)
    assert answering(headers="Transfer-Encoding: chunked\r\n").body.chunked
    ends = answering()
    assert (ends.body, ends.keep_alive) == (BodyLength(length=None), False)
    assert answering(method="HEAD", headers="Content-Length: 5\r\n").body.empty
    assert answering("HTTP/1.1 204 No Content").body.empty
    for wrong in ("HTTP/1.1 999 x", "HTTP/2 200", "ICY 200 OK", ""):
        with pytest.raises(InvalidHead):
            answering(wrong)


def test_an_answer_comes_without_cookies_and_what_is_between_neighbours():
    said = (
        "Set-Cookie: a=b\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nContent-Length: 0\r\nA: b\r\n"
    )
    assert client_headers(answering(headers=said)) == (("a", "b"),)

"""The attacks on a door, by their numbers: F1 to F3, F8, F9, F11, H1 and H2."""

import json
import socket
import time

import pytest

from rota.api.middleware import TrustedHosts
from tests.api.conftest import PATIENCE, Client

WORK = {"name": "job", "instructions": "Look."}
PREVIEW = "/v1/schedules/preview"


def raw(door, head, body=b"", *, key=True):
    """Send bytes as they are; return what comes until the server closes or has answered."""
    lines = [*head, "Connection: close"]
    if key:
        lines.append(f"Authorization: Bearer {door.main.token}")
    with socket.create_connection(("127.0.0.1", door.port), PATIENCE) as wire:
        wire.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        return read_all(wire)


def read_all(wire):
    parts = []
    try:
        while part := wire.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split()[1])


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "",
     "127.0.0.1@evil.example", "evil.example/127.0.0.1", "[::1].evil.example", "10.0.0.1", "[::2]",
     "localhost\tevil", "127.0.0.1, evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/tasks", "/nowhere"])
def test_f1_a_rebound_name_is_turned_away(door, host, path):
    answer = raw(door, [f"GET {path} HTTP/1.1", f"Host: {host}"])
    assert status_of(answer) in {421, 400}
    assert b"tasks" not in answer


def test_f1_without_a_name_nothing_is_told(door):
    assert status_of(raw(door, ["GET /v1/tasks HTTP/1.0"])) == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST", "localhost:1", "[::1]:7682"])
def test_f1_the_names_of_this_host_are_known(door, host):
    assert status_of(raw(door, ["GET /v1/tasks HTTP/1.1", f"Host: {host}"])) == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"Content-Type": "application/x-www-form-urlencoded"}, 415),
     ({"Content-Type": "multipart/form-data; boundary=a"}, 415),
     ({"Content-Type": "text/plain"}, 415),
     ({"Content-Type": "text/plain; application/json"}, 415),
     ({}, 415),
     ({"Content-Type": "application/json", "Origin": "null"}, 403),
     ({"Content-Type": "application/json", "Origin": "https://evil.example"}, 403),
     ({"Content-Type": "application/json", "Origin": "http://localhost:1"}, 403),
     ({"Content-Type": "application/json", "Sec-Fetch-Site": "cross-site"}, 403),
     ({"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"}, 403)],
)  # fmt: skip
def test_f2_a_page_of_another_site_changes_nothing(door, headers, status):
    headers = headers | {"Authorization": f"Bearer {door.main.token}"}
    told = door.main.send("POST", "/v1/tasks", json.dumps(WORK).encode(), headers)
    assert told.status == status
    assert "access-control-allow-origin" not in told.headers
    assert door.main.get("/v1/tasks").json["tasks"] == []


def test_f2_the_own_page_may_ask(door):
    own = f"http://127.0.0.1:{door.port}"
    assert door.main.post("/v1/tasks", WORK, Origin=own, Sec_Fetch_Site="same-origin").status == 201


def test_f3_another_site_gets_no_stream_and_no_websocket(door):
    told = door.main.get("/v1/tasks", Accept="text/event-stream", Origin="https://evil.example")
    assert told.status == 403
    upgrade = [
        "GET /v1/events HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13",
        "Origin: https://evil.example",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", door.port), PATIENCE) as wire:
        wire.sendall("\r\n".join([*upgrade, "", ""]).encode())
        answer = read_all(wire)
    assert status_of(answer) == 403
    assert b"101" not in answer.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "path",
    ["/v1/tasks/..%2f..%2fetc%2fpasswd", "/v1/tasks/%2e%2e/%2e%2e/", "/v1/tasks/..%252f",
     "/v1/tasks/a%00b", "/v1/tasks/%00", "/../../etc/passwd", "/v1/../../etc/passwd",
     "/v1//tasks", "//etc/passwd", "/v1/tasks/job/state/..%2fnote", "/v1/tasks/job/state/%2fetc%2fpasswd",
     "/v1/tasks/job/seen/..%5c..%5c", "/v1/tasks/%ff%fe", "/v1/tasks/%c0%ae%c0%ae", "/v1/runs/1%00",
     "/v1/runs/%2e%2e", "/static/..%2f..%2fadmin.key", "/admin.key", "/v1/tasks/%", "/v1/tasks/%zz",
     "/v1/tasks/job;a=b", "/v1/tasks/job%20", "/v1/threads/a:b%2fc/tasks", "/%2e%2e%2f", "/\\..\\.."],
)  # fmt: skip
def test_f8_a_path_leads_nowhere_but_to_its_thing(parser, door, path):
    door.main.post("/v1/tasks", WORK)
    door.main.put("/v1/tasks/job/state/note", {"value": "x"})
    answer = raw(door, [f"GET {path} HTTP/1.1", "Host: 127.0.0.1"])
    assert status_of(answer) in {400, 404, 405}, answer
    assert b"root:" not in answer


@pytest.fixture
def wrong(door):
    return Client(door.port, "rota_00000000_" + "A" * 43)


def test_f9_who_guesses_waits_longer_and_longer(door, wrong):
    assert [wrong.get("/v1/tasks").status for _ in range(10)] == [401] * 10
    waits = []
    for _ in range(10):
        told = wrong.get("/v1/tasks")
        assert (told.status, told.code) == (429, "too_many_guesses")
        waits.append(int(told.headers["retry-after"]))
        door.clock.advance(seconds=waits[-1])
        assert wrong.get("/v1/tasks").status == 401
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert door.main.get("/v1/tasks").status == 200, "a good key is never held up"
    assert door.nobody.get("/v1/tasks").status == 401, "to ask without a key is no guess"
    door.clock.advance(minutes=11)
    assert wrong.get("/v1/tasks").status == 401, "forgotten"


def test_f9_a_client_cannot_say_that_it_is_elsewhere(door, wrong):
    told = [wrong.get("/v1/tasks", X_Forwarded_For=f"10.0.0.{n}").status for n in range(12)]
    assert told[-1] == 429


@pytest.mark.parametrize("trust", [TrustedHosts(proxies=frozenset({"127.0.0.1"}))])
def test_f9_a_trusted_proxy_says_who_guesses(door, wrong):
    for n in range(40):
        said = f"2001:db8:0:{n}::1"
        assert wrong.get("/v1/tasks", X_Forwarded_For=f"spoofed, {said}").status == 401
    one_network = [f"6.6.6.6, 2001:db8:1:2:{n:x}::{n:x}" for n in range(12)]
    told = [wrong.get("/v1/tasks", X_Forwarded_For=said).status for said in one_network]
    assert told == [401] * 10 + [429] * 2, "a network of IPv6 is one place"
    assert wrong.get("/v1/tasks", X_Forwarded_For="2001:db8:1:3::1").status == 401


def test_f9_many_places_are_forgotten_before_they_fill_the_memory(door):
    from rota.api.middleware import MAX_PLACES, LoginBackoff

    backoff = LoginBackoff(door.clock.monotonic)
    for n in range(MAX_PLACES + 100):
        backoff.failed(f"2001:db8:{n >> 16:x}:{n & 0xFFFF:x}::1")
    assert len(backoff._places) == MAX_PLACES


@pytest.mark.parametrize(
    "head",
    [["Host: 127.0.0.1", "Host: evil.example"],
     ["Host: evil.example", "Host: 127.0.0.1"],
     ["Host: 127.0.0.1", "Content-Length: 2", "Content-Length: 3"],
     ["Host: 127.0.0.1", "Content-Length: 2, 3"],
     ["Host: 127.0.0.1", "Content-Length: 2", "Transfer-Encoding: chunked"],
     ["Host: 127.0.0.1", "Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
     ["Host: 127.0.0.1", "Transfer-Encoding: xchunked"],
     ["Host: 127.0.0.1", "Transfer-Encoding : chunked"],
     ["Host: 127.0.0.1", "Content-Length: -1"],
     ["Host: 127.0.0.1", "Content-Length: +2"],
     ["Host: 127.0.0.1", "Content-Length: 0x2"],
     ["Host: 127.0.0.1", "Content-Length: " + "9" * 30],
     ["Host: 127.0.0.1", "Authorization: Bearer other"],
     ["Host: 127.0.0.1", "Origin: http://127.0.0.1", "Origin: https://evil.example"],
     ["Host: 127.0.0.1", "X: a\x00b"],
     ["Host: 127.0.0.1", " folded: yes"]],
)  # fmt: skip
def test_f11_what_can_be_read_in_two_ways_is_refused(parser, door, head):
    answer = raw(door, ["POST /v1/tasks HTTP/1.1", "Content-Type: application/json", *head], b"{}")
    assert status_of(answer) in {400, 403, 411, 413, 421, 501}, answer
    assert answer.count(b"HTTP/1.1") == 1, "one request, one answer"


def test_f11_a_second_request_cannot_hide_behind_the_first(parser, door):
    inner = "DELETE /v1/tasks/job HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    door.main.post("/v1/tasks", WORK)
    head = ["POST /v1/tasks HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json",
            "Transfer-Encoding: chunked", f"Content-Length: {len(inner) + 5}"]  # fmt: skip
    answer = raw(door, head, f"0\r\n\r\n{inner}".encode())
    assert status_of(answer) == 400
    assert door.main.get("/v1/tasks/job").status == 200


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_f11_a_method_is_what_the_first_line_says(door, name):
    door.main.post("/v1/tasks", WORK)
    headers = {"Authorization": f"Bearer {door.main.token}", name: "DELETE"}
    assert door.main.send("GET", "/v1/tasks/job?_method=DELETE", None, headers).status == 400
    assert door.main.send("GET", "/v1/tasks/job", None, headers).status == 200
    assert door.main.send("TRACE", "/v1/tasks/job", None, headers).status == 405
    assert door.main.get("/v1/tasks/job").status == 200


HOSTILE_RULES = [
    {"rrule": "FREQ=DAILY;INTERVAL=0"},
    {"rrule": "FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"},
    {"rrule": "FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=31;BYHOUR=1"},
    {"rrule": "FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO;BYMONTH=6"},
    {"rrule": "FREQ=SECONDLY;COUNT=999999999"},
    {"rrule": "FREQ=DAILY;UNTIL=99991231T235959Z"},
    {"rrule": "FREQ=SECONDLY;BYSETPOS=-366;BYSECOND=" + ",".join(map(str, range(60)))},
    {"rrule": "FREQ=YEARLY;BYDAY=" + ",".join(["MO"] * 3_000)},
    {"rrule": "FREQ=DAILY;" * 900},
    {"rrule": "RRULE:FREQ=DAILY\nEXRULE:FREQ=DAILY"},
    {"rrule": "DTSTART:00010101T000000Z\nRRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=29"},
    {"cron": "0 0 30 2 *"},
    {"cron": "0 0 31 2,4,6,9,11 *"},
    {"cron": ",".join(["*/1"] * 3_000) + " * * * *"},
    {"cron": "* * * * * * * * *"},
    {"cron": "*/0 * * * *"},
    {"cron": "1-999999999999 * * * *"},
    {"every": "0s"},
    {"every": "-1s"},
    {"every": "0.000000001s"},
    {"every": "P99999999999Y"},
    {"every": "9" * 60 + "d"},
    {"at": "9999-12-31T23:59:59"},
    {"at": "0001-01-01T00:00:00"},
    {"times": ["00:00"] * 5_000},
    {"words": "every " * 2_000},
    {"words": "every day at " + "9, " * 3_000},
    {"cron": "0 9 * * *", "excluded": ["2026-01-01"] * 20_000},
    {"cron": "* * * * *", "quiet": ["00:00-24:00"] * 5_000},
    {"cron": "0 9 * * *", "timezone": "../../../etc/passwd"},
    {"cron": "0 9 * * *", "timezone": "/etc/localtime"},
    {"cron": "0 9 * * *", "timezone": "a" * 64},
    {"cron": "0 9 * * *", "starts_at": "9999-12-31 23:59", "ends_at": "0001-01-01 00:00"},
]


@pytest.mark.parametrize("rule", HOSTILE_RULES, ids=lambda rule: json.dumps(rule)[:50])
def test_h1_a_hostile_rule_costs_little(door, rule):
    door.main.post(PREVIEW, {"schedule": {"cron": "0 9 * * *"}})
    spent = time.thread_time  # other tests must not be counted
    best = float("inf")
    for _ in range(3):
        began = door.run(_now(spent))
        told = door.main.post(PREVIEW, {"schedule": rule, "n": 100})
        best = min(best, door.run(_now(spent)) - began)
        assert told.status in {200, 400}, told
        if told.status == 400:
            assert len(told.sentence) < 500, "one sentence"
    assert best < 0.1


async def _now(clock):
    return clock()


LITERAL = ["{}", "{0}", "%s", "%(name)s", "$(touch /tmp/x)", "`id`", "; ls", "&& ls", "| ls", "${HOME}",
           "{{7*7}}", "{% x %}", "<%= 7*7 %>", "--help", "-rf", "'; drop table tasks; --", '"', "\\n",
           "a\nb", "<script>alert(1)</script>", "#{7*7}", "~", "*"]  # fmt: skip


@pytest.mark.parametrize("text", LITERAL)
def test_h2_what_is_written_stays_as_it_is(door, text):
    line = text.replace("\n", " ")
    body = {"title": line, "instructions": text}
    made = door.main.post("/v1/tasks", body | {"name": "job", "policy": {"lane": line}})
    assert (made.json["title"], made.json["instructions"]) == (line, text)
    script = door.main.post("/v1/tasks", {"name": "script", "command": ["echo", text, "--", text]})
    assert script.status == 201
    run = door.main.post("/v1/tasks/job/run-now", {"payload": {text: [text]}, "key": line}).json[
        "run"
    ]
    shown = door.main.get(f"/v1/runs/{run}").json
    assert (shown["payload"], shown["key"]) == ({text: [text]}, line)
    door.main.put("/v1/tasks/job/state/a", {"value": text})
    assert door.main.get("/v1/tasks/job/state/a").json["value"] == text
    assert door.main.post("/v1/tasks/job/disable", {"reason": line}).json["disabled_reason"] == line
    words = [task["name"] for task in door.main.get("/v1/tasks?text=%25").json["tasks"]]
    assert ("%" in line) == bool(words)

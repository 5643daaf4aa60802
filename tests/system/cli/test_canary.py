"""F7 and F13 through the real daemon: keys are nowhere but in hands, and no door opens in the clear."""

from __future__ import annotations

import base64
import json
import signal
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest


class Session:
    """Talks to a daemon and keeps every byte that it answers."""

    def __init__(self, house):
        self.url = json.loads((house.home / "api.json").read_text())["url"]
        self.admin = (house.home / "admin.key").read_text().strip()
        self.heard = bytearray()

    def ask(self, method, path, body=None, token=None, *, keep=True, **headers):
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        sent = {"Authorization": f"Bearer {token or self.admin}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        text = answer.read()
        if keep:
            self.heard += str(answer.getheaders()).encode() + text
        connection.close()
        return answer.status, json.loads(text) if text[:1] in {b"{", b"["} else None


def forms(token):
    """Every way in which a secret may be written."""
    text = token.rpartition("_")[2] if token.count("_") == 2 else token[14:]
    secret = base64.urlsafe_b64decode(text + "=")
    return {text.encode(), secret, secret.hex().encode(), base64.b64encode(secret)}


def written(house):
    """Every byte in the home folder but the key of its owner."""
    for path in sorted(house.home.rglob("*")):
        if path.is_file() and path.name != "admin.key":
            yield path.name, path.read_bytes()


@pytest.mark.parametrize("form", ["json", "text"])
def test_f7_no_key_is_written_or_told_anywhere(house, form):
    daemon = house.up("--port", "0", ROTA_LOG_LEVEL="info", ROTA_LOG_FORMAT=form)
    session = Session(house)
    tokens = [session.admin]
    for n in range(2):
        status, made = session.ask(
            "POST", "/v1/keys", {"name": f"k{n}"}, Idempotency_Key=f"once-{n}", keep=False
        )
        assert status == 201
        tokens.append(made["token"])
        status, again = session.ask(
            "POST", "/v1/keys", {"name": f"k{n}"}, Idempotency_Key=f"once-{n}"
        )
        assert (status, again["id"], again["token"]) == (201, made["id"], None)
    session.ask(
        "POST",
        "/v1/tasks",
        {"name": "a", "instructions": "Go.", "schedule": {"every": "1s"}},
        tokens[1],
    )
    session.ask("POST", "/v1/tasks/a/run-now", {}, tokens[1])
    for token in tokens:
        session.ask("GET", f"/v1/tasks?token={token}", keep=False)  # told back to who sent it
        session.ask("GET", f"/v1/nowhere/{token}")
        session.ask("GET", "/v1/tasks", token=token + "x")
        session.ask("GET", "/v1/tasks", token=token[:-1])
        session.ask("GET", "/v1/tasks", Cookie=f"token={token}")
        session.ask("BREW", "/v1/tasks", token=token)
    for path in (
        "/v1/keys",
        "/v1/requests",
        "/v1/status",
        "/v1/openapi.json",
        "/healthz",
        "/v1/runs",
    ):
        assert session.ask("GET", path)[0] == 200
    session.ask("DELETE", f"/v1/keys/{made['id']}")
    assert session.ask("GET", "/v1/tasks", token=tokens[-1])[0] == 401
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    said = "\n".join(daemon.out.rest() + daemon.log.rest()).encode()
    found = dict(written(house))
    assert {"rota.db", "rota.log"} <= set(found)
    for token in tokens:
        for secret in forms(token):
            assert secret not in said
            assert secret not in session.heard
            assert [name for name, data in found.items() if secret in data] == []


def test_every_line_of_the_log_file_is_json_and_a_run_keeps_its_trace(house):
    daemon = house.up("--port", "0", ROTA_LOG_FORMAT="text")
    house.json("task", "create", "hello", "--call", "rota.samples:hello")
    house.json(
        "task", "create", "fails", "--call", "json:loads", "--retry", "2", "--retry-base", "10ms"
    )
    house.json("run", "hello")
    house.json("run", "fails")
    daemon.log.wait("hello", "succeeded")
    daemon.log.wait("fails", "attempt 2")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    log = house.home / "logs" / "rota.log"
    assert log.stat().st_mode & 0o777 == 0o600
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    settled = [line for line in lines if line["event"] == "run.settled"]
    traces = {}
    for line in settled:
        traces.setdefault(line["task"], set()).add(line["trace_id"])
    assert {task: len(found) for task, found in traces.items()} == {"hello": 1, "fails": 1}
    assert [line["attempt"] for line in settled if line["task"] == "fails"] == [1, 2]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", ""])  # noqa: S104
def test_f13_a_door_for_everybody_does_not_open_in_the_clear(house, host):
    done = house.rota("up", "--host", host, "--port", "0")
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    assert "tls_cert" in done.stderr or "host" in done.stderr
    assert not (house.home / "api.json").exists()


def test_f13_a_name_of_this_host_is_no_way_around(house):
    done = house.rota("up", "--host", "127.0.0.1.evil.example", "--port", "0")
    assert done.returncode == 2
    assert "others could reach it" in done.stderr

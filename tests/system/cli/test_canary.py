"""F7 and F13 through the real daemon: keys are nowhere but in hands, and no door opens in the clear."""

from __future__ import annotations

import base64
import json
import signal
import time
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import pytest

from rota.rules.permissions import OWNER


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
    assert "connections would not be encrypted" in done.stderr


LEAK = """
import base64, json, sys
from urllib.parse import quote
secret = "".join(reversed("BACKWARDS"))
forms = [secret, json.dumps({"key": secret}), quote(secret, safe="")]
forms += [base64.b64encode(b"x" * n + secret.encode()).decode() for n in range(3)]
forms += [base64.urlsafe_b64encode(secret.encode()).decode()]

def say(run):
    raise RuntimeError(" ".join(forms))

def give(run):
    return {"forms": forms}

if __name__ == "__main__":
    for form in forms:
        print("said", form, flush=True)
        print("wrote", form, file=sys.stderr, flush=True)
    sys.exit(f"it broke: {secret}")
"""


def secret_forms(secret):
    """Every way in which a secret may be written."""
    data = secret.encode()
    yield from (
        data,
        json.dumps(secret)[1:-1].encode(),
        quote(secret, safe="").encode(),
        data.hex().encode(),
    )
    for before in range(3):
        whole = base64.b64encode(b"x" * before + data).rstrip(b"=")
        inner = whole[2 * before : -3]
        yield from (inner, inner.replace(b"+", b"-").replace(b"/", b"_"))


def test_c8_c9_what_programs_say_and_people_set_is_written_nowhere(house):
    kept, filed, offered = 'sk-"kept"/7c41+e0b9', "sk-filed-55d0aa91", "sk-offered-90fe12ab"
    house.home.mkdir(mode=0o700)
    key = house.folder / "filed.key"
    key.write_text(f"{filed}\n")
    key.chmod(0o600)
    (house.home / "gateway.toml").write_text(f'[secrets]\nfiled = "file:{key}"\n')
    daemon = house.up(
        "--port", "0", ROTA_LOG_LEVEL="debug", ROTA_LOG_FORMAT="text", GEMINI_API_KEY=offered,
        ROTA_CALLS=",".join(f"leaking{n}:{call}" for n in range(3) for call in ("say", "give")),
    )  # fmt: skip
    session = Session(house)
    for value, status in ((kept, 200), ("short", 400), (12345678, 400), ([kept], 400)):
        body = {"value": value}
        answer = session.ask("PUT", "/v1/secrets/kept", body, Idempotency_Key=f"k-{value!s:.4}")
        assert answer[0] == status, answer
    assert session.ask("PUT", "/v1/secrets/kept", {"value": kept}, Rota_Dry_Run="true")[0] == 204
    assert session.ask("PUT", "/v1/secrets/Not+a+name", {"value": kept})[0] == 400
    work = house.home / "spaces" / "main" / "work"
    work.mkdir(parents=True, exist_ok=True)
    runs = []
    for n, secret in enumerate((kept, filed, offered)):
        leak = LEAK.replace("BACKWARDS", "".join(reversed(secret)).replace('"', '\\"'))
        (work / f"leak{n}.py").write_text(leak)
        (house.folder / f"leaking{n}.py").write_text(leak)
        works = {f"leak{n}": {"command": ["python3", f"leak{n}.py"]}}
        works |= {f"{call}{n}": {"call": f"leaking{n}:{call}"} for call in ("say", "give")}
        for name, work_asked in works.items():
            policy = {"deliver_to": "log:people", "retry": {"attempts": 1}}
            asked = {"name": name, "policy": policy, **work_asked}
            assert session.ask("POST", "/v1/tasks", asked)[0] == 201, session.heard
            runs.append(session.ask("POST", f"/v1/tasks/{name}/run-now", {})[1]["run"])
    shown = [ended(session, run) for run in runs]
    told = json.dumps(shown)
    for name in ("[secret kept]", "[secret filed]", "[secret GEMINI_API_KEY]"):
        assert told.count(name) > 10
    (said,) = (run for run in shown if run["task"] == "leak0")
    assert any(part["text"].startswith("said [secret kept]") for part in said["logs"])
    assert "it broke: [secret kept]" in said["error"]
    for path in ("/v1/secrets", "/v1/requests", "/v1/runs", "/v1/status", "/metrics"):
        assert session.ask("GET", path)[0] == 200
    listed = {one["name"]: one for one in session.ask("GET", "/v1/secrets")[1]["secrets"]}
    assert listed["filed"]["source"] == f"file:{key}"
    assert listed["kept"]["set_by"] == OWNER
    said_by = [house.rota("secret", "list"), house.rota("doctor")]
    assert house.rota("backup", str(house.home / "copy.db")).returncode == 0
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    heard = "\n".join(daemon.out.rest() + daemon.log.rest()).encode() + bytes(session.heard)
    heard += b"".join((done.stdout + done.stderr).encode() for done in said_by) + told.encode()
    spooled = house.home / "keepers" / "attempts"
    found = {
        str(path.relative_to(house.home)): path.read_bytes()
        for path in house.home.rglob("*")
        if path.is_file() and spooled not in path.parents and path.parent != work
    }
    assert {"rota.db", "logs/rota.log", "copy.db", "secrets/sealed.json"} <= set(found)
    for secret in (kept, filed, offered):
        for one in secret_forms(secret):
            assert one not in heard, one
            assert [name for name, data in found.items() if one in data] == [], one
    for name in ("sealed.json", "key"):
        assert (house.home / "secrets" / name).stat().st_mode & 0o777 == 0o600


ASKING = """
import json, os, sys, time
secret, box = "".join(reversed("BACKWARDS")), os.environ["ROTA_MAILBOX"]
asked = [
    {"type": "set_state", "key": "note", "value": {"kept": secret}},
    {"type": "send_message", "text": "here: " + secret, "to": "log:people"},
    {"type": "defer_message", "text": "later: " + secret, "to": "log:people"},
    {"type": "schedule_task", "name": "next", "instructions": "Use " + secret},
    {"type": "register_thread", "thread_key": "cli:main:keys", "title": secret},
    {"type": "record_effect", "name": "paid", "result": secret},
    {"type": "dance", "with": secret},
    {"type": "ask_user", "question": "Is it " + secret + "?", "options": [secret, "no"]},
]
for number, one in enumerate(asked):
    name = f"{box}/out/a{number}"
    with open(name + ".tmp", "w") as file:
        json.dump({"request_id": f"a{number}", **one}, file)
    os.rename(name + ".tmp", name + ".json")
with open(box + "/out/half.tmp", "w") as file:
    file.write("{" + secret)
os.rename(box + "/out/half.tmp", box + "/out/half.json")
"""
WAKING = """
import json
secret = "".join(reversed("BACKWARDS"))
print(json.dumps({"wake": True, "input": "It is " + secret, "state": {"last": secret}}))
"""


def test_c8_what_programs_ask_for_in_mailboxes_and_gates_hand_on_is_written_nowhere(house):
    secret = "sk-asked-for-71e0c4d2"  # noqa: S105
    house.home.mkdir(mode=0o700)
    daemon = house.up("--port", "0", ROTA_LOG_FORMAT="text", GEMINI_API_KEY=secret)
    session = Session(house)
    work = house.home / "spaces" / "main" / "work"
    work.mkdir(parents=True, exist_ok=True)
    for name, text in (("asking.py", ASKING), ("waking.py", WAKING)):
        (work / name).write_text(text.replace("BACKWARDS", secret[::-1]))
    (work / "agent.py").write_text(
        'import json, sys\nprint(json.dumps({"rota": "session", "id": "s1"}))\n'
        "print(sys.stdin.read())\n"
    )
    agent = {"agent": "command", "command": ["python3", "agent.py"], "instructions": "Go."}
    for asked in (
        {"name": "asks", "command": ["python3", "asking.py"]},
        {"name": "gated", **agent, "gate": {"command": ["python3", "waking.py"]}},
    ):
        assert session.ask("POST", "/v1/tasks", asked)[0] == 201, session.heard
    runs = [
        session.ask("POST", f"/v1/tasks/{name}/run-now", {})[1]["run"] for name in ("asks", "gated")
    ]
    assert ended(session, runs[1])["state"] == "succeeded"
    until = time.monotonic() + 30
    while (waits := session.ask("GET", f"/v1/runs/{runs[0]}")[1])["state"] != "waiting":
        assert time.monotonic() < until, waits
        time.sleep(0.05)
    assert waits["questions"][0]["options"] == ["[secret GEMINI_API_KEY]", "no"]
    for path in ("/v1/tasks", "/v1/threads", "/v1/sessions/1", "/v1/requests"):
        assert session.ask("GET", path)[0] == 200, path
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    heard = "\n".join(daemon.out.rest() + daemon.log.rest()).encode() + bytes(session.heard)
    theirs = {work, house.home / "keepers"}  # what programs write, and are answered
    found = {
        str(path.relative_to(house.home)): path.read_bytes()
        for path in house.home.rglob("*")
        if path.is_file() and not theirs & {*path.parents}
    }
    assert len([name for name in found if name.startswith("errors/")]) == 2
    assert heard.count(b"[secret GEMINI_API_KEY]") > 5
    for one in secret_forms(secret):
        assert one not in heard, one
        assert [name for name, data in found.items() if one in data] == [], one


def ended(session, run):
    """Return a run once it has ended."""
    until = time.monotonic() + 30
    while (shown := session.ask("GET", f"/v1/runs/{run}")[1])["finished_at"] is None:
        assert time.monotonic() < until, shown
        time.sleep(0.05)
    return shown

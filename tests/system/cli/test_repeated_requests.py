"""The daemon dies between a change and its answer: the same request, sent again, is answered."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

import pytest

TASK = {"name": "job", "instructions": "Look.", "schedule": {"cron": "0 0 1 1 *"}}
AT = "2100-01-01"
CASES = {
    "a run": ("enqueue", "POST", "/v1/runs", {"task": "job", "at": AT}),
    "a task": ("put_task", "POST", "/v1/tasks", {"instructions": "Look."}),
    "a task put": ("put_task", "PUT", "/v1/tasks/job", {"instructions": "Look twice."}),
    "a key": ("add_key", "POST", "/v1/keys", {"name": "phone"}),
    "a value": ("put_state", "PUT", "/v1/state/job/word", {"value": 1}),
    "a message": ("add_message", "POST", "/v1/threads/cli:a:b/messages", {"text": "Hello."}),
    "a schedule": ("drop_schedule", "DELETE", "/v1/tasks/job/schedules/default", None),
    "a cancelled run": ("settle", "POST", "/v1/runs/1/cancel", None),
    "a deleted task": ("delete_task", "DELETE", "/v1/tasks/job", None),
}
"""What is asked for, and the operation that does it."""
SECRET = ("PUT", "/v1/secrets/github", {"value": "a value that nobody knows"})


class Caller:
    """A home with a daemon that can be killed, and what asks it."""

    def __init__(self, house, store):
        self.house = house
        self._extra = {} if store is None else {"ROTA_STORE": store}
        self.daemon = None

    def up(self, **extra):
        self.daemon = self.house.up("--port", "0", **self._extra, **extra)

    def down(self):
        self.daemon.process.kill()
        self.daemon.wait()

    def ask(self, method, path, body=None, key=None):
        """Return the status, the answer and whether it is an earlier one."""
        place = urlsplit(json.loads((self.house.home / "api.json").read_text())["url"])
        headers = {"Authorization": f"Bearer {(self.house.home / 'admin.key').read_text().strip()}"}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body)
        if key is not None:
            headers["Idempotency-Key"] = key
        line = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
        try:
            line.request(method, path, data, headers)
            answer = line.getresponse()
            text = answer.read()
            again = answer.getheader("idempotency-replayed") == "true"
            return answer.status, json.loads(text), again
        finally:
            line.close()

    def dies(self, fault, *asked):
        """Let the daemon be killed by what is asked, and start it anew."""
        self.down()
        self.up(ROTA_FAULT=f"{fault}:1:kill")
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            self.ask(*asked, key="once")
        self.daemon.wait()
        self.up()

    def changes(self):
        """Return what was changed, and what stands now."""
        listed = self.ask("GET", "/v1/requests")[1]["requests"]
        paths = ("/v1/runs", "/v1/tasks", "/v1/keys", "/v1/state/job", "/v1/schedules")
        return [one["command"] for one in listed], [self.ask("GET", path)[1] for path in paths]


@pytest.fixture(params=["sqlite", "postgres"])
def caller(request, house):
    address = None
    if request.param == "postgres":
        address = request.getfixturevalue("postgres_address")
    made = Caller(house, address)
    made.up()
    assert made.ask("POST", "/v1/tasks", TASK)[0] == 201
    assert made.ask("POST", "/v1/runs", {"task": "job", "at": AT})[0] == 201
    return made


DEATHS = [*((case, "committed") for case in CASES), ("a run", "commit"), ("a task", "commit")]


@pytest.mark.parametrize(("case", "stage"), DEATHS)
def test_a_request_is_answered_though_the_daemon_died_on_it(caller, case, stage):
    operation, *asked = CASES[case]
    caller.dies(f"{operation}.{stage}", *asked)
    status, first, again = caller.ask(*asked, key="once")
    assert status in {200, 201}, first
    assert again or stage == "commit"
    known = caller.changes()
    assert len(known[0]) == 3
    assert caller.ask(*asked, key="once") == (status, first, True) or case == "a key"
    if case == "a key":
        made = caller.ask(*asked, key="once")[1]
        assert made == {**first, "token": None}
        assert (first["token"] is None) == again, "a token is shown once, and never written down"
    assert caller.changes() == known


def test_what_reaches_beyond_the_database_stays_in_doubt_and_is_not_done_twice(caller):
    caller.dies("record_request.committed", *SECRET)
    for _ in range(2):
        status, told, again = caller.ask(*SECRET, key="once")
        assert (status, told["error"]["code"], again) == (409, "in_doubt", False)
    assert caller.ask("GET", "/v1/secrets")[1] == {"secrets": []}
    status, _, again = caller.ask(*SECRET, key="another")
    assert (status, again) == (200, False)

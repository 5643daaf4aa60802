"""Runs over HTTP: queued, shown, cancelled, tried again and answered; spaces, keys and memory."""

from datetime import timedelta
from urllib.parse import quote

import pytest

from rota.model.attempts import Succeeded, WaitingForAnswer
from rota.model.heartbeats import MachineLoad
from rota.store.heartbeats import record_machine_sample
from tests.conftest import KINDS

WORK = {"name": "sky", "instructions": "Look."}


@pytest.fixture
def sky(door):
    assert door.main.post("/v1/tasks", WORK).status == 201
    door.run(door.bench.worker("w1", timedelta(days=1)))

    async def claim():
        door.bench.routes = ["agent"]
        return (await door.bench.claimed(1, routes=["agent"])).leases[0]

    door.claim = lambda: door.run(claim())
    return door


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_queued_shown_and_listed(sky):
    told = sky.main.post(
        "/v1/runs", {"task": "sky", "payload": {"a": [1, None]}, "key": "k", "priority": 3}
    )
    assert (told.status, told.json["created"]) == (201, True)
    again = sky.main.post(
        "/v1/runs", {"task": "sky", "payload": {"a": [1, None]}, "key": "k", "priority": 3}
    )
    assert again.json == {"run": told.json["run"], "created": False}
    other = sky.main.post("/v1/runs", {"task": "sky", "payload": 1, "key": "k"})
    assert (other.status, other.code) == (409, "conflict")
    run = sky.main.get(f"/v1/runs/{told.json['run']}").json
    assert (run["payload"], run["key"], run["priority"], run["attempts"]) == (
        {"a": [1, None]},
        "k",
        3,
        [],
    )
    listed = sky.main.get("/v1/runs?task=sky&state=queued").json["runs"]
    assert [one["id"] for one in listed] == [run["id"]]


def test_a_task_tells_what_it_is_doing(sky):
    def activity():
        return sky.main.get("/v1/tasks/sky").json["activity"]

    free = {"state": "free", "run": None, "since": None, "position": None, "question": None}
    assert activity() == free
    first, second = (sky.main.post("/v1/runs", {"task": "sky"}).json["run"] for _ in range(2))
    queued = activity()
    assert (queued["state"], queued["run"], queued["position"]) == ("queued", second, 2)
    lease = sky.claim()
    running = activity()
    assert (running["state"], running["run"], running["position"]) == ("running", first, None)
    assert running["since"] is not None
    asked = WaitingForAnswer(
        question="Which sky?", context="", options=(), expires_in=timedelta(hours=1)
    )
    sky.run(sky.bench.end(lease, asked))
    waiting = activity()
    assert (waiting["state"], waiting["run"]) == ("waiting", first)
    assert waiting["question"] == "Which sky?"
    sky.main.post(f"/v1/runs/{first}/cancel")
    sky.main.post(f"/v1/runs/{second}/cancel")
    assert activity() == free


@pytest.mark.parametrize(
    ("body", "field"),
    [({}, "body"), ({"task": "sky", "agent": {"instructions": "x"}}, "body"),
     ({"agent": {"instructions": ""}}, "agent.instructions"),
     ({"agent": {"instructions": "x", "model_tier": "best"}}, "agent.model_tier"),
     ({"agent": {"instructions": "x", "timeout": "soon"}}, "timeout"),
     ({"script": {"command": []}}, "script.command"), ({"task": "sky", "at": "never"}, "at"),
     ({"task": "sky", "priority": 10**9}, "priority"), ({"task": "no good"}, "task")],
)  # fmt: skip
def test_a_run_that_is_wrong_is_refused_with_its_field(sky, body, field):
    told = sky.main.post("/v1/runs", body)
    assert (told.status, told.field) == (400, field), told


def test_runs_are_listed_in_pages(sky):
    made = [sky.main.post("/v1/runs", {"task": "sky"}).json["run"] for _ in range(5)]
    first = sky.main.get("/v1/runs?limit=3").json
    rest = sky.main.get(f"/v1/runs?limit=3&before={first['next']}").json
    assert [run["id"] for run in first["runs"] + rest["runs"]] == made[::-1]
    assert rest["next"] is None


def test_a_run_for_later_waits(sky):
    told = sky.main.post(
        "/v1/runs", {"task": "sky", "at": "2026-05-05 12:00", "timezone": "Europe/Berlin"}
    )
    run = sky.main.get(f"/v1/runs/{told.json['run']}").json
    assert (run["place"], run["available_at"]) == ("later", "2026-05-05T10:00:00Z")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_cancelled_and_tried_again(sky):
    run = sky.main.post("/v1/runs", {"task": "sky", "payload": 5}).json["run"]
    early = sky.main.post(f"/v1/runs/{run}/retry")
    assert (early.status, early.code) == (409, "illegal_move")
    ended = sky.main.post(f"/v1/runs/{run}/cancel")
    assert (ended.status, ended.json["state"]) == (200, "cancelled")
    assert sky.main.post(f"/v1/runs/{run}/cancel").status == 409
    again = sky.main.post(f"/v1/runs/{run}/retry")
    assert again.status == 201
    assert sky.main.get(f"/v1/runs/{again.json['run']}").json["payload"] == 5
    for verb in ("cancel", "retry"):
        assert sky.main.post(f"/v1/runs/999/{verb}").status == 404


def test_a_running_run_is_asked_to_stop(sky):
    run = sky.main.post("/v1/runs", {"task": "sky"}).json["run"]
    sky.claim()
    told = sky.main.post(f"/v1/runs/{run}/cancel").json
    assert told["state"] == "running"
    assert told["cancel_requested_at"] is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_question_is_answered_once(sky):
    run = sky.main.post("/v1/runs", {"task": "sky"}).json["run"]
    silent = sky.main.post(f"/v1/runs/{run}/answer", {"answer": "yes"})
    assert (silent.status, silent.code) == (409, "illegal_move")
    sky.run(sky.bench.ask(sky.claim(), "Blue?"))
    (waiting,) = sky.main.get("/v1/runs/waiting").json["waiting"]
    assert (waiting["run"]["id"], waiting["question"]["question"]) == (run, "Blue?")
    missing = sky.main.post(f"/v1/runs/{run}/answer", {"answer": "yes", "question": 999})
    assert missing.status == 404
    told = sky.main.post(f"/v1/runs/{run}/answer", {"answer": "yes"})
    assert (told.status, told.json["state"]) == (200, "queued")
    assert sky.main.post(f"/v1/runs/{run}/answer", {"answer": "no"}).status == 409
    (question,) = sky.main.get(f"/v1/runs/{run}").json["questions"]
    assert (question["answer"], question["answered_by"]) == ("yes", "main key")


def test_a_run_shows_its_attempts_and_its_result(sky):
    run = sky.main.post("/v1/runs", {"task": "sky"}).json["run"]
    sky.run(sky.bench.end(sky.claim(), Succeeded(result='{"blue": true}')))
    shown = sky.main.get(f"/v1/runs/{run}").json
    assert (shown["state"], shown["result"]) == ("succeeded", {"blue": True})
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["succeeded"]


@pytest.mark.parametrize("body", [{"agent": {"instructions": "Go.", "metadata": {"a": 1}, "timeout": "5m"}},
                                  {"script": {"command": ["echo", "a b"]}}])  # fmt: skip
def test_work_without_a_task_is_told_with_its_run(door, body):
    ((_, said),) = body.items()
    run = door.main.post("/v1/runs", body).json["run"]
    shown = door.main.get(f"/v1/runs/{run}").json
    assert shown["state"] == "queued"
    assert {name: shown["payload"][name] for name in said if name != "timeout"} == {
        name: value for name, value in said.items() if name != "timeout"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_remember(sky):
    assert sky.main.get("/v1/state/sky/a").status == 404
    kept = sky.main.put("/v1/state/sky/a", {"value": {"n": 1}})
    assert (kept.status, kept.json["value"], kept.json["updated_by"]) == (200, {"n": 1}, "main key")
    for key in ("b", "c", "ä:1"):
        sky.main.put(f"/v1/state/sky/{key.replace('ä', '%C3%A4')}", {"value": None})
    page = sky.main.get("/v1/state/sky?limit=2").json
    rest = sky.main.get(f"/v1/state/sky?limit=2&after={page['next']}").json
    assert [one["key"] for one in page["values"] + rest["values"]] == ["a", "b", "c", "ä:1"]
    assert sky.main.delete("/v1/state/sky/a").json == {"deleted": True}
    assert sky.main.delete("/v1/state/sky/a").status == 404
    assert sky.main.put("/v1/state/sky/big", {"value": "x" * 70_000}).field == "value"


@pytest.mark.parametrize("kind", KINDS)
def test_items_are_counted(sky):
    items = [{"item": "1", "provider": "mail", "data": {"s": "Hi"}}, {"item": "1"}]
    first = sky.main.post("/v1/seen/sky", {"items": items}).json["items"]
    assert [(one["count"], one["new"]) for one in first] == [(1, True)] * 2
    again = sky.main.post("/v1/seen/sky", {"items": items[:1]}).json["items"]
    assert [(one["count"], one["new"]) for one in again] == [(2, False)]
    assert sky.main.get("/v1/seen/sky/1?provider=mail").json["count"] == 2
    assert sky.main.get("/v1/seen/sky/2").status == 404
    assert sky.main.post("/v1/seen/sky", {"items": items[:1] * 2}).field == "items"
    assert sky.main.post("/v1/seen/sky", {"items": []}).field == "items"


def test_spaces_and_keys_are_made_and_taken_back(door):
    assert door.main.post("/v1/spaces", {"name": "carl", "timezone": "Asia/Tokyo"}).status == 201
    assert door.main.post("/v1/spaces", {"name": "carl"}).code == "conflict"
    assert door.main.post("/v1/spaces", {"name": "Carl"}).field == "name"
    assert door.main.post("/v1/spaces", {"name": "dora", "timezone": "x"}).field == "timezone"
    assert door.main.patch("/v1/spaces/carl", {"timezone": "UTC"}).json["timezone"] == "UTC"
    assert door.main.patch("/v1/spaces/none", {"timezone": "UTC"}).status == 404
    made = door.main.post("/v1/keys", {"name": "carl's", "space": "carl", "scopes": ["read"]})
    assert (made.status, made.json["role"], made.json["scopes"]) == (201, "member", ["read"])
    carl = type(door.main)(door.port, made.json["token"])
    assert carl.get("/v1/spaces").json["spaces"][0]["name"] == "carl"
    listed = door.main.get("/v1/keys?space=carl").json["keys"]
    assert [key["name"] for key in listed] == ["carl's"]
    assert "token" not in listed[0]
    gone = door.main.delete(f"/v1/keys/{made.json['id']}")
    assert gone.json["revoked_at"] is not None
    assert carl.get("/v1/spaces").status == 401
    assert door.main.delete("/v1/keys/9999").status == 404
    past = door.main.post("/v1/keys", {"name": "old", "expires_at": "2020-01-01T00:00:00Z"})
    assert past.field == "expires_at"


def test_the_status_tells_the_owner_everything(sky):
    sky.main.post("/v1/runs", {"task": "sky"})
    told = sky.main.get("/v1/status").json
    assert told["queue"]["ready"] == 1
    assert [worker["id"] for worker in told["workers"]] == ["w1"]
    assert sky.main.get("/v1/workers").json["workers"] == told["workers"]
    machine = sky.main.get("/v1/machines").json["machines"][0]
    assert (machine["alive"], machine["cpu_percent"]) == (1, None)


def test_a_machine_tells_how_it_was_doing(sky):
    host = sky.main.get("/v1/machines").json["machines"][0]["host"]
    for percent in (12.5, 75.0):
        sky.run(
            sky.store.write(
                record_machine_sample, "w1", "home", host, MachineLoad(percent, 1 << 30, 4 << 30)
            )
        )
        sky.clock.advance(timedelta(minutes=1))
    assert sky.main.get("/v1/machines").json["machines"][0]["cpu_percent"] == 75.0
    told = sky.main.get("/v1/machines/readings?limit=1").json
    assert [reading["cpu_percent"] for reading in told["readings"]] == [75.0]
    older = sky.main.get(f"/v1/machines/readings?limit=1&before={quote(told['next'])}").json
    assert [reading["cpu_percent"] for reading in older["readings"]] == [12.5]
    assert sky.main.get("/v1/machines/readings?host=elsewhere").json["readings"] == []
    sky.clock.advance(timedelta(hours=2))
    assert sky.main.get("/v1/machines/readings").json["readings"] == []
    assert sky.main.get("/v1/machines").json["machines"][0]["cpu_percent"] is None


def test_what_is_not_there_and_what_is_not_done_here(door):
    assert door.main.get("/v1/nothing").code == "not_found"
    told = door.main.ask("PUT", "/v1/tasks", {})
    assert (told.status, told.headers["allow"]) == (405, "GET, POST")
    assert door.main.get("/v1/openapi.json").json["openapi"] == "3.1.0"
    for name in ("x-content-type-options", "cache-control", "content-security-policy"):
        assert name in told.headers

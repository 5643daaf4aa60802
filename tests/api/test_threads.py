"""Conversations over HTTP and at the desk: registered, listed, cancelled, and whose they are."""

import pytest

from tests.api.attempts import begin
from tests.conftest import KINDS

WORK = {"instructions": "Talk.", "answers": True}


def listed(client, query=""):
    return client.get(f"/v1/threads{query}").json["threads"]


@pytest.mark.parametrize("kind", KINDS)
def test_g2_48_threads_are_listed_page_by_page(door):
    for key in ("web:ann:1", "web:ann:2", "web:ann:3"):
        assert door.ann.put(f"/v1/threads/{key}", {}).status == 200
    assert door.bob.put("/v1/threads/web:bob:4", {}).status == 200
    assert [one["thread"] for one in listed(door.ann)] == ["web:ann:3", "web:ann:2", "web:ann:1"]
    first = door.ann.get("/v1/threads?limit=2").json
    assert [one["thread"] for one in first["threads"]] == ["web:ann:3", "web:ann:2"]
    rest = door.ann.get(f"/v1/threads?limit=2&before={first['next']}").json
    assert ([one["thread"] for one in rest["threads"]], rest["next"]) == (["web:ann:1"], None)
    every = [(one["space"], one["thread"]) for one in listed(door.main)]
    assert every[:2] == [("bob", "web:bob:4"), ("ann", "web:ann:3")]
    assert [one["thread"] for one in listed(door.main, "?space=bob")] == ["web:bob:4"]
    assert door.ann.get("/v1/threads?space=bob").status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_g2_49_a_registered_thread_is_answered_by_its_task(door):
    door.ann.post("/v1/tasks", WORK | {"name": "desk"})
    said = {"title": "Family", "task": "desk", "trigger": "@Rota", "metadata": {"members": 3}}
    made = door.ann.put("/v1/threads/web:ann:7", said)
    assert made.status == 200
    assert {name: made.json[name] for name in said} == said
    path = "/v1/threads/web:ann:7/messages"
    quiet = door.ann.post(path, {"text": "Shall we eat? mail@rota.example knows"})
    assert (quiet.status, quiet.json["reader_run"], quiet.json["state"]) == (201, None, "pending")
    assert door.ann.get("/v1/runs").json["runs"] == []
    asked = door.ann.post(path, {"text": "Well, @rota, shall we?"}).json
    run = door.ann.get(f"/v1/runs/{asked['reader_run']}").json
    assert (run["task"], run["payload"]) == ("desk", {"messages": True})
    messages = door.ann.get(path).json["messages"]
    assert {one["reader_run"] for one in messages} == {asked["reader_run"]}
    shown = door.ann.get("/v1/threads/web:ann:7").json
    assert (shown["pending"], shown["last_message_at"]) == (2, asked["at"])
    changed = door.ann.put("/v1/threads/web:ann:7", {"trigger": "", "task": ""}).json
    assert (changed["title"], changed["trigger"], changed["task"]) == ("Family", None, None)


def test_only_main_registers_for_another_space(door):
    told = door.ann.put("/v1/threads/web:ann:7", {"space": "bob"})
    assert (told.status, told.code) == (404, "not_found")
    assert door.main.put("/v1/threads/web:ann:7", {"space": "bob"}).json["space"] == "bob"
    assert door.ann.put("/v1/threads/web:ann:7", {"title": "Mine"}).status == 404
    assert door.ann.get("/v1/threads/web:ann:7").status == 404
    assert door.ann.post("/v1/threads/web:ann:7/cancel", {}).status == 404
    assert door.main.put("/v1/threads/web:ann:7", {"title": "Bob"}).json["space"] == "bob"
    told = door.main.put("/v1/threads/web:ann:7", {"space": "ann"})
    assert (told.status, told.code) == (409, "conflict")


def test_only_an_agent_of_the_space_that_takes_part_may_answer(door):
    door.ann.post("/v1/tasks", {"name": "alone", "instructions": "Look."})
    door.bob.post("/v1/tasks", WORK | {"name": "bobs"})
    told = door.ann.put("/v1/threads/web:ann:7", {"task": "alone"})
    assert (told.status, told.field) == (400, "task")
    assert door.ann.put("/v1/threads/web:ann:7", {"task": "bobs"}).status == 404
    assert door.main.put("/v1/threads/web:ann:7", {"task": "bobs", "space": "ann"}).status == 404
    told = door.ann.put("/v1/threads/web:ann:7", {"metadata": {"much": "x" * 20_000}})
    assert (told.status, told.field) == (400, "metadata")
    assert listed(door.ann) == []


@pytest.mark.parametrize("kind", KINDS)
def test_jagc_43_a_conversation_is_cancelled_and_says_how_much(door):
    door.ann.post("/v1/tasks", WORK | {"name": "desk", "thread": "web:ann:7"})
    for _ in range(2):
        door.ann.post("/v1/tasks/desk/run-now", {})
    later = door.ann.post(
        "/v1/threads/web:ann:7/messages", {"text": "?", "delivery_mode": "followUp"}
    )
    assert later.status == 201
    told = door.ann.post("/v1/threads/web:ann:7/cancel")
    assert (told.status, told.json) == (200, {"thread": "web:ann:7", "cancelled": 3, "stopping": 0})
    states = {run["state"] for run in door.ann.get("/v1/runs").json["runs"]}
    assert states == {"cancelled"}
    assert door.ann.post("/v1/threads/web:ann:7/cancel").json["cancelled"] == 0
    told = door.ann.post("/v1/threads/web:ann:7/messages", {"text": "?", "delivery_mode": "later"})
    assert (told.status, told.field) == (400, "delivery_mode")


def test_a_run_lists_and_registers_what_is_its_spaces(door):
    job = begin(door, "ann")
    assert [one["thread"] for one in job.call("list_threads")["threads"]] == ["cli:ann:chat"]
    door.ann.post("/v1/tasks", WORK | {"name": "desk"})
    made = job.call("register_thread", thread_key="web:ann:7", title="Family", task="desk")
    assert (made["ok"], made["space"], made["task"]) == (True, "ann", "desk")
    told = job.call("register_thread", thread_key="web:ann:8", space="bob")
    assert (told["ok"], told["error"]["code"]) == (False, "not_found")
    mains = begin(door)
    assert mains.call("register_thread", thread_key="web:ann:8", space="bob")["space"] == "bob"
    assert {"web:ann:7", "web:ann:8"} <= {
        one["thread"] for one in mains.call("list_threads")["threads"]
    }


def test_a_run_does_not_fill_its_space_with_threads(door, monkeypatch):
    monkeypatch.setattr("rota.rules.permissions.MAX_THREADS", 2)
    monkeypatch.setattr("rota.flow.define.threads.MAX_THREADS", 2)
    job = begin(door, "ann")
    assert job.serve("register_thread", thread_key="web:ann:1")["ok"]
    assert job.serve("register_thread", thread_key="web:ann:2")["error"]["code"] == "conflict"
    assert job.serve("register_thread", thread_key="web:ann:1", title="Known")["ok"]
    assert door.ann.put("/v1/threads/web:ann:2", {}).status == 200


def test_a_run_does_not_take_a_conversation_over(door):
    door.ann.post("/v1/tasks", WORK | {"name": "desk"})
    door.ann.post("/v1/tasks", WORK | {"name": "oldest", "thread": "web:ann:8"})
    door.ann.put("/v1/threads/web:ann:7", {"task": "desk", "trigger": "@rota"})
    job = begin(door, "ann")
    assert job.serve("schedule_task", instructions="Listen.", name="ear", session="shared")["ok"]
    for fields in (
        {"thread_key": "web:ann:7", "task": "ear"}, {"thread_key": "web:ann:7", "task": ""},
        {"thread_key": "web:ann:7", "trigger": ""}, {"thread_key": "web:ann:7", "trigger": "@ear"},
        {"thread_key": "web:ann:8", "task": "ear"},
    ):  # fmt: skip
        assert job.serve("register_thread", **fields)["error"]["code"] == "not_permitted", fields
    named = job.serve("register_thread", thread_key="web:ann:7", title="Family", task="desk")
    assert (named["ok"], named["title"], named["trigger"]) == (True, "Family", "@rota")
    assert door.ann.put("/v1/threads/web:ann:7", {"task": "ear"}).json["task"] == "ear"


OTHERS = ("telegram:chat:42", "cli:default", "cli:bob", "web:bob:1", "web:annie:1", "ann:room")
"""Conversations that nobody has, and that are not ann's to begin."""


def ways(door, key):
    """Yield what a member may try to get a conversation by."""
    yield door.ann.put(f"/v1/threads/{key}", {})
    yield door.ann.post(f"/v1/threads/{key}/messages", {"text": "Mine?"})
    yield door.ann.post(f"/v1/threads/{key}/tasks", {"title": "Mine", "instructions": "Look."})
    yield door.ann.post("/v1/tasks", WORK | {"thread": key})
    yield door.ann.put("/v1/tasks/mine", WORK | {"thread": key})


@pytest.mark.parametrize("key", OTHERS)
def test_attack_a_member_takes_a_conversation_that_nobody_has(door, key):
    for told in ways(door, key):
        assert (told.status, told.code) == (404, "not_found"), told.json
    told = begin(door, "ann").serve("register_thread", thread_key=key)
    assert told["error"]["code"] == "not_found"
    assert door.main.get("/v1/threads/telegram:chat:42").status == 404
    assert door.main.put(f"/v1/threads/{key}", {"space": "bob"}).json["space"] == "bob"


def test_attack_whether_a_conversation_is_anybodys_is_not_told(door):
    nobodys = [told.json for told in ways(door, "telegram:chat:42")]
    assert door.main.put("/v1/threads/telegram:chat:42", {"space": "bob"}).status == 200
    assert [told.json for told in ways(door, "telegram:chat:42")] == nobodys


def test_a_conversation_is_a_members_once_it_was_assigned(door):
    key = "telegram:chat:42"
    told = door.ann.put(f"/v1/threads/{key}", {})
    assert (
        "use cli:ann:NAME or web:ann:NAME, or have main register it"
        in told.json["error"]["message"]
    )
    assert door.main.put(f"/v1/threads/{key}", {"space": "ann"}).status == 200
    assert [told.status for told in ways(door, key)] == [200, 201, 201, 201, 200]


@pytest.mark.parametrize("key", ["cli:ann", "cli:ann:home", "web:ann", "web:ann:1"])
def test_a_member_begins_conversations_at_its_own_doors(door, key):
    assert door.ann.put(f"/v1/threads/{key}", {}).status == 200

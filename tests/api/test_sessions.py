"""Sessions and messages over HTTP: listed, searched, put aside, resumed, said, and whose they are."""

from datetime import timedelta

import pytest

from rota.model.attempts import AgentSessionRef, KeptAttempt, OutputChunk, OutputStream
from rota.store.attempts import record_launch, record_output
from rota.store.views import list_workers
from tests.conftest import KINDS

HERE = "cli:ann:talk"
WORK = {"instructions": "Talk.", "answers": True, "thread": HERE}


async def _talk(door, name, said):
    """Let a run of the thread tell its session, and end it."""
    bench = door.bench
    if not await door.store.read(list_workers):
        await bench.worker("w", timedelta(days=1))
    (lease,) = await bench.claim(1, worker="w", routes=["agent"])
    kept = KeptAttempt(run_id=lease.run_id, epoch=lease.epoch, home="h", nonce="n", boot="b",
                executor="process", agent="claude", prompt_text=said)  # fmt: skip
    assert await door.store.write(record_launch, kept, "w")
    session = AgentSessionRef("claude", name, 5, 3)
    heard = [OutputChunk(OutputStream.OUT, 0, 1)]
    assert await door.store.write(record_output, lease.run_id, lease.epoch, "w", heard, session)
    assert await bench.end(lease)
    return lease.run_id


@pytest.fixture
def talks(door):
    """Two sessions of ann's thread; the second one is the current."""
    door.ann.post("/v1/tasks", WORK | {"name": "talk"})
    for name, said in (("s-1", "Find the kestrel."), ("s-2", "And now?")):
        assert door.ann.post("/v1/tasks/talk/run-now", {}).status == 201
        door.run(_talk(door, name, said))
    return door


def listed(client, query=""):
    return client.get(f"/v1/sessions{query}").json["sessions"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_listed_put_aside_and_resumed(talks):
    second, first = listed(talks.ann)
    assert (first["thread"], first["agent"], first["name"]) == (HERE, "claude", "s-1")
    assert (first["title"], first["input_tokens"], first["runs"]) == ("Find the kestrel.", 5, 1)
    assert second["archived_at"] is None
    assert first["archived_at"] is not None
    told = talks.ann.post(f"/v1/sessions/{first['id']}/resume", {"title": "Later"})
    assert (told.status, told.json["archived_at"]) == (200, None)
    assert [(one["id"], one["title"]) for one in listed(talks.ann, "?archived=true")] == [
        (second["id"], "Later")
    ]
    told = talks.ann.post("/v1/sessions/current/archive", {"thread": HERE, "title": "Birds"})
    assert [(one["id"], one["title"]) for one in told.json["sessions"]] == [(first["id"], "Birds")]
    assert listed(talks.ann, "?archived=false") == []


def test_what_was_said_is_shown_and_found(talks):
    (second, first) = listed(talks.ann)
    shown = talks.ann.get(f"/v1/sessions/{first['id']}").json
    assert [(one["prompt"], one["state"]) for one in shown["history"]] == [
        ("Find the kestrel.", "succeeded")
    ]
    found = talks.ann.get("/v1/sessions/search?words=KESTREL").json["found"]
    assert [one["session"] for one in found] == [first["id"]]
    assert talks.ann.get("/v1/sessions/search?words=100%25").json["found"] == []
    assert talks.ann.post("/v1/sessions/current/clear", {"session": first["id"]}).status == 200
    assert talks.ann.get(f"/v1/sessions/{first['id']}").status == 404
    assert talks.ann.get("/v1/sessions/search?words=KESTREL").json["found"] == []
    assert [one["id"] for one in listed(talks.ann)] == [second["id"]]


def test_a_session_of_somebody_else_is_not_there(talks):
    (second, first) = listed(talks.ann)
    bob = talks.bob
    for method, path, body in (
        ("GET", f"/v1/sessions/{first['id']}", None),
        ("POST", f"/v1/sessions/{first['id']}/resume", {}),
        ("POST", "/v1/sessions/current/archive", {"session": second["id"]}),
        ("POST", "/v1/sessions/current/archive", {"thread": HERE}),
        ("POST", "/v1/sessions/current/clear", {"session": second["id"]}),
        ("POST", "/v1/sessions/current/clear", {"thread": HERE}),
        ("POST", f"/v1/threads/{HERE}/messages", {"text": "let me in"}),
        ("GET", f"/v1/threads/{HERE}/messages", None),
    ):
        told = bob.ask(method, path, body)
        assert (told.status, told.code) == (404, "not_found"), (path, body, told)
        assert "kestrel" not in told.text
    assert listed(bob) == bob.get("/v1/sessions/search?words=kestrel").json["found"] == []
    assert listed(talks.ann) == [second, first]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [("archive", {}, "body"), ("archive", {"session": 0}, "session"),
     ("clear", {"thread": "nothing"}, "thread"), ("archive", {"session": 1, "title": ""}, "title")],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_field(door, path, body, field):
    told = door.main.post(f"/v1/sessions/current/{path}", body)
    assert (told.status, told.code, told.field) == (400, "invalid", field)


def test_what_is_said_is_for_the_task_that_answers_and_has_one_reader(talks):
    path = f"/v1/threads/{HERE}/messages"
    first = talks.ann.post(path, {"text": "One?"}, Idempotency_Key="k-1")
    again = talks.ann.post(path, {"text": "One?"}, Idempotency_Key="k-1")
    second = talks.ann.post(path, {"text": "Two?"})
    assert (first.status, second.status, first.json) == (201, 201, again.json)
    assert first.json["reader_run"] == second.json["reader_run"]
    run = talks.ann.get(f"/v1/runs/{first.json['reader_run']}").json
    assert (run["task"], run["payload"]) == ("talk", {"messages": True})
    shown = talks.ann.get(path).json["messages"]
    assert [(one["text"], one["state"]) for one in shown] == [
        ("Two?", "pending"),
        ("One?", "pending"),
    ]


def test_a_member_cannot_speak_as_somebody_else(talks):
    path = f"/v1/threads/{HERE}/messages"
    told = talks.ann.post(path, {"text": "hello", "sender": "root"})
    assert (told.status, told.code) == (403, "not_permitted")
    told = talks.main.post(path, {"text": "hello", "sender": "Ann", "space": "ann"})
    assert (told.status, told.json["sender"]) == (201, "Ann")


def test_a_thread_that_is_new_belongs_to_whoever_speaks_there_first(door):
    told = door.bob.post("/v1/threads/web:bob:7/messages", {"text": "Hello?"})
    assert told.status == 201
    assert door.ann.post("/v1/threads/web:bob:7/messages", {"text": "Hello?"}).status == 404
    run = door.bob.get(f"/v1/runs/{told.json['reader_run']}").json
    assert (run["task"], run["payload"]["agent"]) == ("once-agent", "claude")

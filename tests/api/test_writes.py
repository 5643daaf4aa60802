"""What holds for every operation that writes, tried on each of them as the OpenAPI file lists it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rota import faultpoints
from rota.commands.catalogue import commands_of
from rota.store.tasks import get_tasks
from tests.api.test_tenants import (  # noqa: F401 - fixtures among them
    WHOLE,
    address,
    body_of,
    operations,
    rows,
    things,
)
from tests.tools.store_bench import failed

OF_A_DAEMON = {"stop_daemon", "start_daemon"}
"""Their answer is not written in the store: see tests/api/events."""
OF_MAIN = {"create_space", "set_space_budget"}
MADE = {"create_space": {"name": "new"}}
LATER = {
    "enable_task": ("POST", "/v1/tasks/{task}/disable", {}),
    "retry_run": ("POST", "/v1/runs/{run}/cancel", None),
    "resume_all": ("POST", "/v1/pause-all", None),
    "remove_limit": ("PUT", "/v1/limits", {"scope": "total", "cap": 5}),
    "remove_preference": ("PUT", "/v1/notify", {"to": "log:there"}),
    "remove_secret": ("PUT", "/v1/secrets/{secret}", {"value": "a value that nobody knows"}),
}
"""What must have happened before there is anything to do."""
OTHER = {
    "change_task": {"title": "Another"},
    "change_space": {"timezone": "Asia/Tokyo"},
    "create_task": {"instructions": "Something else."},
    "run_task": {"payload": 2},
    "answer_run": {"answer": "no"},
    "put_state": {"value": 2},
}
"""The same with another body."""
UNCHANGED = {
    "change_space": {"timezone": "UTC"},
    "enable_task": {},
    "pause_all": None,
    "clear_session": {"thread": "cli:ann:kestrel"},
}
IN_DOUBT = {"put_secret", "remove_secret", "cancel_thread"}
"""Whose answer is not known if the daemon dies before it is kept; docs/how-to/http.md lists them."""
OF_AN_ATTEMPT = {command.name for command in commands_of("attempt_requests")}
"""What only a run may ask for, about itself."""


@pytest.fixture
def kind():
    return "sqlite"


async def _fail(door, task_id):
    """Let a run of a task fail."""
    (task,) = await door.store.read(get_tasks, [task_id])
    await door.bench.queue(task, lane=None)
    for lease in await door.bench.claim(50, worker="w", routes=["agent"]):
        await door.bench.end(lease, failed())


@pytest.fixture
def asking(door, operations, things):  # noqa: F811
    """Carry an operation out as somebody who may."""

    def ask(operation_id, body=None, **headers):
        method, path, operation = operations[operation_id]
        said = MADE.get(operation_id, body_of(operation_id, operation)) if body is None else body
        who = door.main if operation_id in WHOLE | OF_MAIN else door.ann
        return who.ask(method, address(operation_id, path, things), said, **headers)

    def prepare(operation_id):
        if operation_id == "retry_task":
            door.main.post("/v1/resume-all")
            door.run(_fail(door, int(things["task"])))
        if operation_id in LATER:
            method, path, body = LATER[operation_id]
            who = door.main if operation_id in WHOLE else door.ann
            assert who.ask(method, address(operation_id, path, things), body).status in {200, 409}

    ask.prepare = prepare
    ask.writing = sorted(
        name
        for name, (_, _, operation) in operations.items()
        if "204" in operation["responses"] and not operation.get("x-stream")
        if name not in OF_A_DAEMON | OF_AN_ATTEMPT
    )
    return ask


def test_a_dry_run_changes_nothing(door, asking, tmp_path):
    for operation_id in asking.writing:
        asking.prepare(operation_id)
        before = rows(door, tmp_path)
        told = asking(operation_id, Rota_Dry_Run="true")
        assert (told.status, told.text) == (204, ""), (operation_id, told)
        assert rows(door, tmp_path) == before, operation_id


@pytest.mark.parametrize("word", ["yes", "TRUE", "1", "ture", ""])
def test_a_dry_run_that_is_misspelt_changes_nothing_either(door, asking, word, tmp_path):
    before = rows(door, tmp_path)
    for operation_id in asking.writing:
        told = asking(operation_id, Rota_Dry_Run=word)
        assert (told.status, told.field) == (400, "Rota-Dry-Run"), (operation_id, told)
    assert rows(door, tmp_path) == before


def test_a_dry_run_of_what_cannot_be_says_so(door):
    told = door.main.post("/v1/tasks", {"call": "no:thing"}, Rota_Dry_Run="true")
    assert told.status == 403
    told = door.main.delete("/v1/tasks/nothing", Rota_Dry_Run="true")
    assert told.status == 404
    told = door.main.post("/v1/tasks", {}, Rota_Dry_Run="true")
    assert (told.status, told.field) == (400, "body")


def test_the_same_request_under_a_key_is_carried_out_once(door, asking, tmp_path):
    order = sorted(asking.writing, key=lambda name: name in {"delete_task", "revoke_key"})
    for operation_id in order:
        asking.prepare(operation_id)
        key = f"key-{operation_id}"
        first = asking(operation_id, Idempotency_Key=key)
        assert first.status in {200, 201}, (operation_id, first)
        before = rows(door, tmp_path)
        again = asking(operation_id, Idempotency_Key=key)
        assert again.status == first.status, (operation_id, again)
        assert rows(door, tmp_path) == before, operation_id
        if operation_id == "create_key":
            assert again.json | {"token": first.json["token"]} == first.json
        elif again.headers.get("idempotency-replayed") == "true":
            assert again.json == first.json
        else:
            assert operation_id in UNCHANGED, f"{operation_id} was carried out twice"
        if operation_id in OTHER:
            other = asking(operation_id, OTHER[operation_id], Idempotency_Key=key)
            assert (other.status, other.code) == (409, "conflict"), operation_id


@pytest.fixture
def cut():
    """Fail before an answer is kept on its own, as a death of the daemon would; once for a call."""
    yield lambda: faultpoints.arm("record_answer.begin:1:raise")
    faultpoints.arm("")


def test_an_answer_that_goes_with_its_change_is_given_again_after_a_death(door, asking, cut):
    order = sorted(asking.writing, key=lambda name: name in {"delete_task", "revoke_key"})
    apart = {"site", "lacks"}  # which the machine tells when it is asked
    for operation_id in order:
        asking.prepare(operation_id)
        key = f"key-{operation_id}"
        cut()
        first = asking(operation_id, Idempotency_Key=key)
        faultpoints.arm("")
        again = asking(operation_id, Idempotency_Key=key)
        if operation_id in IN_DOUBT:
            assert (first.status, again.status, again.code) == (503, 409, "in_doubt"), operation_id
        elif operation_id in UNCHANGED and again.headers.get("idempotency-replayed") is None:
            assert again.status == 200, (operation_id, again)
        else:
            assert again.headers.get("idempotency-replayed") == "true", (operation_id, first, again)
            assert again.status in {200, 201}, (operation_id, again)
        if first.status != 503:
            told = {"token": first.json["token"]} if operation_id == "create_key" else {}
            assert again.json | told == first.json, operation_id
        elif operation_id not in IN_DOUBT:
            third = asking(operation_id, Idempotency_Key=key)
            assert third.json == again.json
            assert apart & set(again.json), f"{operation_id} keeps its answer apart"


def test_what_stays_in_doubt_is_documented(operations):  # noqa: F811
    page = Path("docs/how-to/http.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    told = " ".join(row.split(" | ")[0] for row in rows)
    for operation_id in IN_DOUBT | OF_A_DAEMON:
        assert operations[operation_id][1] in told, operation_id


def test_a_change_that_comes_to_nothing_leaves_its_key_unused(door):
    door.main.post("/v1/tasks", {"name": "job", "instructions": "Look."})
    path = "/v1/state/job/word"
    assert door.main.delete(path, Idempotency_Key="one").status == 404
    assert door.main.put(path, {"value": 1}).status == 200
    assert door.main.delete(path, Idempotency_Key="one").status == 200
    first = {"payload": 1, "key": "same"}
    door.main.post("/v1/tasks/job/run-now", first)
    other = first | {"payload": 2}
    for _ in range(2):
        told = door.main.post("/v1/tasks/job/run-now", other, Idempotency_Key="two")
        assert (told.status, told.code) == (409, "conflict")
    assert door.main.post("/v1/tasks/job/run-now", {}, Idempotency_Key="two").status == 201


def test_what_was_due_before_a_change_is_no_part_of_its_request(door, cut):
    every = {"name": "job", "instructions": "Look.", "schedule": {"every": "1h"}}
    door.main.post("/v1/tasks", every)
    door.clock.advance(hours=2)
    faultpoints.arm("drop_schedule.begin:1:raise")
    drop = "/v1/tasks/job/schedules/default"
    assert door.main.delete(drop, Idempotency_Key="one").status == 503
    faultpoints.arm("")
    told = door.main.delete(drop, Idempotency_Key="one")
    assert (told.status, told.headers.get("idempotency-replayed")) == (200, None)
    assert door.main.delete(drop, Idempotency_Key="one").json == told.json


def test_a_key_belongs_to_who_used_it(door):
    body = {"name": "job", "instructions": "Look."}
    for who in (door.main, door.ann, door.bob):
        told = who.post("/v1/tasks", body, Idempotency_Key="one")
        assert (told.status, told.headers.get("idempotency-replayed")) == (201, None)


def test_an_answer_that_was_lost_is_in_doubt_and_not_made_up(door, tmp_path):
    body = {"name": "job", "instructions": "Look."}
    door.main.post("/v1/tasks", body, Idempotency_Key="one")
    with closing(sqlite3.connect(tmp_path / "rota.db")) as database, database:
        # as a crash between the change and its answer does
        database.execute("update requests set status = null, answer = null")
    told = door.main.post("/v1/tasks", body, Idempotency_Key="one")
    assert (told.status, told.code) == (409, "in_doubt")
    assert len(door.main.get("/v1/tasks").json["tasks"]) == 1


def test_a_request_that_was_refused_may_come_again_under_its_key(door):
    assert door.main.post("/v1/tasks/job/run-now", {}, Idempotency_Key="one").status == 404
    door.main.post("/v1/tasks", {"name": "job", "instructions": "Look."})
    assert door.main.post("/v1/tasks/job/run-now", {}, Idempotency_Key="one").status == 201


@pytest.mark.parametrize("key", ["", "a b", "ä", "x" * 257, "a\tb"])
def test_a_key_is_one_visible_word(door, key):
    told = door.main.post(
        "/v1/tasks", {"instructions": "Look."}, Idempotency_Key=key.encode().decode("latin-1")
    )
    assert (told.status, told.field) == (400, "Idempotency-Key")


def test_every_write_says_who_asked(door, asking):
    for operation_id in asking.writing[:8]:
        asking.prepare(operation_id)
        asking(operation_id)
    listed = door.main.get("/v1/requests").json["requests"]
    assert {one["command"] for one in listed} >= {"create_task", "cancel_run", "change_task"}
    assert {one["caller"] for one in listed} <= {f"key:{n}" for n in range(1, 9)}

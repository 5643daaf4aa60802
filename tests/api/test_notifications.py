"""Where people are told: preferences over HTTP, and who may have what delivered where."""

import pytest

from rota.model.attempts import WaitingForAnswer
from rota.store.notifications import thread_owner
from rota.store.tasks import add_thread, find_space
from tests.api.attempts import begin
from tests.conftest import KINDS
from tests.tools.store_bench import failed

WORK = {"instructions": "Look.", "name": "job"}
NOWHERE = "cli:ann:kestrel"


@pytest.fixture
def kind():
    return "sqlite"


@pytest.mark.parametrize("kind", KINDS)
def test_preferences_are_set_listed_and_removed(door):
    told = door.ann.put(
        "/v1/notification-targets", {"to": "log:ops", "min_level": "high", "default": True}
    )
    assert told.status == 200, told
    assert (told.json["space"], told.json["to"]) == ("ann", "log:ops")
    assert (told.json["min_level"], told.json["default"]) == ("high", True)
    assert door.ann.get("/v1/notification-targets").json["targets"] == [told.json]
    assert door.main.get("/v1/notification-targets?space=ann").json["targets"] == [told.json]
    assert door.bob.get("/v1/notification-targets").json["targets"] == []
    assert door.ann.delete("/v1/notification-targets?to=log:ops").json["deleted"] is True
    gone = door.ann.delete("/v1/notification-targets?to=log:ops")
    assert (gone.status, gone.code) == (404, "not_found")


def test_only_channels_that_there_are_can_be_set(door):
    told = door.main.put("/v1/notification-targets", {"to": "telegram:chat:1"})
    assert (told.status, told.field) == (400, "to")
    assert "no channel 'telegram': use log" in told.sentence
    assert door.main.put("/v1/notification-targets", {"to": "ops"}).status == 400
    assert (
        door.main.put("/v1/notification-targets", {"to": "log:ops", "min_level": "loud"}).status
        == 400
    )
    assert door.main.get("/v1/notification-targets").json["targets"] == []


def test_a_space_has_so_many_and_can_change_each(door):
    for number in range(20):
        assert door.ann.put("/v1/notification-targets", {"to": f"log:{number}"}).status == 200
    assert door.ann.put("/v1/notification-targets", {"to": "log:more"}).field == "to"
    assert (
        door.ann.put("/v1/notification-targets", {"to": "log:3", "min_level": "urgent"}).status
        == 200
    )


def test_a_failure_reaches_the_preference_and_why_tells_so(door):
    door.main.put("/v1/notification-targets", {"to": "log:ops"})
    door.main.put("/v1/notification-targets", {"to": "log:loud", "min_level": "urgent"})
    attempt = begin(door)
    assert attempt.end(failed(retryable=False))
    run = door.main.get(f"/v1/runs/{attempt.held.run_id}").json
    (told,) = run["deliveries"]
    assert (told["kind"], told["channel"], told["target"]) == ("notification", "log", "ops")
    notes = door.main.get(f"/v1/runs/{attempt.held.run_id}/why").json["notes"]
    assert "Notifications sent to log:ops." in notes
    assert "Below the level of log:loud: nothing is sent there." in notes


def test_results_that_name_no_place_go_to_the_default(door):
    door.main.put("/v1/notification-targets", {"to": "log:home", "default": True})
    policy = door.main.post("/v1/tasks", WORK).json["policy"]
    assert policy["deliver_to"] == "log:home"
    named = {"name": "named", "policy": {"deliver_to": "log:"}}
    assert door.main.post("/v1/tasks", WORK | named).json["policy"]["deliver_to"] == "log:"
    silent = {"name": "silent", "policy": {"deliver_to": None}}
    assert door.main.post("/v1/tasks", WORK | silent).json["policy"]["deliver_to"] is None
    assert door.ann.post("/v1/tasks", WORK).json["policy"]["deliver_to"] is None
    edited = door.main.patch("/v1/tasks/job", {"policy": {"deliver_to": None}})
    assert edited.json["policy"]["deliver_to"] is None


def test_a_default_that_moves_leaves_tasks_that_stand(door):
    door.main.put("/v1/notification-targets", {"to": "log:home", "default": True})
    door.main.post("/v1/tasks", WORK)
    door.main.put("/v1/notification-targets", {"to": "log:new", "default": True})
    assert [p["default"] for p in door.main.get("/v1/notification-targets").json["targets"]] == [
        False,
        True,
    ]
    shown = door.main.get("/v1/tasks/job").json
    assert shown["policy"]["deliver_to"] == "log:home"


def test_a_question_waits_in_the_outbox_and_is_withdrawn_with_its_answer(door):
    attempt = begin(door, policy={"deliver_to": "log:home"})
    run_id = attempt.held.run_id
    assert attempt.end(WaitingForAnswer(question="deploy?", options=("yes", "no")))
    (told,) = door.main.get(f"/v1/runs/{run_id}").json["deliveries"]
    assert (told["kind"], told["state"]) == ("notification", "pending")
    assert f"rota answer {run_id} yes" in told["body"]
    assert door.main.post(f"/v1/runs/{run_id}/answer", {"answer": "yes"}).status == 200
    (gone,) = door.main.get(f"/v1/runs/{run_id}").json["deliveries"]
    assert gone["state"] == "withdrawn"
    assert door.main.get("/v1/status").json["deliveries"]["pending"] == 0


# attacks: results of one space in the thread of another


@pytest.fixture
def theirs(door):
    """A thread of ann's."""
    door.ann.post(f"/v1/threads/{NOWHERE}/tasks", {"title": "Mine", "instructions": "Look."})
    return NOWHERE


def refused(told):
    return (told.status, told.code) == (404, "not_found")


def test_attack_results_into_a_thread_of_another_space_over_http(door, theirs):
    aimed = WORK | {"policy": {"deliver_to": theirs}}
    assert refused(door.bob.post("/v1/tasks", aimed))
    assert refused(door.bob.put("/v1/tasks/job", {k: v for k, v in aimed.items() if k != "name"}))
    of_thread = {"title": "T", "instructions": "Look.", "policy": {"deliver_to": theirs}}
    assert refused(door.bob.post("/v1/threads/cli:bob:own/tasks", of_thread))
    assert door.bob.post("/v1/tasks", WORK).status == 201
    assert refused(door.bob.patch("/v1/tasks/job", {"policy": {"deliver_to": theirs}}))
    assert door.bob.get("/v1/tasks/job").json["policy"]["deliver_to"] is None


def test_attack_notices_into_a_thread_of_another_space(door, theirs):
    assert door.bob.put("/v1/notification-targets", {"to": theirs}).status in {400, 404}
    door.run(door.store.write(add_thread, 2, "log:theirs"))
    owner = door.run(door.store.read(thread_owner, "log:theirs"))
    bobs = door.run(door.store.read(find_space, "bob")).id
    assert owner != bobs
    assert refused(door.bob.put("/v1/notification-targets", {"to": "log:theirs"}))
    assert door.main.put("/v1/notification-targets", {"to": "log:theirs"}).status == 200


@pytest.mark.parametrize("way", ["desk", "mcp"])
def test_attack_results_into_a_thread_of_another_space_by_an_attempt(door, theirs, way):
    attempt = begin(door, "bob")
    ask = attempt.serve if way == "desk" else attempt.call
    fields = WORK | {"name": "aimed", "policy": {"deliver_to": theirs}}
    told = ask("schedule_task", **fields)
    assert told["error"]["code"] == "not_found", told
    assert ask("schedule_task", **(fields | {"policy": None})).get("error") is None
    told = ask("update_task", task="aimed", policy={"deliver_to": theirs})
    assert told["error"]["code"] == "not_found", told


def test_who_acts_for_everybody_may_deliver_anywhere(door, theirs):
    made = door.main.post("/v1/tasks", WORK | {"policy": {"deliver_to": theirs}, "space": "bob"})
    assert made.status == 201
    attempt = begin(door, "main", "boss")
    fields = {"name": "aimed", "instructions": "Look.", "policy": {"deliver_to": theirs}}
    assert attempt.serve("schedule_task", **fields).get("error") is None
    kept = door.bob.patch("/v1/tasks/job", {"title": "Still theirs"})
    assert (kept.status, kept.json["policy"]["deliver_to"]) == (200, theirs)


def test_a_member_may_deliver_into_threads_of_its_own_and_nobodys(door, theirs):
    own = WORK | {"thread": "cli:bob:own", "policy": {"deliver_to": "cli:bob:own"}}
    assert door.bob.post("/v1/tasks", own).status == 201
    assert door.ann.post("/v1/tasks", WORK | {"policy": {"deliver_to": theirs}}).status == 201
    free = WORK | {"name": "free", "policy": {"deliver_to": "log:anybody"}}
    assert door.bob.post("/v1/tasks", free).status == 201

"""The desk: an attempt asks for what its space may, for as long as it goes on."""

import pytest

from rota import faultpoints
from rota.agent_api.operations import available_operations
from rota.commands.catalogue import every_command, execute
from rota.errors import NotPermitted
from rota.model.attempts import Succeeded, WaitingForAnswer
from rota.store.audit import list_audit_entries
from rota.store.plans import promote_delayed
from rota.store.tasks import list_state
from tests.api.attempts import begin, hold
from tests.conftest import KINDS
from tests.tools.store_bench import failed

EVERY_HOUR = {"every": "1h"}


def test_a_run_schedules_a_task_in_its_conversation(door):
    job = begin(door, "ann")
    made = job.serve("schedule_task", instructions="Tell.", name="later", schedule=EVERY_HOUR)
    assert made["ok"], made
    assert (made["name"], made["space"], made["thread"]) == ("later", "ann", "cli:ann:chat")
    assert (made["origin"], made["site"]["executor"]) == ("attempt:1", "sandbox")
    (kept,) = [
        r
        for r in door.run(door.store.read(list_audit_entries, None, 2**62, 9))
        if "attempt" in r.caller
    ]
    assert (kept.caller, kept.space, kept.command) == (job.held.name, "ann", "create_task")


def test_what_is_left_out_is_its_own(door):
    job = begin(door, "ann")
    assert job.serve("get_task")["name"] == "job"
    assert [run["id"] for run in job.serve("get_task")["recent"]] == [job.held.run_id]
    assert job.serve("get_run")["state"] == "running"
    assert job.serve("set_state", key="k", value={"a": [1]})["ok"]
    assert job.serve("get_state", key="k")["error"]["code"] == "not_found"  # it waits for a success
    assert job.serve("set_state", key="k", value={"a": [1]}, task="job")["ok"]
    assert job.serve("set_state", key="k", value=2, task="other")["error"]["field"] == "task"
    assert job.serve("mark_seen", items=[{"item": "x"}])["ok"]
    assert job.serve("is_seen", item="x")["error"]["code"] == "not_found"
    assert job.serve("why")["ok"]
    assert job.serve("why_run")["ok"]
    job.end(Succeeded())
    remembered = job.door.run(job.door.store.read(list_state, job.held.task_id, "", 9))
    assert [(one.key, one.value) for one in remembered] == [("k", '{"a": [1]}')]


def test_a_task_is_changed_paused_resumed_run_and_cancelled(door):
    job = begin(door, "ann")
    job.serve("schedule_task", instructions="Tell.", name="later", schedule=EVERY_HOUR)
    assert job.serve("update_task", task="later", title="Soon")["title"] == "Soon"
    assert job.serve("pause_task", task="later", reason="quiet")["state"] == "disabled"
    assert job.serve("resume_task", task="later")["state"] == "enabled"
    assert job.serve("run_task", task="later", input="now")["created"]
    assert [task["name"] for task in job.serve("list_tasks")["tasks"]] == ["later", "job"]
    assert job.serve("cancel_task", task="later")["deleted"]
    assert job.serve("get_task", task="later")["error"]["code"] == "not_found"


def test_the_same_request_is_answered_as_before(door):
    job = begin(door, "ann")
    first = job.serve("schedule_task", "r-1", instructions="Tell.", schedule=EVERY_HOUR)
    again = job.serve("schedule_task", "r-1", instructions="Tell.", schedule=EVERY_HOUR)
    assert first["ok"]
    assert again["id"] == first["id"]
    other = job.serve("schedule_task", "r-1", instructions="Something else.")
    assert other["error"]["code"] == "conflict"
    assert len(job.serve("list_tasks")["tasks"]) == 2


SAID = [
    ("send_message", {"text": "Hello."}),
    ("ask_user", {"question": "Shall I?", "action": {"buy": 1}}),
    ("spawn_subtask", {"instructions": "Look closer."}),
    ("set_state", {"key": "k", "value": 1}),
    ("delete_state", {"key": "k"}),
    ("mark_seen", {"items": [{"item": "x"}]}),
    ("record_effect", {"name": "paid", "result": 1}),
    ("run_task", {"task": "job", "input": "now"}),
]


@pytest.mark.parametrize(("verb", "fields"), SAID)
def test_an_answer_goes_with_the_change_it_tells_of(door, verb, fields):
    job = begin(door)
    faultpoints.arm("record_answer.begin:1:raise")
    try:
        first = job.serve(verb, "r-1", **fields)
    finally:
        faultpoints.arm("")
    assert first["ok"], first
    assert job.serve(verb, "r-1", **fields) == first


HOSTILE = [
    ("schedule_task", {"instructions": "x", "space": "bob"}),
    ("schedule_task", {"instructions": "x", "space": "main"}),
    ("schedule_task", {"instructions": "x", "thread": "cli:bob:chat"}),
    ("schedule_task", {"instructions": "x", "run_id": 1}),
    ("schedule_task", {"instructions": "x", "held": [1, 1]}),
    ("schedule_task", {"instructions": "x", "caller": "key:1"}),
    ("schedule_task", {"instructions": "x", "executor": "process"}),
    ("schedule_task", {"instructions": "x", "network": "open", "executor": "sandbox"}),
    ("schedule_task", {"call": "os:system"}),
    ("update_task", {"task": "theirs", "space": "bob", "title": "mine"}),
    ("set_state", {"task": "theirs", "space": "bob", "key": "k", "value": 1}),
    ("run_task", {"task": "theirs", "space": "bob"}),
    ("list_tasks", {"space": "bob"}),
    ("list_runs", {"space": "main"}),
    ("answer_run", {"run": 1, "answer": "yes"}),
    ("create_key", {"name": "k"}),
    ("ask_sql", {"sql": "select 1"}),
    ("pause_all", {}),
    ("list_requests", {}),
    ("", {}),
    ("x" * 10_000, {}),
]  # fmt: skip


def test_what_a_run_claims_gives_it_nothing(door):
    theirs = begin(door, "bob", "theirs")
    job = begin(door, "ann")
    before = door.run(door.store.read(list_audit_entries, None, 2**62, 99))
    for verb, fields in HOSTILE:
        by_id = {**fields, "task": str(theirs.held.task_id)} if "task" in fields else fields
        for said in (fields, by_id):
            told = job.serve(verb, **said)
            assert not told["ok"], (verb, said)
            assert told["error"]["code"] in {"not_found", "invalid", "not_permitted"}, told
            assert len(str(told)) < 2_000
    assert door.run(door.store.read(list_audit_entries, None, 2**62, 99)) == before


def test_a_run_of_another_space_is_not_there(door):
    theirs = begin(door, "bob", "theirs")
    job = begin(door, "ann")
    for verb in ("get_run", "why_run", "cancel_run"):
        assert job.serve(verb, run=theirs.held.run_id)["error"]["code"] == "not_found"
    for verb in ("get_task", "why", "pause_task", "cancel_task", "run_task", "list_state"):
        assert job.serve(verb, task=str(theirs.held.task_id))["error"]["code"] == "not_found"
    assert theirs.serve("get_run")["cancel_requested_at"] is None


def test_a_run_of_main_acts_for_everybody(door):
    theirs = begin(door, "bob", "theirs")
    job = begin(door)
    assert job.serve("get_run", run=theirs.held.run_id)["space"] == "bob"
    made = job.serve("schedule_task", instructions="x", space="bob", name="gift")
    assert (made["space"], made["thread"]) == ("bob", None)


def test_no_run_answers_a_question(door):
    asking = begin(door, "ann", "asking")
    asking.end(WaitingForAnswer(question="May I?"))
    job = begin(door, "ann")
    assert len(job.serve("list_waiting")["waiting"]) == 1
    (answer,) = [c for c in every_command() if c.name == "answer_run"]
    assert answer.name not in {
        found.command.name for found in available_operations(attempt=True).values()
    }
    caller = door.run(door.desk.caller_of(job.held.run_id, job.held.epoch))
    asked = answer.takes(run=asking.held.run_id, answer="yes")
    with pytest.raises(NotPermitted):
        door.run(execute(answer, door.desk._office(caller), asked))
    assert door.ann.post(f"/v1/runs/{asking.held.run_id}/answer", {"answer": "yes"}).status == 200


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_that_is_over_reads_and_changes_nothing(door):
    first = begin(door, "ann", policy={"retry": {"attempts": 2, "base": "1s"}})
    assert first.serve("set_state", "r-1", key="k", value=1)["ok"]
    first.end(failed())
    door.clock.advance(hours=1)
    door.run(door.store.write(promote_delayed, 10))
    second = hold(door)
    assert (second.held.run_id, second.held.epoch) == (first.held.run_id, 2)
    before = door.run(door.store.read(list_audit_entries, None, 2**62, 99))
    for verb, fields in (
        ("set_state", {"key": "k", "value": 2}),
        ("schedule_task", {"instructions": "x"}),
        ("get_state", {"key": "k"}),
        ("list_tasks", {}),
    ):
        assert first.serve(verb, **fields)["error"]["code"] == "fenced"
    assert first.serve("set_state", "r-1", key="k", value=1)["error"]["code"] == "fenced"
    assert door.run(door.store.read(list_audit_entries, None, 2**62, 99)) == before
    assert second.serve("get_state", key="k")["error"]["code"] == "not_found"


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_earlier_attempt_has_made_is_not_made_again(door):
    first = begin(door, "ann", policy={"retry": {"attempts": 3, "base": "1s"}})
    made = [first.serve("schedule_task", instructions="Tell.") for _ in range(2)]
    assert len({one["id"] for one in made}) == 2
    first.end(failed())
    door.clock.advance(hours=1)
    door.run(door.store.write(promote_delayed, 10))
    second = hold(door)
    again = [second.serve("schedule_task", f"r-{n}", instructions="Tell.") for n in range(2)]
    assert [one["id"] for one in again] == [one["id"] for one in made]
    assert all(one["already_done"] for one in again)
    assert second.serve("schedule_task", "r-0", instructions="Tell.")["id"] == made[0]["id"]
    third = second.serve("schedule_task", instructions="Tell.")
    assert third["id"] not in {one["id"] for one in made}
    assert "already_done" not in third
    second.end(failed())
    door.clock.advance(hours=1)
    door.run(door.store.write(promote_delayed, 10))
    last = hold(door)
    more = [last.serve("schedule_task", instructions="Tell.")["id"] for _ in range(3)]
    assert sorted(more) == sorted([*(one["id"] for one in made), third["id"]])


def test_a_run_that_goes_on_after_an_answer_may_do_the_same_again(door):
    job = begin(door, "ann")
    made = job.serve("schedule_task", instructions="Tell.")
    job.end(WaitingForAnswer(question="May I?"))
    assert door.ann.post(f"/v1/runs/{job.held.run_id}/answer", {"answer": "yes"}).status == 200
    assert hold(door).serve("schedule_task", instructions="Tell.")["id"] != made["id"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_end_between_the_look_and_the_change_is_found_out(door):
    job = begin(door, "ann")
    caller = door.run(door.desk.caller_of(job.held.run_id, job.held.epoch))
    job.end()
    told = door.run(
        door.desk._told(door.desk._serve(caller, "set_state", {"key": "k", "value": 1}, "r"), "")
    )
    assert told["error"]["code"] == "fenced"
    assert door.ann.get("/v1/state/job").json["values"] == []


def test_deep_and_odd_values_are_refused_in_one_sentence(door):
    job = begin(door, "ann")
    deep: object = 1
    for _ in range(5_000):
        deep = [deep]
    for value in (deep, float("nan"), "\ud800", "x" * (1 << 21), b"x", {1: 2}):
        told = job.serve("set_state", key="k", value=value)
        assert told["ok"] or told["error"]["code"] == "invalid", told
        assert told["ok"] is (value == {1: 2})
        assert len(str(told)) < 2_000
    assert job.serve("set_state", "two words", key="k", value=1)["error"]["field"] == "request_id"


def test_a_flood_is_slowed_and_others_are_not(door):
    job, other = begin(door, "ann"), begin(door, "bob")
    codes = [job.serve("nothing")["error"]["code"] for _ in range(230)]
    assert codes[:200] == ["not_found"] * 200
    assert codes[-1] == "too_fast"
    assert other.serve("get_task")["ok"]
    door.clock.advance(seconds=60)
    assert job.serve("get_task")["ok"]

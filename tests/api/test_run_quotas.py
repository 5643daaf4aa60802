"""What runs make: bounded in number, pace, depth and reach; people are not held to it."""

from rota.rules.permissions import MAX_CREATED, MAX_DEPTH, MAX_QUEUED
from tests.api.attempts import begin


def test_a_run_makes_no_more_than_so_many_tasks(door):
    job = begin(door, "ann")
    for number in range(MAX_CREATED):
        door.clock.advance(seconds=1)
        assert job.serve("schedule_task", instructions="x", name=f"t{number}")["ok"]
    told = job.serve("schedule_task", instructions="x")
    assert told["error"]["code"] == "conflict"
    assert job.serve("cancel_task", task="t1")["ok"]
    assert job.serve("schedule_task", instructions="x")["ok"]
    assert door.ann.post("/v1/tasks", {"instructions": "x"}).status == 201


def test_what_a_run_schedules_fires_once_a_minute_at_most(door):
    job = begin(door, "ann")
    for rule in ({"every": "59s"}, {"every": "1s"}, {"rrule": "FREQ=SECONDLY"}):
        told = job.serve("schedule_task", instructions="x", schedule=rule)
        assert told["error"]["field"] == "schedule", told
        assert job.serve("update_task", schedule=rule)["error"]["field"] == "schedule"
    burst = {"rrule": "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0,1,2,3"}
    assert not job.serve("schedule_task", instructions="x", schedule=burst)["ok"]
    assert job.serve("schedule_task", instructions="x", schedule={"every": "1m"})["ok"]
    assert (
        door.ann.post("/v1/tasks", {"instructions": "x", "schedule": {"every": "1s"}}).status == 201
    )


def test_a_chain_of_runs_that_make_tasks_ends(door):
    job = begin(door, "ann")
    for depth in range(MAX_DEPTH):
        made = job.serve("schedule_task", instructions="x", name=f"d{depth}")
        assert made["origin"] == f"attempt:{depth + 1}"
        job.end()
        job = begin(door, "ann", f"d{depth}")
    assert job.serve("schedule_task", instructions="x")["error"]["code"] == "not_permitted"


def test_a_queue_is_not_filled_by_a_run(door):
    job = begin(door, "ann")
    assert job.serve("schedule_task", instructions="x", name="other")["ok"]
    told = [job.serve("run_task", task="other")["ok"] for _ in range(MAX_QUEUED + 1)]
    assert told == [True] * MAX_QUEUED + [False]


def test_a_run_behind_walls_makes_nothing_without_them(door):
    walled = begin(door, executor="sandbox")
    door.main.post("/v1/tasks", {"name": "open", "instructions": "x"})
    made = walled.serve("schedule_task", instructions="x")
    assert made["site"]["executor"] == "sandbox"
    for fields in ({"executor": "process"}, {"executor": "sandbox", "network": "open"},
                   {"executor": "sandbox", "mounts": ["/etc"]}):  # fmt: skip
        told = walled.serve("schedule_task", instructions="x", **fields)
        assert told["error"]["code"] == "not_permitted", told
    assert walled.serve("update_task", executor="process")["error"]["code"] == "not_permitted"
    assert walled.serve("update_task", task="open", title="x")["error"]["code"] == "not_permitted"
    told = walled.serve("run_task", task="open", input="rm")
    assert told["error"]["code"] == "not_permitted"
    assert walled.serve("run_task", task="open")["ok"]
    plain = begin(door, name="plain")
    assert plain.serve("schedule_task", instructions="x", executor="process")["ok"]


def test_an_agent_with_few_tools_wins_none_by_way_of_a_task(door):
    job = begin(door, tools=["Read", "mcp__rota"], agent="claude")
    door.main.post("/v1/tasks", {"name": "free", "instructions": "x", "agent": "claude"})
    made = job.serve("schedule_task", instructions="Look.")
    assert door.main.get(f"/v1/tasks/{made['id']}").json["agent_spec"]["tools"] == [
        "Read",
        "mcp__rota",
    ]
    for verb, fields in (
        ("schedule_task", {"command": ["sh", "-c", "id"]}),
        ("schedule_task", {"instructions": "x", "tools": ["Bash"]}),
        ("schedule_task", {"instructions": "x", "agent": "codex"}),
        ("schedule_task", {"instructions": "x", "permission_mode": "bypassPermissions"}),
        ("update_task", {"tools": ["Bash"]}),
        ("update_task", {"tools": None, "title": "x"}),
        ("update_task", {"task": "free", "instructions": "rm"}),
        ("run_task", {"task": "free", "input": "rm"}),
    ):
        told = job.serve(verb, **fields)
        assert told.get("error", {}).get("code") == "not_permitted", (verb, fields, told)
    assert job.serve("update_task", instructions="Look twice.")["ok"]
    assert job.serve("run_task", task="free")["ok"]

"""What a task wants of its agent: stored with it, and refused at once if the agent cannot do it."""

import pytest

from rota.store.tasks import find_space
from rota.store.views import list_tasks

WORK = {"name": "sky", "instructions": "Look at the sky."}
WISH = {
    "model": "opus",
    "fallback_models": ["sonnet"],
    "tools": ["Bash(git *)", "Read"],
    "denied_tools": ["WebFetch"],
    "thinking": "high",
    "permission_mode": "plan",
    "max_turns": 3,
    "context": "group",
}


def test_wishes_are_stored_with_the_task_and_so_is_the_agent_of_the_setting(door):
    made = door.main.post("/v1/tasks", WORK | WISH)
    assert made.status == 201, made
    assert (made.json["agent"], made.json["wish"]) == ("claude", WISH)
    assert door.main.get("/v1/tasks/sky").json["wish"] == WISH
    (task,) = door.run(
        door.store.read(list_tasks, (door.run(door.store.read(find_space, "main"))).id)
    )
    assert task.spec["agent"] == "claude"


def test_a_program_is_told_and_read_as_its_task_says(door):
    own = {"agent": "command", "command": ["think"], "prompt_by": "argv", "output": "lines"}
    made = door.main.post("/v1/tasks", WORK | own)
    assert (made.json["agent"], made.json["wish"]) == (
        "command",
        {"prompt_by": "argv", "output": "lines"},
    )


@pytest.mark.parametrize(
    ("wish", "field"),
    [({"agent": "oracle"}, "agent"), ({"agent": "codex", "tools": ["shell"]}, "tools"),
     ({"agent": "codex", "fallback_models": ["a"]}, "fallback_models"),
     ({"agent": "pi", "denied_tools": ["bash"]}, "denied_tools"),
     ({"agent": "pi", "permission_mode": "plan"}, "permission_mode"),
     ({"agent": "pi", "max_turns": 3}, "max_turns"), ({"thinking": "very"}, "thinking"),
     ({"permission_mode": "god"}, "permission_mode"), ({"model": "--model"}, "model"),
     ({"tools": ["--add-dir"]}, "tools"), ({"max_turns": 0}, "max_turns"),
     ({"prompt_by": "argv"}, "prompt_by"), ({"output": "lines"}, "output"),
     ({"prompt_by": "mail"}, "prompt_by"),
     ({"agent": "command", "command": ["think"], "model": "opus"}, "model")],
)  # fmt: skip
def test_what_an_agent_cannot_do_is_refused_with_its_field(door, wish, field):
    told = door.main.post("/v1/tasks", WORK | wish)
    assert (told.status, told.field) == (400, field), told
    assert door.main.get("/v1/tasks").json["tasks"] == []


@pytest.mark.parametrize("work", [{"command": ["ls"]}, {"call": "tests.api.callables:greet"}])
def test_only_agents_are_asked_for_anything(door, work):
    told = door.main.post("/v1/tasks", {"name": "job", "model": "opus"} | work)
    assert (told.status, told.field) == (400, "model"), told


def test_a_change_is_held_against_the_agent_as_well(door):
    door.main.post("/v1/tasks", WORK | {"tools": ["Read"], "model": "opus"})
    refused = door.main.patch("/v1/tasks/sky", {"agent": "codex"})
    assert (refused.status, refused.field) == (400, "tools")
    changed = door.main.patch("/v1/tasks/sky", {"agent": "codex", "tools": None})
    assert (changed.json["agent"], changed.json["wish"]) == ("codex", {"model": "opus"})


def test_work_that_is_done_once_is_held_against_its_agent(door):
    told = door.main.post("/v1/runs", {"agent": {"instructions": "Go.", "agent": "oracle"}})
    assert (told.status, told.field) == (400, "agent"), told
    made = door.main.post("/v1/runs", {"agent": {"instructions": "Go."}})
    assert door.main.get(f"/v1/runs/{made.json['run']}").json["payload"]["agent"] == "claude"


def test_a_task_that_is_put_again_keeps_its_agent(door):
    work = {"instructions": "Look at the sky."}
    door.main.put("/v1/tasks/sky", work | {"agent": "pi"})
    again = door.main.put("/v1/tasks/sky", work)
    assert (again.json["agent"], again.json["change"]) == ("pi", "unchanged")
    other = door.main.put("/v1/tasks/sky", work | {"agent": "codex"})
    assert (other.json["agent"], other.json["change"]) == ("codex", "changed")

"""Scripts over HTTP: what may be asked for, and how it is refused."""

from __future__ import annotations

import pytest

REFUSED = {
    "no words": {"command": []},
    "an absolute path": {"command": ["/bin/sh"]},
    "a path that climbs": {"command": ["../run.py"]},
    "an option": {"command": ["-c", "x"]},
    "a line": {"command": "echo hello"},
    "a number": {"command": ["sleep", 1]},
    "a NUL": {"command": ["a\0b"]},
    "two lines for a shell": {"command": ["a", "b"], "shell": True},
    "a shell that is no flag": {"command": ["a"], "shell": "yes"},
    "an unknown output": {"command": ["a"], "output": "loud"},
    "a folder outside": {"command": ["a"], "folder": "../b"},
    "an unknown field": {"command": ["a"], "cwd": "/"},
}
OF_A_TASK = {
    "a shell alone": {"instructions": "Look.", "shell": True},
    "nothing": {"shell": True},
    "two kinds": {"command": ["a"], "call": "a:b"},
    "no length": {"command": ["a"], "policy": {"timeout": "soon"}},
}


@pytest.mark.parametrize("case", [*REFUSED, *OF_A_TASK])
def test_a_task_that_cannot_run_is_not_made(door, case):
    asked = {"name": "job", **{**REFUSED, **OF_A_TASK}[case]}
    answer = door.main.post("/v1/tasks", asked)
    assert answer.status == 400, answer
    assert door.main.get("/v1/tasks/job").status == 404


@pytest.mark.parametrize("case", REFUSED)
def test_an_errand_that_cannot_run_is_not_queued(door, case):
    assert door.main.post("/v1/runs", {"script": REFUSED[case]}).status == 400
    assert door.main.get("/v1/runs").json["runs"] == []


def test_what_a_script_runs_is_shown_as_it_is(door):
    words = ["run.py", "$(x)", "a b", ""]
    made = door.main.post("/v1/tasks", {"name": "job", "command": words, "output": "lines"})
    assert (made.status, made.json["command"], made.json["shell"]) == (201, words, False)
    line = "ls | wc -l"
    made = door.main.post("/v1/tasks", {"name": "line", "command": [line], "shell": True})
    assert (made.status, made.json["command"], made.json["shell"]) == (201, [line], True)
    changed = door.main.patch("/v1/tasks/line", {"command": ["ls", "-l"], "shell": False})
    assert (changed.status, changed.json["shell"]) == (200, False)
    assert door.main.patch("/v1/tasks/job", {"shell": True}).status == 400

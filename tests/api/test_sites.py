"""Where a task's programs run, over HTTP: shown, changed and refused."""

import pytest

from tests.api.conftest import CALL

SCRIPT = {"command": ["ls"]}
IMAGE = "python@sha256:" + "0" * 64


def test_the_usual_executor_is_shown_at_creation(door):
    made = door.main.post("/v1/tasks", SCRIPT)
    assert made.status == 201
    assert made.json["site"] == {
        "executor": "process",
        "default": True,
        "terminal": False,
        "isolated": False,
        "image": None,
        "mounts": [],
        "network": "none",
        "folder": None,
        "memory_mib": None,
        "cpus": None,
        "processes": None,
        "enforced_limits": {},
    }
    own = door.ann.post("/v1/tasks", SCRIPT).json["site"]
    assert (own["executor"], own["default"], own["isolated"]) == ("sandbox", True, True)


def test_the_executor_is_one_that_is_installed(door):
    told = door.main.post("/v1/tasks", SCRIPT | {"executor": "moon"})
    assert (told.status, told.field) == (400, "executor")
    assert told.json["error"]["message"] == (
        'executor "moon": choose container, process, sandbox or tmux'
    )
    schema = door.main.get("/v1/openapi.json").json["components"]["schemas"]["CreateTask"]
    assert "enum" not in str(schema["properties"]["executor"])
    assert door.main.post("/v1/tasks", SCRIPT | {"executor": "tmux"}).json["site"]["terminal"]


def test_bounds_are_kept_with_the_task(door):
    made = door.main.post("/v1/tasks", SCRIPT | {"memory_mib": 64, "processes": 9, "cpus": 0.5})
    site = made.json["site"]
    assert (site["memory_mib"], site["processes"], site["cpus"]) == (64, 9, 0.5)


def test_a_callable_has_no_site(door):
    assert door.main.post("/v1/tasks", {"call": CALL}).json["site"] is None


def test_a_site_is_kept_with_the_task_and_changed_as_a_whole(door):
    wanted = SCRIPT | {"name": "one", "executor": "container", "image": IMAGE, "mounts": ["/a"]}
    assert door.main.post("/v1/tasks", wanted).status == 201
    site = door.main.get("/v1/tasks/one").json["site"]
    assert (site["executor"], site["image"], site["mounts"]) == ("container", IMAGE, ["/a"])
    changed = door.main.patch("/v1/tasks/one", {"mounts": ["/b:rw"]}).json["site"]
    assert (changed["image"], changed["mounts"]) == (IMAGE, ["/b:rw"])
    changed = door.main.patch("/v1/tasks/one", {"executor": "tmux", "isolate": True}).json["site"]
    assert (changed["executor"], changed["isolated"]) == ("tmux", True)
    assert (changed["image"], changed["mounts"]) == (None, [])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (SCRIPT | {"executor": "moon"}, "executor"),
        (SCRIPT | {"executor": "container"}, "image"),
        (SCRIPT | {"image": IMAGE}, "image"),
        (SCRIPT | {"executor": "sandbox", "mounts": ["../a"]}, "mounts"),
        (SCRIPT | {"network": "open"}, "network"),
        (SCRIPT | {"processes": 0}, "processes"),
        (SCRIPT | {"cpus": 0}, "cpus"),
        (SCRIPT | {"cpus": 4096}, "cpus"),
        ({"call": CALL, "executor": "process"}, "executor"),
        ({"call": CALL, "memory_mib": 100}, "memory_mib"),
    ],
)
def test_a_site_that_cannot_be_is_refused_in_one_sentence(door, body, field):
    told = door.main.post("/v1/tasks", body)
    assert (told.status, told.field) == (400, field), told
    assert "\n" not in told.sentence
    assert door.main.get("/v1/tasks").json["tasks"] == []


def test_a_member_cannot_leave_its_walls(door):
    for body in ({"executor": "process"}, {"executor": "sandbox", "network": "open"}):
        assert door.ann.post("/v1/tasks", SCRIPT | body).status == 403
    made = door.ann.post("/v1/tasks", SCRIPT | {"name": "own"})
    assert made.status == 201
    assert door.ann.patch("/v1/tasks/own", {"executor": "process"}).status == 403

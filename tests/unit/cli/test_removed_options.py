"""`none` takes an option of a task off again."""

from __future__ import annotations

from rota.commands.task_fields import NONE, TASK_FIELDS

SPACED = {"memory": ("64", "memory_mib"), "processes": ("8", "processes")}
POLICY = {
    "timeout": "10m",
    "idle-timeout": "5m",
    "grace": "3s",
    "pool": "foreground",
    "deadline": "1h",
    "group": "api",
    "lane": "one",
    "deliver-to": "log:",
}
WISHES = {
    "model": ("stub", "model"),
    "permission-mode": ("plan", "permission_mode"),
    "max-turns": ("3", "max_turns"),
    "deny-tool": ("Bash", "denied_tools"),
}


def test_a_policy_is_taken_off(rota):
    told = [word for name, value in POLICY.items() for word in (f"--{name}", value)]
    made = rota.json("task", "create", "x", "--command", "true", *told)["policy"]
    off = [word for name in POLICY for word in (f"--{name}", "none")]
    left = rota.json("task", "edit", "x", *off)["policy"]
    for name in (name.replace("-", "_") for name in POLICY):
        assert made[name] is not None, name
        assert left[name] is None, name


def test_bounds_of_a_program_are_taken_off(rota):
    told = [word for name, (value, _) in SPACED.items() for word in (f"--{name}", value)]
    made = rota.json("task", "create", "x", "--command", "true", "--folder", "here", *told)
    off = [word for name in (*SPACED, "folder") for word in (f"--{name}", "none")]
    left = rota.json("task", "edit", "x", *off)
    for field in (*(field for _, field in SPACED.values()), "folder"):
        assert made["site"][field] is not None
        assert left["site"][field] is None


def test_wishes_to_an_agent_are_taken_off(rota):
    told = [word for name, (value, _) in WISHES.items() for word in (f"--{name}", value)]
    made = rota.json("task", "create", "x", "--instructions", "hi", "--agent", "claude", *told)
    off = [word for name in WISHES for word in (f"--{name}", "none")]
    left = rota.json("task", "edit", "x", *off)
    for _, field in WISHES.values():
        assert made["wish"][field]
        assert not left["wish"].get(field)


def test_a_task_that_followed_another_follows_nobody(rota, hello):
    rota.ok("task", "create", "x", "--command", "true", "--after", hello)
    assert rota.json("task", "edit", "x", "--after", "none")["after"] is None


def test_a_new_task_may_say_none_as_well(rota):
    made = rota.json("task", "create", "x", "--command", "true", "--memory", "none")
    assert made["site"]["memory_mib"] is None


def test_help_names_the_options_that_none_removes(rota):
    options = rota.ok("task", "edit", "--help").out.partition("Options:")[2].split("\n  --")
    told = {
        option.split()[0] for option in options if "none removes it" in " ".join(option.split())
    }
    assert told == {f.flag.removeprefix("--") for f in TASK_FIELDS if f.off == NONE}

"""What is said of bounds is what is held here."""

from __future__ import annotations

import re

import pytest

from rota.cli.task_text import limit_warnings, site_text
from rota.executors.shared.resource_limits import CgroupHierarchy, enforced_limits
from rota.model.programs import LimitEnforcement

SITE = {
    "executor": "process",
    "isolated": False,
    "image": None,
    "network": "none",
    "folder": None,
    "mounts": [],
    "memory_mib": 200,
    "processes": None,
    "cpus": None,
    "default": False,
    "terminal": False,
}
ALL = frozenset({"pids", "memory", "cpu"})


def said(**changes):
    return {"name": "x", "space": "main", "site": {**SITE, **changes}}


def test_a_control_group_holds_every_bound_for_all_processes_together():
    held = enforced_limits(CgroupHierarchy("/g", ALL, unified=True), counts_alone=False)
    assert set(held.values()) == {LimitEnforcement.TOGETHER}


def test_without_one_memory_is_held_for_each_process_and_processors_for_nobody():
    held = enforced_limits(None, counts_alone=True)
    assert held == {
        "memory_mib": LimitEnforcement.EACH,
        "processes": LimitEnforcement.TOGETHER,
        "cpus": LimitEnforcement.NOT,
    }
    assert enforced_limits(None, counts_alone=False)["processes"] is LimitEnforcement.NOT


def test_a_bound_of_memory_says_for_whom_it_holds():
    assert site_text(said(enforced_limits={"memory_mib": "together"})) == "process, at most 200 MiB"
    each = site_text(said(enforced_limits={"memory_mib": "each"}))
    assert each == "process, at most 200 MiB for each process"


def test_what_nothing_holds_is_said_with_what_to_do():
    (line,) = limit_warnings(said(enforced_limits={"memory_mib": "each", "cpus": "not"}))
    assert line.endswith("rota task edit x --cpus none")
    assert limit_warnings({"name": "x", "site": None}) == []


def test_processors_that_a_named_executor_cannot_bound_here_are_refused_at_once(rota):
    task = ("task", "create", "y", "--command", "true", "--cpus", "64", "--executor", "process")
    held = rota.json("task", "create", "x", "--command", "true", "--cpus", "64")["site"][
        "enforced_limits"
    ]
    if held["cpus"] == LimitEnforcement.TOGETHER:
        rota.ok(*task)
    else:
        assert "process cannot limit processors on this machine" in rota.refused(*task, code=6)


@pytest.mark.parametrize("bound", ["memory", "cpus", "processes"])
def test_a_task_with_a_bound_says_how_it_is_held_here(rota, bound):
    made = rota.json("task", "create", "x", "--command", "true", f"--{bound}", "64")
    (held,) = made["site"]["enforced_limits"].values()
    assert held in set(LimitEnforcement)
    told = rota.ok("task", "edit", "x", "--title", "same").out
    assert ("cannot be limited on this machine" in told) == (held == LimitEnforcement.NOT)
    shown = rota.ok("task", "show", "x").out
    said_again = re.search(r"^warning .+ cannot be limited on this machine", shown, re.MULTILINE)
    assert (said_again is not None) == (held == LimitEnforcement.NOT)


def test_doctor_says_what_a_bound_on_processors_needs(rota):
    made = rota.json("task", "create", "x", "--command", "true", "--cpus", "64")
    (plain,) = [
        one for one in rota("doctor", "--json").json["executors"] if one["name"] == "process"
    ]
    missing = {one["what"]: one["to_do"] for one in plain["missing"]}
    unheld = made["site"]["enforced_limits"]["cpus"] == LimitEnforcement.NOT
    assert ("delegate the cpu controller" in missing.get("a limit on CPUs", "")) == unheld

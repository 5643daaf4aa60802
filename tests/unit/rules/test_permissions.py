"""Who may do what, and what attempts may change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Conflict, Invalid, NotFound, NotPermitted
from rota.model.audit import AttemptIdentity
from rota.model.keys import KeyScope
from rota.model.programs import NetworkAccess, SharedFolder, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.rules.permissions import (
    LOCAL,
    MAX_CREATED,
    MAX_DEPTH,
    Caller,
    attempt_caller,
    check_created_tasks,
    check_judging_fields,
    check_pace,
    check_person,
    check_reach,
    check_scope,
    check_space,
    check_tools,
    inherit_settings,
    may_act_for,
    origin_of,
)


@pytest.mark.parametrize("space", ["main", "ann", "nowhere"])
def test_main_may_act_for_every_space(space):
    check_space(LOCAL, space)
    check_space(Caller(space="other", role=SpaceRole.MAIN), space)


def test_a_member_may_act_for_its_own_space():
    check_space(Caller(space="ann", role=SpaceRole.MEMBER), "ann")


@pytest.mark.parametrize("space", ["main", "bob", ""])
def test_to_a_member_other_spaces_do_not_exist(space):
    with pytest.raises(NotFound) as refusal:
        check_space(Caller(space="ann", role=SpaceRole.MEMBER), space)
    assert refusal.value.code == "not_found"


# attempts

OPEN = Site(executor="process")
WALLED = Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path="/data"),))
HELD = AttemptIdentity(run_id=7, epoch=2, task_id=3, task="job", thread=None, space="ann")


def test_an_attempt_is_a_caller_of_its_space_and_no_person():
    caller = attempt_caller(HELD, SpaceRole.MEMBER)
    assert (caller.id, caller.space, caller.attempt) == ("attempt:7.2", "ann", HELD)
    assert not may_act_for(caller, "bob")
    for scope in (KeyScope.ADMIN, KeyScope.SQL):
        with pytest.raises(NotPermitted):
            check_scope(caller, scope)
    with pytest.raises(NotPermitted):
        check_person(caller)
    with pytest.raises(NotPermitted):
        check_person(attempt_caller(HELD, SpaceRole.MAIN))
    check_person(LOCAL)


def test_origins_count_how_deep_runs_make_tasks_of_runs():
    origin = "cli"
    for depth in range(1, MAX_DEPTH + 1):
        origin = origin_of(origin)
        assert origin == f"attempt:{depth}"
    with pytest.raises(NotPermitted):
        origin_of(origin)


def test_a_space_has_room_for_so_many():
    check_created_tasks(MAX_CREATED - 1)
    with pytest.raises(Conflict):
        check_created_tasks(MAX_CREATED)


def test_two_fires_keep_apart():
    start = datetime(2026, 1, 1, tzinfo=UTC)
    check_pace([])
    check_pace([start, start + timedelta(seconds=60)])
    with pytest.raises(Invalid):
        check_pace([start, start + timedelta(hours=1), start + timedelta(hours=1, seconds=59)])


@pytest.mark.parametrize(
    "wanted",
    [
        OPEN,
        Site(executor="tmux"),
        Site(executor="sandbox", isolated=True, network=NetworkAccess.EGRESS),
        Site(executor="sandbox", isolated=True, network=NetworkAccess.OPEN),
        Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path="/"),)),
        Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path="/data2"),)),
        Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path="/data", write=True),)),
    ],
)
def test_walls_are_not_left_by_way_of_a_task(wanted):
    check_reach(OPEN, wanted)
    with pytest.raises(NotPermitted):
        check_reach(WALLED, wanted)


OWN = {
    "instructions": "x",
    "agent": "claude",
    "tools": ["Read", "mcp__rota"],
    "denied_tools": ["Bash"],
}


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (TaskKind.SCRIPT, {"command": ["sh"]}),
        (TaskKind.AGENT, {**OWN, "agent": "command", "command": ["sh"]}),
        (TaskKind.AGENT, {**OWN, "tools": None}),
        (TaskKind.AGENT, {**OWN, "tools": ["Read", "Write"]}),
        (TaskKind.AGENT, {**OWN, "denied_tools": []}),
        (TaskKind.AGENT, {**OWN, "permission_mode": "bypassPermissions"}),
        (TaskKind.AGENT, {**OWN, "agent": "codex"}),
    ],
)
def test_tools_are_not_won_by_way_of_a_task(kind, wanted):
    with pytest.raises(NotPermitted):
        check_tools(OWN, kind, wanted)
    check_tools({"instructions": "x", "agent": "claude"}, kind, wanted)
    check_tools({"command": ["sh"]}, kind, wanted)
    check_tools(OWN, TaskKind.AGENT, {**OWN, "tools": ["Read"]})


def test_no_agent_changes_what_it_is_judged_by():
    stood = {"instructions": "x", "checks": [{"file": "report.md"}]}
    check_judging_fields({"instructions": "x"}, stood, {**stood, "title": "y"})
    check_judging_fields({"instructions": "x"}, None, stood)
    for wanted in ({"instructions": "x"}, {**stood, "checks": []}, {**stood, "gate": "true"}):
        with pytest.raises(NotPermitted):
            check_judging_fields({"instructions": "x"}, stood, wanted)
    with pytest.raises(NotPermitted):
        check_judging_fields(OWN, None, stood)


def test_bounds_are_handed_on():
    own = {**OWN, "executor": "sandbox", "network": "egress"}
    told = inherit_settings(own, {"instructions": "y"})
    assert told == {**own, "instructions": "y"}
    assert inherit_settings(own, {"instructions": "y", "executor": "tmux"}).get("network") is None
    assert inherit_settings(own, {"instructions": "y", "tools": []})["agent"] == "claude"
    assert inherit_settings(own, {"instructions": "y", "agent": "codex"}).get("tools") is None
    assert inherit_settings(own, {"command": ["x"]}) == {
        "command": ["x"],
        "executor": "sandbox",
        "network": "egress",
    }


def test_the_same_walls_will_do():
    check_reach(WALLED, WALLED)
    check_reach(WALLED, Site(executor="container", isolated=True, image="x"))
    check_reach(
        WALLED, Site(executor="sandbox", isolated=True, mounts=(SharedFolder(path="/data/a"),))
    )

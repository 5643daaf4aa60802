"""Where a task's programs run: what it says, what its space may, and what is usual."""

import pytest

from rota.errors import Invalid, NotPermitted
from rota.model.programs import NetworkAccess, SharedFolder, Site
from rota.model.spaces import SpaceRole
from rota.rules.task_spec import site_of
from tests.tools.plugins import EXECUTORS

IMAGE = "python@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("spec", "role", "site"),
    [
        ({}, SpaceRole.MAIN, Site(executor="process")),
        ({}, SpaceRole.MEMBER, Site(executor="sandbox", isolated=True)),
        ({"executor": "sandbox"}, SpaceRole.MAIN, Site(executor="sandbox", isolated=True)),
        ({"executor": "tmux"}, SpaceRole.MAIN, Site(executor="tmux")),
        (
            {"executor": "tmux", "isolate": True},
            SpaceRole.MAIN,
            Site(executor="tmux", isolated=True),
        ),
        ({"executor": "tmux"}, SpaceRole.MEMBER, Site(executor="tmux", isolated=True)),
        (
            {"executor": "container", "image": IMAGE, "network": "open"},
            SpaceRole.MAIN,
            Site(
                executor="container",
                isolated=True,
                image=IMAGE,
                network=NetworkAccess.OPEN,
                own_network=True,
            ),
        ),
        (
            {"mounts": ["/a", "/b:rw", "/c:ro"]},
            SpaceRole.MEMBER,
            Site(
                executor="sandbox",
                isolated=True,
                mounts=(
                    SharedFolder(path="/a"),
                    SharedFolder(path="/b", write=True),
                    SharedFolder(path="/c"),
                ),
            ),
        ),
    ],
)
def test_a_task_runs_where_it_says_or_where_it_is_usual(spec, role, site):
    assert site_of(spec, role, EXECUTORS) == site


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"executor": "moon"}, "executor"),
        ({"executor": "container"}, "image"),
        ({"executor": "sandbox", "image": IMAGE}, "image"),
        ({"isolate": True}, "isolate"),
        ({"executor": "sandbox", "isolate": False}, "isolate"),
        ({"mounts": ["/a"]}, "mounts"),
        ({"executor": "tmux", "mounts": ["/a"]}, "mounts"),
        ({"network": "open"}, "network"),
        ({"executor": "sandbox", "mounts": ["a"]}, "mounts"),
        ({"executor": "sandbox", "mounts": ["/a/../b"]}, "mounts"),
        ({"executor": "sandbox", "mounts": ["/a:rx"]}, "mounts"),
        ({"executor": "sandbox", "mounts": ["/a:b:rw"]}, "mounts"),
    ],
)
def test_what_does_not_go_together_is_refused(spec, field):
    with pytest.raises(Invalid) as refused:
        site_of(spec, SpaceRole.MAIN, EXECUTORS)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "spec",
    [{"executor": "process"}, {"network": "open"}, {"executor": "sandbox", "network": "open"}],
)
def test_a_member_stays_behind_walls(spec):
    with pytest.raises(NotPermitted):
        site_of(spec, SpaceRole.MEMBER, EXECUTORS)


def test_a_member_cannot_take_the_walls_of_a_pane_away():
    with pytest.raises(Invalid, match="always isolated"):
        site_of({"executor": "tmux", "isolate": False}, SpaceRole.MEMBER, EXECUTORS)


@pytest.mark.parametrize(
    "spec",
    [
        {"executor": 5},
        {"executor": ["process"]},
        {"executor": "container", "image": 5},
        {"executor": "tmux", "isolate": "yes"},
        {"executor": "sandbox", "mounts": "/a"},
        {"executor": "sandbox", "mounts": [5]},
        {"executor": "sandbox", "network": "moon"},
        {"executor": "sandbox", "network": []},
        {"memory_mib": "lots"},
        {"cpus": "all"},
        {"processes": True},
        {"processes": 1.5},
    ],
)
def test_what_no_door_has_looked_at_is_refused_in_one_sentence(spec):
    with pytest.raises(Invalid):
        site_of(spec, SpaceRole.MAIN, EXECUTORS)

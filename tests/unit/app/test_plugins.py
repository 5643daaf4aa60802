"""Plug-ins: what entry points name, its settings, and what becomes of one that cannot be used."""

from __future__ import annotations

import sys
from importlib import invalidate_caches

import pytest

from rota.app.plugins import LocalPlugins, find_plugins, read_plugin_settings
from rota.app.settings import load_settings
from rota.errors import Invalid, Refused
from rota.model.executors import Isolation
from rota.model.spaces import SpaceRole
from rota.rules.task_spec import site_of
from tests.tools.distributions import write_distribution

MODULE = """
from dataclasses import dataclass, field
from rota.executors.process.executor import ProcessExecutor
from rota.model.executors import ExecutorCapabilities
from rota.model.spaces import SpaceRole
from rota.ports.agent import AgentPlugin
from rota.ports.channel import ChannelPlugin
from rota.ports.executor import ExecutorPlugin

@dataclass(frozen=True)
class Choices:
    path: str = "/tmp"
    size: int = 1

class Post:
    def __init__(self, name, choices):
        self.name, self.choices = name, choices

    async def send(self, delivery):
        pass

def raises(*_):
    raise ZeroDivisionError("nothing can be divided")

PIGEON = ChannelPlugin(make=lambda choices: Post("pigeon", choices), settings=Choices)
RAISING = ChannelPlugin(make=raises)
MISNAMED = ChannelPlugin(make=lambda _: Post("raven", None))
MAIN_TOO = ExecutorPlugin(
    make=raises, capabilities=ExecutorCapabilities(default_for=frozenset({SpaceRole.MAIN}))
)
NO_TERMINAL = ExecutorPlugin(make=raises, capabilities=ExecutorCapabilities(terminal=True))
BROKEN = ExecutorPlugin(make=raises, capabilities=ExecutorCapabilities())
DEFAULT = AgentPlugin(make=raises, default=True)
"""


@pytest.fixture
def strangers(tmp_path, monkeypatch):
    """Return what installs a distribution with entry points, for the next scan."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def install(**groups):
        points = {f"rota.{group}": named for group, named in groups.items()}
        write_distribution(folder, "rota-strangers", {"strangers": MODULE}, points)
        invalidate_caches()
        find_plugins.cache_clear()

    yield install
    sys.modules.pop("strangers", None)
    find_plugins.cache_clear()


@pytest.fixture
def settings(tmp_path):
    """Return what reads settings from a file of such lines."""

    def read(text=""):
        (tmp_path / "rota.toml").write_text(text)
        return load_settings(str(tmp_path))

    return read


def problems(found):
    return {(each.kind, each.name): each.reason for each in found.problems}


def test_what_comes_with_rota_is_found_by_its_entry_points(settings):
    found = LocalPlugins(settings())
    assert found.problems == []
    assert {*found.executors.known} == {"container", "process", "sandbox", "tmux"}
    assert {*found.agents.known} == {"claude", "codex", "command", "pi"}
    assert {*found.every_agent} == {*found.agents.known, "script"}
    assert (found.agents.default, [*found.channels]) == ("claude", ["log"])
    assert {*found.make_executors()} == {*found.executors.known}
    defaults = [found.executors.default(role) for role in (SpaceRole.MAIN, SpaceRole.MEMBER)]
    assert [found.executors.named(name).isolation for name in defaults] == [
        Isolation.NEVER,
        Isolation.ALWAYS,
    ]


def test_the_entry_points_are_scanned_once(strangers, settings):
    strangers(channels={"pigeon": "strangers:PIGEON"})
    first, second = LocalPlugins(settings()), LocalPlugins(settings("slots = 5\n"))
    assert (first.channel_names, second.channel_names) == (("log", "pigeon"),) * 2
    assert find_plugins.cache_info().misses == 1


def test_a_channel_of_somebody_else_has_settings_of_its_own(strangers, settings, monkeypatch):
    strangers(channels={"pigeon": "strangers:PIGEON"})
    monkeypatch.setenv("ROTA_CHANNELS_PIGEON_SIZE", "7")
    found = LocalPlugins(settings('[channels.pigeon]\npath = "/loft"\nsize = 3\n'))
    choices = found.channels["pigeon"].choices
    assert (choices.path, choices.size) == ("/loft", 7)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("channel", "strangers:NOTHING", "strangers:NOTHING cannot be loaded (AttributeError: "),
        ("channel", "nowhere:PIGEON", "nowhere:PIGEON cannot be loaded (ModuleNotFoundError: "),
        ("channel", "strangers:BROKEN", "strangers:BROKEN is no ChannelPlugin"),
        ("executor", "strangers:MAIN_TOO", "another executor is the default of the same spaces"),
        ("executor", "strangers:NO_TERMINAL", "its capabilities include a terminal"),
        ("agent", "strangers:DEFAULT", "another agent is the default"),
    ],
)
def test_what_cannot_be_loaded_is_named_with_its_reason(strangers, settings, kind, value, reason):
    strangers(**{f"{kind}s": {"new": value}})
    found = LocalPlugins(settings(f"[{kind}s.new]\nx = 1\n"))
    assert problems(found)[kind, "new"].startswith(reason)
    assert len(found.problems) == 1
    assert (kind, "new") not in found.settings
    assert (found.agents.default, *found.channels) == ("claude", "log")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("strangers:RAISING", "it cannot be made (ZeroDivisionError: nothing can be divided)"),
        ("strangers:MISNAMED", "it is named raven, and its entry point new"),
    ],
)
def test_what_cannot_be_made_is_left_out(strangers, settings, value, reason):
    strangers(channels={"new": value}, executors={"new": "strangers:BROKEN"})
    found = LocalPlugins(settings())
    assert [*found.channels] == ["log"]
    assert "new" not in found.make_executors()
    broken = "it cannot be made (ZeroDivisionError: nothing can be divided)"
    assert problems(found) == {("channel", "new"): reason, ("executor", "new"): broken}


def test_nobody_takes_the_name_of_a_plug_in_that_comes_with_rota(strangers, settings):
    strangers(channels={"log": "strangers:PIGEON"})
    found = LocalPlugins(settings())
    assert problems(found) == {
        ("channel", "log"): "rota-strangers: another distribution has a plug-in of this name"
    }
    assert type(found.channels["log"]).__module__ == "rota.channels.log.channel"


def test_a_task_that_names_what_could_not_be_loaded_is_told_why(strangers, settings):
    strangers(executors={"new": "strangers:NO_TERMINAL"}, agents={"new": "strangers:DEFAULT"})
    found = LocalPlugins(settings())
    with pytest.raises(Invalid) as refused:
        site_of({"executor": "new"}, SpaceRole.MAIN, found.executors)
    assert str(refused.value) == (
        'executor "new": it could not be loaded (its capabilities include a terminal, and it has '
        "none); choose container, process, sandbox or tmux"
    )
    with pytest.raises(Invalid, match="another agent is the default.*claude, codex, command or pi"):
        found.agents.get("new")
    with pytest.raises(Invalid, match='^agent "moon": choose claude, codex, command or pi$'):
        found.agents.get("moon")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('agent = "moon"\n', 'agent "moon": choose claude, codex, command or pi'),
        ("[executors.moon]\n", 'executors "moon": choose container, process, sandbox or tmux'),
        ("[channels.log]\nx = 1\n", 'channels.log.x "1": it has no settings: leave it out'),
        (
            '[executors.container]\nengin = "x"\n',
            'executors.container.engin "x": no such setting: did you mean engine?',
        ),
        (
            '[executors.container]\nengine = "lxc"\n',
            'executors.container.engine "lxc": write podman, docker or the full path',
        ),
        ('[agents.claude.tiers]\nhuge = "x"\n', "agents.claude.tiers"),
        ('[agents.command.tiers]\nlow = "x"\n', "agents.command.tiers"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(settings, text, told):
    wrong = settings(text)
    (fault,) = read_plugin_settings(wrong, find_plugins()).faults
    assert fault.startswith(told)
    with pytest.raises(Refused, match="^" + told.partition(" ")[0]):
        _ = LocalPlugins(wrong).settings


def test_variables_that_belong_to_no_plug_in_are_refused(settings, monkeypatch):
    monkeypatch.setenv("ROTA_EXECUTORS_CONTAINER_ENGIN", "podman")
    (fault,) = read_plugin_settings(settings(), find_plugins()).faults
    assert fault == (
        'variable "ROTA_EXECUTORS_CONTAINER_ENGIN": no such setting: '
        "did you mean ROTA_EXECUTORS_CONTAINER_ENGINE?"
    )


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "rota.toml").write_text('executors = "all"\n[agents]\nclaude = 5\n')
    with pytest.raises(Refused, match=r"write a table: \[executors.NAME\].*\[agents.NAME\]"):
        load_settings(str(tmp_path))

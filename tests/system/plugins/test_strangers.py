"""Plug-ins of somebody else, from a folder, with a real daemon."""

from __future__ import annotations

import json
import signal

import pytest

from tests.tools.distributions import write_distribution

EXECUTOR = """
from dataclasses import dataclass, field, replace

from rota.executors.process.executor import ProcessExecutor
from rota.keeper.build import Interpreter
from rota.model.executors import ExecutorCapabilities
from rota.ports.executor import ExecutorPlugin

@dataclass(frozen=True)
class HutSettings:
    greeting: str = field(default="hello", metadata={"about": "what programs find in HUT"})

class HutExecutor(ProcessExecutor):
    name = "hut"

    def __init__(self, settings):
        super().__init__(Interpreter.running(), hierarchy=None, certain_kill=False)
        self._greeting = settings.greeting

    def wrap(self, command, room):
        told = replace(command, env={**command.env, "HUT": self._greeting})
        return super().wrap(told, room)

PLUGIN = ExecutorPlugin(
    make=lambda settings, host: HutExecutor(settings),
    capabilities=ExecutorCapabilities(),
    settings=HutSettings,
)
"""
CHANNEL = """
import json
import logging
from dataclasses import dataclass
from pathlib import Path

from rota.ports.channel import ChannelPlugin

log = logging.getLogger("rota.pigeon")

@dataclass(frozen=True)
class PigeonSettings:
    loft: Path = Path("loft.jsonl")

class Pigeon:
    name = "pigeon"

    def __init__(self, settings):
        self._loft = settings.loft

    async def send(self, delivery):
        with self._loft.open("a") as file:
            file.write(json.dumps([delivery.target, delivery.body]))
        log.info("pigeon.landed")

PLUGIN = ChannelPlugin(make=Pigeon, settings=PigeonSettings)
"""
POINTS = {
    "rota.executors": {"hut": "strange_hut:PLUGIN", "shed": "strange_hut:SHED"},
    "rota.channels": {"pigeon": "strange_pigeon:PLUGIN"},
}


@pytest.fixture
def path(tmp_path):
    """Return the environment of a path with a distribution that no installer has seen."""
    folder = tmp_path / "site"
    folder.mkdir()
    modules = {"strange_hut": EXECUTOR, "strange_pigeon": CHANNEL}
    write_distribution(folder, "strange-plugins", modules, POINTS)
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def strange(house, path, tmp_path):
    """A daemon with an executor and a channel that are not Rota's, and a second executor gone."""
    house.home.mkdir(mode=0o700)
    loft = tmp_path / "loft.jsonl"
    (house.home / "rota.toml").write_text(
        f'[executors.hut]\ngreeting = "good day"\n[channels.pigeon]\nloft = "{loft}"\n'
    )
    house.daemon = house.up(**path)
    house.loft = loft
    return house


def test_a_script_runs_in_a_strange_executor_and_its_result_leaves_by_a_strange_channel(strange):
    made = strange.json(
        "task", "create", "greet", "--executor", "hut", "--deliver-to", "pigeon:ann",
        "--shell", "--command", 'echo "in the hut: $HUT"',
    )  # fmt: skip
    assert made["site"] | {"executor": "hut", "isolated": False} == made["site"]
    done = strange.json("run", "greet", "--wait")
    assert (done["state"], done["result"]) == ("succeeded", "in the hut: good day")
    strange.daemon.log.wait("pigeon.landed")
    assert json.loads(strange.loft.read_text()) == ["ann", "in the hut: good day"]


def test_what_cannot_be_used_is_named_in_the_log_in_status_and_by_doctor(strange, path):
    why = "strange_hut:SHED cannot be loaded"
    assert "shed" in strange.daemon.log.wait("plugin.failed")
    (warning,) = strange.json("status")["warnings"]
    assert warning["code"] == "plugin_failed"
    assert warning["message"].startswith(f"the executor shed cannot be used: {why}")
    looked = json.loads(strange.rota("doctor", "--json", **path).stdout)
    assert [one["message"] for one in looked["findings"] if one["code"] == "plugins"] == [
        warning["message"].removesuffix(": see `rota doctor`")
    ]
    assert "hut" in [one["name"] for one in looked["executors"]]


def test_a_task_that_names_what_is_not_there_is_told_what_there_is(strange):
    words = ("task", "create", "x", "--command", "true", "--executor")
    refused = strange.rota(*words, "moon")
    assert refused.returncode == 2
    assert refused.stderr == (
        'rota: --executor "moon": choose container, hut, process, sandbox or tmux\n'
    )
    refused = strange.rota(*words, "shed")
    assert "it could not be loaded (strange_hut:SHED" in refused.stderr
    assert "choose container, hut, process, sandbox or tmux" in refused.stderr


def test_a_home_whose_plug_in_is_gone_starts_and_says_so_of_its_tasks(strange):
    words = ("--executor", "hut", "--deliver-to", "pigeon:ann", "--command", "true")
    strange.json("task", "create", "greet", *words)
    strange.daemon.signal(signal.SIGTERM)
    assert strange.daemon.wait() == 0
    gone = strange.rota("up")
    assert gone.returncode == 2
    assert 'executors "hut": choose container, process, sandbox or tmux' in gone.stderr
    assert 'channels "pigeon": choose log' in gone.stderr
    (strange.home / "rota.toml").unlink()
    strange.up()
    ended = strange.rota("run", "greet", "--wait", "--json")
    assert ended.returncode == 1
    assert 'executor "hut": choose container' in json.loads(ended.stdout)["error"]

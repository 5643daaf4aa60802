"""The real agents through a real daemon, in every executor that can be had here.

Behind walls there is no network: there the stub is reached by the one socket that is handed in.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.agents.cases import PERCENTS, PLANS, QUESTION, TOOLS, WISHES
from tests.agents.driving import KEY
from tests.agents.driving import Place as Folders
from tests.agents.programs import FOLDER, PROGRAMS
from tests.system.conftest import House
from tests.system.executors.engines import a_podman
from tests.system.isolation.conftest import Sited, program_of
from tests.tools.providers import TOKENS_IN, Provider, Refusal, Slow, Tool
from tests.tools.providers import Text as Says

pytestmark = pytest.mark.agents

ENDED = {"succeeded", "failed", "cancelled", "expired"}
MEMBER = "ann"
PLACES = {
    "process": (("main", ()), ()),
    "sandbox": ((MEMBER, ()), ("bwrap",)),
    "tmux": (("main", ("--executor", "tmux")), ("tmux",)),
    "container": (("main", ("--executor", "container")), ("podman",)),
}
"""Each executor: the space of its tasks, their options, and the tools it needs."""


class Lodging(Sited):
    """A daemon with the real agents at hand, and a stub for their providers."""

    def __init__(self, house, space, options):
        super().__init__(house, None)
        self.space, self.options = space, options
        self.own = house.home / "spaces" / space / "home"
        self.own.mkdir(parents=True)

    def move_in(self, agent, provider, socket):
        """Put an agent into the space and tell it of the stub."""
        program = PROGRAMS[agent]
        inside = self.own / "agents" / program.folder.name
        shutil.copytree(program.folder, inside, symlinks=True, copy_function=linked)
        (self.own / "bin").mkdir()
        (self.own / "bin" / agent).symlink_to(inside / program.path)
        Folders(self.own).settle(agent, self.own, provider.url)
        self.agent = agent
        self.extra |= {
            "PATH": f"{self.own}/bin:{os.environ['PATH']}",
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_API_KEY": KEY,
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "ROTA_OUTLET": str(socket),
            "ROTA_OUTLET_PORT": str(provider.port),
            "ROTA_AGENT_WAIT": "2s",
        }

    def make(self, name, *words, tools=True):
        wish = WISHES[self.agent]
        told = {
            "model": wish.model,
            "thinking": wish.thinking,
            "permission-mode": wish.permission_mode,
        }
        said = [word for option, value in told.items() if value for word in (f"--{option}", value)]
        named = wish.tools if tools else None
        said += [word for tool in named or () for word in ("--tool", tool)]
        return self.json(
            "task", "create", name, "--instructions", wish.instructions, "--agent", self.agent,
            "--space", self.space, *self.options, *said, *words,
        )  # fmt: skip

    def start(self, name):
        return self.json("run", name, "--space", self.space)["run"]

    def finish(self, name):
        """Run a task to its end."""
        return self.until(self.start(name), lambda run: run["state"] in ENDED, 120.0)


def linked(source, target):
    """Link a file, or copy it where the two are on different disks."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory):
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture(scope="session")
def engine():
    """A podman of the tests' own, and an image with what the agents' programs need."""
    programs = [shutil.which(name) for name in ("node", "env", "bash")]
    if None in programs:
        pytest.skip("the agents were not run in container: node, env or bash is not installed here")
    programs += map(str, Path("/usr/lib").glob("*-linux-gnu/librt.so.1"))  # Claude Code's
    with a_podman("overlay", *programs) as podman:
        yield podman


@pytest.fixture(params=TOOLS)
def agent(request):
    if not PROGRAMS[request.param].here:
        pytest.skip(f"{request.param} could not be downloaded; see the list above")
    return request.param


@pytest.fixture
def folder():
    """A path that is short enough for the sockets in it, and can be linked to."""
    FOLDER.mkdir(exist_ok=True)
    near = "/tmp" if Path("/tmp").stat().st_dev == FOLDER.stat().st_dev else FOLDER
    with tempfile.TemporaryDirectory(prefix="rota-", dir=near, ignore_cleanup_errors=True) as made:
        yield Path(made)


@pytest.fixture
def provider(folder):
    with Provider(Says("hello"), at=folder / "out") as made:
        yield made


@pytest.fixture
def lodging(request, agent, folder, bytecode, provider):
    name = getattr(request, "param", "process")
    (space, options), tools = PLACES[name]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the agents were not run in {name}: {missing[0]} is not installed here")
    settings = {}
    if name == "container":
        podman = request.getfixturevalue("engine")
        settings = {"ROTA_EXECUTORS_CONTAINER_ENGINE": program_of(podman)}
    house = House(folder, bytecode)
    made = Lodging(house, space, options)
    if name == "container":
        made.options += ("--image", podman.changed(f"ENV PATH={made.own}/bin:/usr/bin:/bin"))
    made.extra |= settings
    made.move_in(agent, provider, folder / "out")
    if space != "main":
        made.json("space", "create", space)
    try:
        made.up()
        yield made
    finally:
        made.end()


def everywhere(test):
    return pytest.mark.parametrize("lodging", PLACES, indirect=True)(test)


@everywhere
def test_an_agent_works_wherever_its_task_says(lodging, provider):
    provider.script.words = (TOOLS[lodging.agent], Says("it is 42"))
    lodging.make("think")
    run = lodging.finish("think")
    assert (run["state"], run["result"]) == ("succeeded", "it is 42"), (
        run["error"],
        run["logs"],
    )
    names = [event["name"] for event in run["events"]]
    assert {"run.tool", "run.usage", "run.session"} <= set(names)
    assert any("it is 42" in part["text"] for part in run["logs"])
    assert "42" in str(provider.script.asked[-1])
    assert not any(KEY in word for word in command_lines())


@everywhere
def test_an_agent_tells_how_far_it_is(lodging, provider):
    provider.script.words = (*PLANS[lodging.agent], Says("done"))
    lodging.make("think", tools=False)
    run = lodging.finish("think")
    assert run["result"] == "done", (run["error"], run["logs"])
    told = [event["data"] for event in run["events"] if event["name"] == "run.progress"]
    percents = tuple(data["percent"] for data in told if data.get("percent") is not None)
    assert percents == PERCENTS[lodging.agent], run["events"]


@everywhere
def test_a_session_goes_on_in_the_next_run(lodging, provider):
    provider.script.words = (Says("the word is heron"),)
    lodging.make("think", "--context", "group")
    first = lodging.finish("think")
    provider.script.asked.clear()
    second = lodging.finish("think")
    assert (first["state"], second["state"]) == ("succeeded", "succeeded"), second
    assert "the word is heron" in str(provider.script.asked[0])
    used = [e["data"]["input"] for e in second["events"] if e["name"] == "run.usage"]
    assert sum(used) == TOKENS_IN


@everywhere
def test_a_cancelled_agent_is_gone(lodging, provider):
    provider.script.words = (Slow("never"),)
    lodging.make("think")
    number = lodging.start("think")
    assert provider.script.heard.wait(60.0)
    assert running(lodging)
    lodging.json("cancel", str(number))
    run = lodging.until(number, lambda run: run["state"] in ENDED, 60.0)
    assert run["state"] == "cancelled"
    assert running(lodging) == []


def test_what_a_provider_refuses_for_a_moment_is_no_failure(lodging, provider):
    provider.script.words = (Refusal(529, "overloaded_error", "Overloaded"),)
    lodging.make("think")
    number = lodging.start("think")
    lodging.until(number, lambda run: retries(run) == [1], 120.0)
    provider.script.words = (Says("at last"),)
    run = lodging.until(number, lambda run: run["state"] in ENDED, 120.0)
    assert (run["state"], run["result"]) == ("succeeded", "at last"), run
    assert (retries(run), len(run["attempts"])) == ([1], 1)


def test_a_question_waits_for_a_person_and_the_answer_reaches_the_agent(lodging, provider):
    provider.script.words = (Says(QUESTION), Says("red it is"))
    lodging.make("think")
    number = lodging.start("think")
    run = lodging.until(number, lambda run: run["state"] in {*ENDED, "waiting"}, 60.0)
    assert run["state"] == "waiting", run
    lodging.json("answer", str(number), "red")
    run = lodging.until(number, lambda run: run["state"] in ENDED, 60.0)
    assert (run["state"], run["result"]) == ("succeeded", "red it is"), run
    assert ">red</answer>" in str(provider.script.asked[-1])


def test_an_agent_outlives_its_daemon(lodging, provider):
    provider.script.words = (Slow("still here"),)
    lodging.make("think")
    number = lodging.start("think")
    assert provider.script.heard.wait(60.0)
    before = running(lodging)
    lodging.kill()
    assert running(lodging) == before
    provider.script.released.set()
    lodging.up()
    run = lodging.until(number, lambda run: run["state"] in ENDED, 60.0)
    assert (run["state"], run["result"]) == ("succeeded", "still here"), run
    assert len(run["attempts"]) == 1


def retries(run):
    told = [event["data"] for event in run["events"] if event["name"] == "run.fault"]
    return [data["retry"] for data in told if "retry" in data]


def command_lines():
    lines = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                lines += (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
    return lines


def running(lodging):
    """Return the processes of the lodging's attempts, by the home they were given."""
    mark, found = f"HOME={lodging.own}".encode(), []
    for _ in range(2):  # what is ending at this moment is gone at the second look
        found = []
        for folder in Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        time.sleep(0.05)
    return sorted(found)


@pytest.mark.parametrize("agent", ["claude", "codex"], indirect=True)
@pytest.mark.parametrize("lodging", ["process", "sandbox"], indirect=True)
def test_an_agent_schedules_a_task_at_the_desk(lodging, provider):
    fields = {"instructions": "Look again.", "name": "later", "schedule": {"every": "2h"}}
    call = {
        "claude": Tool("mcp__rota__schedule_task", fields),
        "codex": Tool("schedule_task", fields, namespace="mcp__rota"),
    }[lodging.agent]
    provider.script.words = (call, Says("it is arranged"))
    lodging.make("think", *(("--tool", "mcp__rota") if lodging.agent == "claude" else ()))
    run = lodging.finish("think")
    assert (run["state"], run["result"]) == ("succeeded", "it is arranged"), run
    made = lodging.json("task", "show", "later", "--space", lodging.space)
    assert (made["origin"], made["space"]) == ("attempt:1", lodging.space), provider.script.asked[
        -1
    ]
    assert not any("rota_run_" in word for word in command_lines())

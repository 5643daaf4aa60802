"""What tasks name and is not there: told where it would be looked for, and never guessed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rota.app.settings import load_settings
from rota.app.sites import LocalSiteChecker, missing_programs
from rota.commands.context import AppContext, RequestContext
from rota.commands.responses import TaskSelector
from rota.commands.tasks import show_task
from rota.flow.define.tasks import put_task
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.rules.permissions import LOCAL
from rota.testing.fakes import FixedChance

SHELL = {"shell": True}
INSTALL = "is not on the PATH: install it, or add it to the PATH of the daemon"


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A home with a few files in the working folder, and an empty PATH."""
    bin_, work = tmp_path / "bin", tmp_path / "home" / "spaces" / "main" / "work"
    for folder in (bin_, work / "reports"):
        folder.mkdir(parents=True)
    for path, mode in ((bin_ / "there", 0o755), (work / "own.sh", 0o755), (work / "plain", 0o644)):
        path.write_text("#!/bin/sh\n")
        path.chmod(mode)
    (work / "own.py").write_text("")
    monkeypatch.setenv("PATH", str(bin_))
    return load_settings(str(tmp_path / "home"))


def script(*words, **spec):
    return {"kind": TaskKind.SCRIPT, "spec": {"command": list(words), **spec}}


def agent(name, **spec):
    return {"kind": TaskKind.AGENT, "spec": {"agent": name, "instructions": "Look.", **spec}}


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (script("there"), []),
        (script("own.sh"), []),
        (script("./own.py", "--now"), []),
        (script("module:function"), []),
        (script("gone | cat", **SHELL), []),
        (script("gone", executor="sandbox"), []),
        (script("gone", executor="container", image="python@sha256:" + "0" * 64), []),
        (agent("command", command=["there"]), []),
        (script("gone.py"), ["the program gone.py is not there: put it at /"]),
        (script("gone"), [f"the program gone {INSTALL}"]),
        (agent("claude"), [f"the program claude {INSTALL}"]),
        (agent("command", command=["gone"]), [f"the program gone {INSTALL}"]),
        (script("there", gate={"command": ["gone"]}), [f"the program gone {INSTALL}"]),
        (script("there", checks=[{"command": ["gone"]}]), [f"the program gone {INSTALL}"]),
        (script("./nosuch/prog.sh"), ["the program ./nosuch/prog.sh is not there: put it at /"]),
        (script("./reports"), ["the program ./reports is a folder: name the program in "]),
        (script("plain"), ["the program plain is not executable: chmod +x "]),
        (script("there", folder="nosuch"), ["the folder nosuch is not there: create it in "]),
        (script("gone", folder="nosuch"), ["the folder nosuch is ", "the program gone is not on "]),
        (script("../x", folder="reports"), ["the program ../x is not there"]),
    ],
)
async def test_what_a_task_names_is_looked_for(desk, settings, work, told):
    task = replace(await desk.task(), **work)
    found = [str(lack) for lack in missing_programs(task, SpaceRole.MAIN, settings)]
    assert len(found) == len(told)
    assert all(one.startswith(words) for one, words in zip(found, told, strict=True)), found


async def test_what_runs_behind_walls_is_not_looked_for(desk, settings):
    task = replace(await desk.task(), **script("gone"))
    assert missing_programs(task, SpaceRole.MEMBER, settings) == []


@pytest.mark.parametrize(("local", "told"), [(True, []), (False, [f"the program gone {INSTALL}"])])
async def test_a_daemon_tells_what_its_machine_lacks_and_a_terminal_does_not_guess(
    desk, settings, local, told
):
    await desk.space()
    task = await put_task(desk.store, LOCAL, "job", route="script", **script("gone"))
    app = AppContext(store=desk.store, chance=FixedChance(), sites=LocalSiteChecker(settings))
    office = RequestContext(app=app, caller=LOCAL, local=local)
    assert (await show_task(office, TaskSelector(task=task.name))).lacks == told

"""The one way out from behind walls: agents are handed it, scripts are not."""

from __future__ import annotations

import os
import signal

import pytest

from tests.system.gateway.conftest import ASKING, REAL
from tests.system.gateway.test_process import Home
from tests.system.gateway.upstream import Upstream
from tests.tools.providers import Provider

CALL = """
import sys, urllib.request
try:
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/v1/models", timeout=5) as answer:
        print("reached", answer.status)
except OSError:
    print("reached nothing")
"""


@pytest.fixture
def outlet(sited, walls):
    path = sited.house.home / "out"
    with Provider(at=path) as provider:
        sited.settle(walls)
        sited.extra |= {"ROTA_OUTLET": str(path), "ROTA_OUTLET_PORT": str(provider.port)}
        (sited.work / "call.py").write_text(CALL)
        yield provider


@pytest.mark.parametrize(("agent", "told"), [(True, "reached 200"), (False, "reached nothing")])
def test_only_agents_are_handed_the_way_out(sited, outlet, agent, told):
    more = {"agent": "command", "instructions": "Call."} if agent else {}
    sited.make("call", "python3", "call.py", str(outlet.port), **more)
    sited.up()
    run = sited.ended(sited.start("call"))
    assert (run["state"], run["result"].strip()) == ("succeeded", told), run


@pytest.fixture
def gated(sited, walls):
    with Upstream() as upstream:
        sited.settle(walls)
        sited.extra |= {"ANTHROPIC_API_KEY": REAL, "ANTHROPIC_BASE_URL": upstream.url}
        (sited.work / "asking.py").write_text(ASKING)
        yield upstream
        sited.end()
        assert Home(sited.house.home, upstream).until_gone()


def test_an_answer_reaches_an_agent_behind_walls_while_the_daemon_dies(sited, gated):
    sited.make("ask", "python3", "asking.py", agent="command", instructions="Ask.")
    sited.up()
    run = sited.start("ask")
    assert gated.script.begun.wait(60)
    sited.kill()
    sited.up()
    gated.script.go.set()
    ended = sited.ended(run)
    assert (ended["state"], "heard data: last" in ended["result"]) == ("succeeded", True), ended
    assert [noted.headers["x-api-key"] for noted in gated.script.noted] == [[REAL]]


def test_a_gateway_that_was_killed_is_found_again_behind_walls(sited, gated):
    gated.script.go.set()
    (sited.work / "twice.py").write_text(
        "import pathlib, time\ncode = open('asking.py').read()\nexec(code)\n"
        "pathlib.Path('once').touch()\n"
        "while not pathlib.Path('go').exists():\n    time.sleep(0.05)\n"
        "for _ in range(200):\n    try:\n        exec(code)\n        break\n"
        "    except OSError:\n        time.sleep(0.1)\n"
    )
    sited.make("ask", "python3", "twice.py", agent="command", instructions="Ask.")
    sited.up()
    run = sited.start("ask")
    sited.until(run, lambda shown: (sited.work / "once").exists(), 60.0)
    os.kill(Home(sited.house.home, gated).pid(), signal.SIGKILL)
    sited.go()
    assert sited.ended(run)["state"] == "succeeded"
    assert len(gated.script.noted) == 2

"""The one way out from behind walls: agents are handed it, scripts are not."""

from __future__ import annotations

import pytest

from rota.testing.providers import Provider

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

"""Programs behind walls reach the desk by its socket, and through a restart of the daemon."""

from __future__ import annotations

import contextlib
import json
import subprocess
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from tests.system.attempt.test_agent_api import CALL
from tests.system.gateway.conftest import REAL
from tests.system.gateway.test_process import Home

ASK = """
import json, os, urllib.request

def ask(method, **params):
    message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    headers = {"Authorization": "Bearer " + os.environ["ROTA_MCP_TOKEN"],
               "Content-Type": "application/json"}
    asked = urllib.request.Request(os.environ["ROTA_MCP_URL"], json.dumps(message).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)["result"]

tools = [tool["name"] for tool in ask("tools/list")["tools"]]
wish = {"command": ["true"], "schedule": {"every": "2h"}}
made = ask("tools/call", name="schedule_task", arguments=wish)["structuredContent"]
print("schedule_task" in tools, made.get("error", True), os.environ["ROTA_MCP_TOKEN"])
"""
AGENT = {"agent": "command", "instructions": "Call."}
"""What makes a command an agent; without it is a script."""


def test_an_agent_behind_walls_talks_to_this_daemon_and_to_the_next(sited, walls):
    sited.settle(walls)
    (sited.work / "call.py").write_text(CALL)
    sited.make("call", "python3", "call.py", **AGENT)
    sited.up()
    number = sited.start("call")
    sited.said(number, "first True")
    sited.kill()
    sited.up()
    (sited.work / "go").touch()
    run = sited.ended(number)
    assert (run["state"], run["result"].strip().splitlines()[-1]) == ("succeeded", "second True"), (
        run
    )
    kept = json.loads(sited.call("GET", "/v1/state/call")[1])["values"]
    assert {one["key"] for one in kept} == {"a", "b"}


@pytest.mark.parametrize("more", [{}, AGENT, {"network": "outlet"}], ids=["script", "agent", "out"])
def test_a_program_behind_walls_asks_until_its_attempt_is_over(sited, walls, more):
    sited.settle(walls)
    if more.get("network"):
        sited.extra |= {"ANTHROPIC_API_KEY": REAL, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    (sited.work / "ask.py").write_text(ASK)
    sited.make("ask", "python3", "ask.py", **more)
    sited.up()
    run = sited.ended(sited.start("ask"))
    assert run["state"] == "succeeded", run
    *told, token = run["result"].split()
    assert told == ["True", "True"], run
    assert len(sited.json("ls")["tasks"]) == 2
    assert answered(sited, token) == 401, "its pass is dead with it"
    if "ROTA_EXECUTORS_CONTAINER_ENGINE" in walls.settings:
        left = [walls.settings["ROTA_EXECUTORS_CONTAINER_ENGINE"], "ps", "--all", "--quiet"]
        assert subprocess.run(left, capture_output=True, check=True).stdout == b""
    sited.end()
    assert Home(sited.house.home, None).until_gone(), "the gateway sees that it has ended"


def answered(sited, token):
    """Return what the desk answers somebody who shows a pass."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    place = urlsplit(sited.url())
    with contextlib.closing(HTTPConnection(place.netloc, timeout=10)) as line:
        line.request("POST", "/mcp", json.dumps(message), headers)
        return line.getresponse().status

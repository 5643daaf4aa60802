"""Agents behind walls reach the desk by its socket, and through a restart of the daemon."""

from __future__ import annotations

import json

import pytest
from tests.system.kept.test_desk import CALL


@pytest.mark.parametrize("walls", ["sandbox", "walled"], indirect=True)
def test_an_agent_behind_walls_talks_to_this_daemon_and_to_the_next(sited, walls):
    sited.settle(walls)
    (sited.work / "call.py").write_text(CALL)
    sited.make("call", "python3", "call.py", agent="command", instructions="Call.")
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

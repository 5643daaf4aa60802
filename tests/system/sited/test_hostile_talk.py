"""A hostile agent at its doors, through the daemon, in every executor that claims walls."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.system.gateway.conftest import REAL
from tests.system.sited.test_outlet import gated  # noqa: F401 - a fixture

TALK = Path(__file__).parents[1] / "executors" / "hostile_talk.py"
ASKING = """
import json, os
box = os.environ["ROTA_MAILBOX"]
asked = {"request_id": "q", "type": "ask_user", "question": "Deploy?", "action": {"argv": ["go"]}}
with open(box + "/out/q.tmp", "w") as file:
    json.dump(asked, file)
os.rename(box + "/out/q.tmp", box + "/out/q.json")
"""


def test_a_hostile_agent_wins_no_approval_no_key_no_host_and_no_more_tasks(sited, gated):  # noqa: F811
    gated.script.go.set()
    (sited.work / "ask.py").write_text(ASKING)
    shutil.copy(TALK, sited.work)
    sited.make("asks", "python3", "ask.py")
    sited.up()
    asks = sited.start("asks")
    waits = sited.until(asks, lambda run: run["state"] == "waiting")
    digest = waits["questions"][0]["action_hash"]
    sited.make(
        "bad", "python3", "hostile_talk.py", str(asks), digest, agent="command", instructions="Go."
    )
    run = sited.ended(sited.start("bad"), 120.0)
    assert run["state"] == "succeeded", (run["error"], run["logs"])
    seen = json.loads(run["result"].strip().splitlines()[-1])
    assert seen["approved"] == [False] * 4, "E1: by files and by tools"
    assert set(seen["api"]) <= {401, 403, 404}, "E1: nor by the API"
    shown = json.loads(sited.call("GET", f"/v1/runs/{asks}")[1])
    assert (shown["state"], shown["questions"][0]["answer"]) == ("waiting", None)
    assert seen["second"] == ["schedule", "schedule"], "E10: not each second"
    assert (seen["made"], seen["why"]) == (100, "conflict"), "E10: and no more than so many"
    assert seen["walls"] == "not_permitted", "nor outside the walls"
    assert set(seen["hosts"]) <= {400, 403, 404}, "C2, C3: no other host"
    assert set(seen["tricks"]) <= {400, 403, 404}, "C3"
    assert seen["tokens"] == [401, 401, 401], "C6"
    assert seen["asked"] == 200, seen
    (noted,) = gated.script.noted
    assert noted.headers["x-api-key"] == [REAL], "C5: the account is ours"
    assert "attacker" not in str(noted), "C5"

"""A hostile agent at its doors, through the daemon, in every executor that claims walls."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.system.gateway.conftest import REAL
from tests.system.isolation.test_egress import gated  # noqa: F401 - a fixture

PROGRAMS = Path(__file__).parents[2] / "tools" / "hostile"
TALK = PROGRAMS / "hostile_talk.py"
BOUNDS = "requests = 20\nmebibytes = 1\n"
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


def test_what_a_hostile_agent_leaves_and_floods_harms_nobody_else(sited, gated):  # noqa: F811
    gated.script.go.set()
    plan = sited.house.home / "gateway.toml"
    plan.write_text(BOUNDS)
    plan.chmod(0o600)
    shutil.copy(PROGRAMS / "hostile_left.py", sited.work)
    agent = {"agent": "command", "instructions": "Go."}
    sited.make("bad", "python3", "hostile_left.py", "upload", **agent)
    sited.make("worse", "python3", "hostile_left.py", "flood", **agent)
    sited.make("good", "python3", "asking.py", **agent)
    sited.up()
    run = sited.ended(sited.start("bad"), 120.0)
    assert run["state"] == "succeeded", (run["error"], run["logs"])
    seen = json.loads(run["result"].strip().splitlines()[-1])
    told = sited.json("artifacts", str(run["id"]))
    names = {one["name"] for one in told["artifacts"]}
    outside = {"link", "etc", "loop", "well", "second", "pipe", "zero", "new\nline"}
    hard = seen["odd"].pop("hard")
    assert not names & (outside if hard else outside - {"well"}), "A12: plain files alone"
    assert not [name for name in names if name.startswith(("etc/", "loop/", "deep/"))], "A12"
    assert {name for name in names if name.isascii() and name.isprintable()} == names, "A12"
    assert (len(names) <= 1_000, told["more"]) == (True, True), "A12: and no more than so many"
    for name in ("link", "etc/passwd", "loop/setuid", "pipe", "zero", "../../../admin.key"):
        missing = sited.rota("artifacts", str(run["id"]), name, "-o", "-")
        assert (missing.returncode, missing.stdout) == (3, ""), (name, "A12")
    assert seen["beside"] == 200, "C7: the slow hold nobody up"
    assert (seen["huge"], seen["endless"]) == (413, 403), "C7: a huge upload is cut"
    assert sum(noted.body for noted in gated.script.noted) <= 1 << 20, "C7"
    before = len(gated.script.noted)
    run = sited.ended(sited.start("worse"), 120.0)
    assert run["state"] == "succeeded", (run["error"], run["logs"])
    seen = json.loads(run["result"].strip().splitlines()[-1])
    assert (seen["flood"].count(200), seen["flood"].count(403)) == (19, 41), "C7: a flood is cut"
    assert len(gated.script.noted) - before == 20, "C7"
    assert sited.ended(sited.start("good"))["state"] == "succeeded", "C7: others go on"


def test_an_approval_counts_once_and_for_nothing_but_what_was_shown(sited, walls):
    sited.settle(walls)
    shutil.copy(PROGRAMS / "hostile_approval.py", sited.work)
    agent = {"agent": "command", "instructions": "Go."}
    sited.make("sly", "python3", "hostile_approval.py", **agent)
    sited.up()
    run = sited.start("sly")
    waits = sited.until(run, lambda one: one["state"] == "waiting")
    seen = json.loads(next(log["text"] for log in waits["logs"] if "first" in log["text"]))
    assert (seen["first"], seen["others"]) == (True, [False] * 3), "E2: nothing else is asked"
    (question,) = waits["questions"]
    assert '"deploy", "test"' in question["action"] and "prod" not in question["action"], "E2"
    digest = question["action_hash"]

    def decide(answer, action_hash):
        said = {"answer": answer, "action_hash": action_hash, "question": question["id"]}
        return sited.call("POST", f"/v1/runs/{run}/answer", said)[0]

    changed = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    assert decide("approve", changed) == 409, "E2: of other bytes"
    with ThreadPoolExecutor(8) as people:
        wanted = ["approve", "deny"] * 4
        told = list(people.map(lambda answer: decide(answer, digest), wanted))
    assert sorted(told) == [200, *[409] * 7], "E3: exactly one outcome"
    ended = sited.ended(run)
    assert ended["state"] == "succeeded", ended
    (answer,) = [question["answer"] for question in ended["questions"]]
    assert answer == wanted[told.index(200)], "E3"
    assert [decide("approve", digest), decide("deny", digest)] == [409, 409], "E3: nor later"
    waits = sited.until(sited.start("sly"), lambda one: one["state"] == "waiting")
    run, question = waits["id"], waits["questions"][0]
    assert question["action_hash"] != digest, "E3: another run is another action"
    assert decide("approve", digest) == 409, "E3"
    assert sited.call("POST", f"/v1/runs/{run}/cancel", {})[0] == 200
    assert decide("approve", question["action_hash"]) == 409, "E3: after it was cancelled"

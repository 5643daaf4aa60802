"""A program's commands wait for the daemon, however often it dies, and are carried out once."""

from __future__ import annotations

import json

TALKING = """
import json, os, sys, time
from pathlib import Path
box = Path(os.environ["ROTA_MAILBOX"])
def ask(name, verb, /, **fields):
    aside = box / "out" / (name + ".tmp")
    aside.write_text(json.dumps({"request_id": name, "type": verb, **fields}))
    aside.rename(box / "out" / (name + ".json"))
def reply(name):
    while not (box / "in" / "replies" / (name + ".json")).exists():
        time.sleep(0.01)
    return json.loads((box / "in" / "replies" / (name + ".json")).read_text())
ask("first", "list_tasks")
print("found", len(reply("first")["tasks"]), flush=True)
while not Path("ask").exists():
    time.sleep(0.01)
ask("second", "schedule_task", name="made", command=["true"])
print("asked", flush=True)
told = reply("second")
print("told", told["ok"], flush=True)
ask("last", "schedule_task", name="left", command=["true"])
print(json.dumps(told), flush=True)
"""


def test_commands_are_answered_by_the_next_daemon_and_what_is_left_at_the_end_is_done(kept):
    (kept.work / "talk.py").write_text(TALKING)
    kept.create("talk", "python3", "talk.py", kept.token)
    kept.up()
    number = kept.json("run", "talk")["run"]
    kept.until(number, lambda run: any("found 1" in part["text"] for part in run["logs"]))
    kept.kill()
    (kept.work / "ask").touch()
    kept.up()
    run = kept.until(number, lambda run: run["finished_at"] is not None)
    assert (run["state"], len(run["attempts"])) == ("succeeded", 1), json.dumps(run)
    names = [task["name"] for task in kept.json("task", "list")["tasks"]]
    assert sorted(names) == ["left", "made", "talk"]
    requests = kept.json("requests")["requests"]
    made = [each for each in requests if each["caller"] == f"attempt:{number}.1"]
    assert [each["command"] for each in made] == ["create_task", "create_task"]
    told = json.loads(run["result"]) if isinstance(run["result"], str) else run["result"]
    assert told["name"] == "made"

"""Files that people send, in every executor: read by the program, and by it only read."""

from __future__ import annotations

import hashlib
import json

CONTENT = bytes(range(256)) * 4_000
AGENT = """
import hashlib, html, json, os, pathlib, re, sys

def tried(work):
    try:
        work()
    except OSError as fault:
        return type(fault).__name__
    return "done"

prompt = sys.stdin.read()
path = pathlib.Path(html.unescape(re.search(' media_path="([^"]*)"', prompt)[1]))
seen = hashlib.sha256(path.read_bytes()).hexdigest()
found = {"seen": seen, "under": str(path).startswith(os.environ["ROTA_MAILBOX"] + "/in/files/"),
         "others": sorted(each.name for each in path.parent.parent.iterdir()),
         "write": tried(lambda: path.write_bytes(b"x")), "unlink": tried(path.unlink),
         "add": tried(lambda: (path.parent / "more").write_bytes(b"x"))}
print(json.dumps({"rota": "result", "text": json.dumps(found)}), flush=True)
"""


def test_a_program_reads_what_people_sent_and_behind_walls_changes_nothing(sited, place, tmp_path):
    sited.settle(place)
    (sited.work / "agent.py").write_text(AGENT)
    photo = tmp_path / "my photo.png"
    photo.write_bytes(CONTENT)
    words = ("--instructions", "Look.", "--agent", "command", "--output", "lines", "--answers",
             "--thread", "cli:default", "--command", "python3 agent.py")  # fmt: skip
    sited.json("task", "create", "look", *words, *place.options)
    sited.up()
    said = sited.json("say", "cli:default", "Is this right?", "--file", str(photo))
    run = sited.ended(said["reader"])
    assert run["state"] == "succeeded", json.dumps(run)
    found = json.loads(run["result"])
    assert found["seen"] == hashlib.sha256(CONTENT).hexdigest()
    assert found["under"]
    assert found["others"] == [str(said["id"])]
    if place.name in {"sandbox", "container", "docker", "walled"}:
        assert "done" not in {found["write"], found["unlink"], found["add"]}, found

"""What runs leave behind, from a script's folder to a person's; also behind walls."""

from __future__ import annotations

import json
import shutil

import pytest

from rota.executors.sandbox.executor import SandboxExecutor
from rota.executors.shared.mounts import MountAllowlist
from rota.executors.shared.resource_limits import find_hierarchy
from rota.keeper.build import Interpreter

LEAVE = """
import os, sys
from pathlib import Path
left = Path(os.environ["ROTA_ARTIFACTS"])
(left / "charts").mkdir(exist_ok=True)
(left / "charts" / f"chart {os.environ['ROTA_ATTEMPT']}.svg").write_text("<svg/>")
(left / "link").unlink(missing_ok=True)
(left / "link").symlink_to("/etc/passwd")
(left / "data.bin").write_bytes(bytes(range(256)))
sys.exit(os.environ["ROTA_ATTEMPT"] == "1" and "again")
"""


def test_artifacts_outlive_attempts_and_are_fetched(kept):
    (kept.work / "leave.py").write_text(LEAVE)
    kept.create("leave", "leave.py", retry="2", **{"retry-base": "100ms"})
    kept.up()
    run = kept.done("leave")
    assert (run["state"], len(run["attempts"])) == ("succeeded", 2), run
    number = str(run["id"])
    check_fetched(kept, number)
    kept.stop()
    (kept.house.folder / "data.bin").unlink()
    check_fetched(kept, number)  # and the same without a daemon


def check_fetched(kept, number):
    told = kept.json("artifacts", number)
    names = [one["name"] for one in told["artifacts"]]
    assert names == ["charts/chart 1.svg", "charts/chart 2.svg", "data.bin"]
    assert told["left_out"] == 1
    shown = kept.rota("artifacts", number)
    assert "charts/chart 2.svg" in shown.stdout
    assert "Not shown: 1" in shown.stderr
    assert kept.rota("artifacts", number, "charts/chart 1.svg", "-o", "-").stdout == "<svg/>"
    assert kept.json("artifacts", number, "data.bin")["size"] == 256
    fetched = kept.house.folder / "data.bin"
    assert fetched.read_bytes() == bytes(range(256))
    again = kept.rota("artifacts", number, "data.bin")
    assert (again.returncode, "exists: choose another" in again.stderr) == (5, True)
    for name in ("link", "nothing", "../../work/leave.py"):
        missing = kept.rota("artifacts", number, name, "-o", "-")
        assert (missing.returncode, missing.stdout) == (3, ""), missing
    assert kept.rota("artifacts", "999").returncode == 3
    assert kept.rota("artifacts", number, "-o", "x").returncode == 2


BEHIND_WALLS = """
import json, os
from pathlib import Path

def go(payload):
    left, given = Path(os.environ["ROTA_ARTIFACTS"]), Path(os.environ["ROTA_RESOURCES"])
    (left / "made").write_text(given.joinpath("hello").read_text())
    told = {"payload": payload, "config": json.loads(os.environ["ROTA_CONFIG"])}
    told["payload file"] = json.loads(Path(os.environ["ROTA_PAYLOAD_FILE"]).read_text())
    told["others"] = [str(path) for path in left.parent.iterdir() if path != left]
    for name, path in (("resources", given / "x"), ("files", Path(os.environ["ROTA_PAYLOAD_FILE"]))):
        try:
            path.write_text("changed")
            told[name] = "written"
        except OSError as fault:
            told[name] = fault.strerror
    return told
"""


def test_a_members_script_has_all_of_it_behind_walls(simple):
    kept = simple
    walls = SandboxExecutor(Interpreter.running(), MountAllowlist(), hierarchy=find_hierarchy())
    missing = [each for each in walls.check() if each.needed]
    if missing:
        pytest.skip(f"there is no sandbox here: {missing[0]}")
    ann = kept.house.home / "spaces" / "ann"
    for folder in ("work", "resources/go", "artifacts/999"):
        (ann / folder).mkdir(parents=True)
    (ann / "work" / "walled.py").write_text(BEHIND_WALLS)
    (ann / "resources" / "go" / "hello").write_text("hello")
    (ann / "resources" / "go" / "config.json").write_text('{"timeout": 60}')
    kept.up()
    kept.json("space", "create", "ann")
    kept.create("go", "walled:go", space="ann")
    run = kept.done("go", "--space", "ann", "--payload", "[1]")
    assert run["state"] == "succeeded", run
    assert run["result"] == {
        "payload": [1],
        "payload file": [1],
        "config": {"timeout": 60},
        "others": [],
        "resources": "Read-only file system",
        "files": "Read-only file system",
    }
    fetched = kept.rota("artifacts", str(run["id"]), "made", "-o", "-")
    assert fetched.stdout == "hello"


def test_a_flood_of_files_is_told_in_part(simple):
    kept = simple
    kept.up()
    line = 'cd "$ROTA_ARTIFACTS"; seq 1 3000 | xargs touch; mkfifo pipe; echo done'
    run = kept.once({"script": {"command": [line], "shell": True}})
    assert run["result"] == "done"
    told = kept.json("artifacts", str(run["id"]))
    assert (len(told["artifacts"]), told["more"]) == (1000, True)
    status, body = kept.call("GET", f"/v1/runs/{run['id']}/artifacts/pipe")
    assert (status, json.loads(body)["error"]["code"]) == (404, "not_found")
    shutil.rmtree(kept.house.home / "spaces" / "main" / "artifacts")
    assert kept.json("artifacts", str(run["id"]))["artifacts"] == []

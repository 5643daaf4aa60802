"""What a script is given and leaves is the same in every executor."""

from __future__ import annotations

import subprocess
import time

SECONDS = 40.0
LEAVING = """
import json, os
from pathlib import Path

def go(payload):
    left, given = Path(os.environ["ROTA_ARTIFACTS"]), Path(os.environ["ROTA_RESOURCES"])
    (left / "sub").mkdir()
    (left / "sub" / "made").write_text((given / "hello").read_text())
    (left / "link").symlink_to("/etc/passwd")
    held = json.loads(Path(os.environ["ROTA_PAYLOAD_FILE"]).read_text())
    return {"payload": payload, "held": held, "config": json.loads(os.environ["ROTA_CONFIG"])}
"""


def test_a_function_finds_its_files_and_leaves_some(sited, place):
    sited.settle(place)
    (sited.work / "leaving.py").write_text(LEAVING)
    resources = sited.house.home / "spaces" / "main" / "resources" / "leave"
    resources.mkdir(parents=True)
    (resources / "hello").write_text("hello")
    (resources / "config.json").write_text('{"city": "Bremen"}')
    (sited.work / "below").mkdir()
    (sited.work / "leaving.py").rename(sited.work / "below" / "leaving.py")
    sited.make("leave", "leaving:go", folder="below")
    sited.up()
    run = sited.ended(sited.json("run", "leave", "--payload", "[1]")["run"])
    assert run["state"] == "succeeded", run
    assert run["result"] == {"payload": [1], "held": [1], "config": {"city": "Bremen"}}
    told = sited.json("artifacts", str(run["id"]))
    assert [one["name"] for one in told["artifacts"]] == ["result-1", "sub/made"]
    assert told["left_out"] == 1
    assert sited.rota("artifacts", str(run["id"]), "sub/made", "-o", "-").stdout == "hello"


def test_a_folder_is_as_it_was_once_nobody_works_there_any_more(sited, walls):
    """Names that git would heed are held while programs run, and are free for people then."""
    sited.settle(walls)
    sited.make("touch", "sh", "-c", "touch made; test ! -w .git; mkdir .envrc/x || echo held")
    sited.up()
    for _ in range(2):  # the second one finds the folder as the first one has left it
        run = sited.ended(sited.start("touch"))
        assert (run["state"], run["result"]) == ("succeeded", "held"), run
    until = time.monotonic() + SECONDS
    while found := [path.name for path in sited.work.iterdir() if path.name.startswith(".")]:
        assert time.monotonic() < until, found
        time.sleep(0.1)
    subprocess.run(["git", "init", "-q"], cwd=sited.work, check=True)
    run = sited.ended(sited.start("touch"))
    assert run["state"] == "succeeded", run

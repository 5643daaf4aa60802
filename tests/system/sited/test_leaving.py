"""What a script is given and leaves is the same in every executor."""

from __future__ import annotations

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

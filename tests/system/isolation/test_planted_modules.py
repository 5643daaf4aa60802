"""A14, through the daemon: no process of Rota's runs what a walled program left for Python."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.system.executors.planted_modules import planting


def test_a_daemon_that_is_started_where_programs_write_imports_nothing_from_there(sited, walls):
    canaries = sited.house.folder / "canaries"
    canaries.mkdir()
    script, names = planting(canaries)
    (sited.work / "plant.sh").write_text(script)
    (sited.work / "own.py").write_text("def call(payload):\n    return 'called'\n")
    sited.settle(walls)
    sited.make("plant", "sh", "plant.sh")
    sited.make("call", "own:call", check="command=sh -c :")
    sited.up()
    assert sited.ended(sited.start("plant"))["state"] == "succeeded"
    assert names <= {path.name for path in sited.work.iterdir()}, "what was not left proves nothing"
    sited.stop()
    sited.house.folder = sited.work
    sited.house._command = lambda words: [str(Path(sys.executable).with_name("rota")), *words]
    sited.up()
    run = sited.ended(sited.start("call"))
    assert (run["state"], run["result"]) == ("succeeded", "called"), run
    sited.json("task", "create", "hello", "--call", "rota.samples:hello")
    assert sited.ended(sited.start("hello"))["state"] == "succeeded"
    status, body = sited.call("POST", "/v1/sql", {"sql": "SELECT count(*) AS runs FROM runs"})
    assert status == 200, body
    assert sited.rota("doctor", "--json").stdout
    assert sorted(path.name for path in canaries.iterdir()) == []

"""Rota is replaced while programs run: by a newer version, and by one of those programs."""

from __future__ import annotations

import shutil
import signal
import time
from pathlib import Path

import pytest

import rota
from tests.system.attempt.test_daemon_restarts import begun, check_whole, ended

RESTARTING = """
import time
from pathlib import Path
with open("begun", "a") as file:
    file.write("begun\\n")
Path("restart").touch()
while Path("restart").exists():
    time.sleep(0.02)
print("restarted", flush=True)
"""


def install(folder):
    """Put this version of Rota into a folder of its own."""
    shutil.copytree(
        Path(rota.__file__).parent, folder / "rota", ignore=shutil.ignore_patterns("__pycache__")
    )


def upgrade(folder):
    """Replace it by one with another step of the schema and another keeper."""
    shutil.rmtree(folder / "rota")
    install(folder)
    for store, table in (("sqlite", "to_come"), ("postgres", "rota.to_come")):
        steps = folder / "rota" / "store" / store / "migrations"
        (steps / "0900_to_come.sql").write_text(f"create table {table} (id integer primary key);\n")
    keeper = folder / "rota" / "keeper" / "protocol.py"
    keeper.write_text(f"{keeper.read_text()}\nNEWER = 1\n")


def test_an_upgrade_kills_nothing_and_touches_no_keeper_that_runs(kept, tmp_path):
    code = tmp_path / "code"
    install(code)
    kept.extra = {"PYTHONPATH": str(code)}
    number = kept.count(20)
    kept.until(number, begun)
    (first,) = kept.living()
    keeper, _ = kept.keeper()
    words = Path(f"/proc/{keeper}/cmdline").read_bytes().split(b"\0")
    (program,) = (Path(word.decode()) for word in words if word.endswith(b".pyc"))
    assert program.is_relative_to(kept.house.home)
    before = program.read_bytes(), program.stat().st_mtime_ns
    kept.stop()
    upgrade(code)
    kept.up()
    assert kept.living() == [first]
    assert kept.keeper()[0] == keeper
    assert (program.read_bytes(), program.stat().st_mtime_ns) == before
    kept.go()
    check_whole(kept, number, 20)
    other = kept.json("run", "count")["run"]
    assert kept.until(other, ended)["state"] == "succeeded"
    built = sorted((kept.house.home / "keepers" / "program").glob("*.pyc"))
    assert program in built
    assert len(built) == 2


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_restarts_rota_does_so_once(kept, how):
    """What a service manager does at its wish: a program cannot reach the daemon itself."""
    (kept.work / "restarting.py").write_text(RESTARTING)
    kept.create("restart", "python3", "restarting.py")
    kept.up()
    wish = kept.work / "restart"
    number = kept.json("run", "restart")["run"]
    end = time.monotonic() + 30
    while not wish.exists():
        assert time.monotonic() < end, kept.run(number)
        time.sleep(0.02)
    kept.daemon.signal(how)
    kept.daemon.wait()
    kept.up()
    wish.unlink()
    run = kept.until(number, ended)
    assert (run["state"], run["result"]) == ("succeeded", "restarted")
    assert [attempt["number"] for attempt in run["attempts"]] == [1]
    assert (kept.work / "begun").read_text() == "begun\n"
    assert not wish.exists()

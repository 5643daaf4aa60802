"""A home that was there before, under any umask: a real daemon makes its own files private."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

STRANGER = 65_534
SAID = "Other users had access to {}"
BREAK_IN = """
import fcntl, sys
held = []
for name in sys.argv[1:]:
    try:
        held.append(open(name, "rb"))
        fcntl.lockf(held[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as fault:
        print(type(fault).__name__, flush=True)
    else:
        print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=[0o022, 0o000], ids=["022", "000"])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def there(house, umask):
    """A home that people made, with something of theirs in it, and what an earlier Rota left."""
    work = house.home / "spaces" / "main" / "work"
    work.mkdir(parents=True)
    (work / "run.sh").write_text("#!/bin/sh\necho done\n")
    (work / "run.sh").chmod(0o755)
    (house.home / "rules").mkdir()
    return house


def modes(folder):
    return {
        str(path.relative_to(folder)): path.lstat().st_mode & 0o777 for path in folder.rglob("*")
    }


def test_a_daemon_makes_a_home_private_and_says_so(there, umask):
    before = modes(there.home)
    daemon = there.up()
    assert daemon.out.seen[0].startswith(SAID.format(there.home))
    daemon.log.wait("home.made_private", str(there.home))
    made = ("task", "create", "it", "--command", "./run.sh", "--executor", "process")
    there.json(*made)
    run = there.json("run", "it", "--wait")
    assert run["state"] == "succeeded"
    there.rota("backup", str(there.folder / "kept.zip"))
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert there.home.stat().st_mode & 0o777 == 0o700
    assert (there.folder / "kept.zip").stat().st_mode & 0o777 == 0o600
    found = modes(there.home)
    assert {name: found[name] for name in before} == before
    own = {name: mode for name, mode in found.items() if name not in before}
    below = {name for name in own if name.startswith("spaces/")}
    allowed = {name: mode for name, mode in own.items() if name not in below}
    assert allowed
    assert {name: oct(mode) for name, mode in allowed.items() if mode & 0o077} == {}
    again = there.up()
    assert again.out.seen[0] == "Rota is running."


def test_what_an_earlier_daemon_left_open_is_taken_back(house):
    daemon = house.up()
    daemon.signal(signal.SIGTERM)
    daemon.wait()
    left = [house.home, house.database, house.home / "admin.key", house.home / "logs" / "rota.log"]
    for path in left:
        path.chmod(0o755 if path.is_dir() else 0o644)
    told = house.rota("doctor", "--json")
    assert told.stdout.count('"permissions"') == len(left)
    daemon = house.up()
    assert daemon.out.seen[0].startswith(SAID.format(house.home))
    assert {path.stat().st_mode & 0o077 for path in left} == {0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_another_user_gets_at_nothing_and_stops_no_write(bytecode, umask):
    from tests.system.conftest import House

    folder = Path(tempfile.mkdtemp(prefix="rota-near-"))
    folder.chmod(0o755)
    house = House(folder, bytecode)
    house.home.mkdir()
    house.home.chmod(0o755)
    try:
        daemon = house.up()
        names = [f"{house.database}{side}" for side in ("", "-wal", "-shm", ".lock")]
        names += [str(house.home / name) for name in ("admin.key", "desk.key", "logs/rota.log")]
        become = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
        with subprocess.Popen(
            [*become, "/usr/bin/env", "python3", "-c", BREAK_IN, *names],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        ) as stranger:  # fmt: skip
            said = [stranger.stdout.readline().strip() for _ in names]
            assert said == ["PermissionError"] * len(names)
            house.json("task", "create", "hello", "--call", "rota.samples:hello")
            house.json("task", "run", "hello")
            daemon.log.wait("run.settled", "hello")
            stranger.communicate()
    finally:
        house.close()
        shutil.rmtree(folder)

"""The hostile program, through the daemon, in every executor that claims walls."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.system.executors.conftest import HOSTILE

PROCESSES, MEMORY = 24, 512


@pytest.fixture
def facts(sited):
    """What an attacker would like to reach: everything Rota keeps beside the space's folder."""
    home, marker = sited.house.home, f"marker-{secrets.token_hex(8)}"
    secret = secrets.token_hex(16)
    (home / "secret").write_text(secret)
    (home / "keepers" / "attempts").mkdir(parents=True, mode=0o700)
    listener = socket.create_server(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(str(home / "s"))
    abstract.bind("\0" + marker)
    for each in (unix, abstract):
        each.listen()
    neighbour = subprocess.Popen(
        [sys.executable, "-c", "input()", marker],
        stdin=subprocess.PIPE,
        env={"SECRET": secret, "PATH": os.defpath},
    )
    yield {
        "secret": secret,
        "secret_file": str(home / "secret"),
        "marker": marker,
        "pid": neighbour.pid,
        "port": listener.getsockname()[1],
        "socket": str(home / "s"),
        "abstract": marker,
        "folder": str(sited.work),
        "state": str(home / "keepers" / "attempts"),
        "processes": PROCESSES,
        "memory": MEMORY * 1024 * 1024,
    }
    neighbour.communicate(b"\n")
    for each in (listener, unix, abstract):
        each.close()


def test_no_attack_works_from_within_a_run(sited, walls, facts):
    sited.settle(walls)
    for file in HOSTILE:
        shutil.copy(file, sited.work)
    (sited.work / "facts.json").write_text(json.dumps(facts))
    line = [
        "task",
        "create",
        "bad",
        "--command",
        "python3 hostile.py facts.json",
        "--timeout",
        "4m",
    ]
    bounds = ("--processes", str(PROCESSES), "--memory", str(MEMORY))
    sited.json(*line, *walls.options, *bounds)
    sited.up()
    run = sited.ended(sited.start("bad"), 240.0)
    assert run["id"] == 1
    assert run["state"] == "succeeded", run
    found = json.loads(run["result"]) if isinstance(run["result"], str) else run["result"]
    assert found["stumbled"] == {}, "an attack that could not be tried proves nothing"
    assert {name: how for name, how in found["worked"].items() if how} == {}
    assert len(found["worked"]) > 10


def test_a_program_that_takes_its_output_back_is_ended_in_time(sited, walls):
    sited.settle(walls)
    shutil.copy(Path(HOSTILE[0]).with_name("hostile_reader.py"), sited.work)
    sited.make("back", "python3", "hostile_reader.py", timeout="6s", grace="1s")
    sited.up()
    run = sited.ended(sited.start("back"), 40.0)
    assert (run["state"], run["error_code"]) == ("failed", "timeout")


def test_the_attacker_refuses_to_start_without_walls(sited):
    if os.geteuid() != 0:
        pytest.skip("it refuses rights over the whole machine, which only root has")
    done = subprocess.run(
        [sys.executable, HOSTILE[0], "/nonexistent"], capture_output=True, check=False, timeout=20
    )
    assert b"run it behind walls" in done.stderr
    assert Path(HOSTILE[0]).name == "hostile.py"


def test_folders_of_the_list_are_seen_as_they_were_asked_for(sited, walls):
    sited.settle(walls)
    data = sited.house.folder / "data"
    data.mkdir()
    (data / "in").write_text("from outside")
    (sited.house.home / "mounts.toml").write_text(f'[[mount]]\nfolder = "{data}"\n')
    (sited.house.home / "mounts.toml").chmod(0o600)
    (sited.work / "use.py").write_text(
        "import os, sys\nprint(open(sys.argv[1] + '/in').read())\n"
        f"print(os.listdir('{sited.house.home}/keepers/rooms/' + os.environ['ROTA_RUN_ID'] + '-1'))\n"
        "open(sys.argv[1] + '/out', 'w').write('from inside')\n"
    )
    sited.make("read", "python3", "use.py", str(data), mount=str(data))
    sited.make("write", "python3", "use.py", str(data), mount=f"{data}:rw")
    refused = sited.rota(
        "task", "create", "more", "--command", "true", *walls.options, "--mount", "/opt"
    )
    assert (refused.returncode != 0, "may not be mounted" in refused.stderr) == (True, True)
    sited.up()
    run = sited.ended(sited.start("read"))
    assert run["state"] == "failed", run
    assert "from outside" in sited.output(run["id"])
    assert "['files']" in sited.output(run["id"]), "no more of an attempt's own state is seen"
    assert not (data / "out").exists()
    assert sited.ended(sited.start("write"))["state"] == "succeeded"
    assert (data / "out").read_text() == "from inside"


def test_the_egress_socket_is_all_that_can_be_reached(sited, walls):
    sited.settle(walls)
    path = sited.house.folder / "gate"
    asking = "import os, socket; host, port = os.environ['ROTA_EGRESS_ADDRESS'].split(':'); "
    asking += "c = socket.create_connection((host, port)); c.sendall(b'hello'); print(c.recv(9))"
    line = ("task", "create", "call", "--command", shlex.join(["python3", "-c", asking]))
    refused = sited.rota(*line, *walls.options, "--network", "egress")
    assert (refused.returncode != 0, "`egress_socket`" in refused.stderr) == (True, True)
    sited.settings = {**walls.settings, "ROTA_EGRESS_SOCKET": str(path)}
    made = sited.json(*line, *walls.options, "--network", "egress")
    assert made["site"]["network"] == "egress"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        answering = threading.Thread(target=answer, args=(listener,), name="rota-answer")
        answering.start()
        try:
            sited.up()
            run = sited.ended(sited.start("call"))
        finally:
            with socket.socket(socket.AF_UNIX) as last:  # lets the answering end, called or not
                last.connect_ex(str(path))
            answering.join()
    assert (run["state"], run["result"]) == ("succeeded", "b'HELLO'"), run


def answer(listener):
    peer, _ = listener.accept()
    with peer:
        peer.sendall(peer.recv(100).upper())

"""Processes found by the marker in their environment, and ended."""

import os
import subprocess
import sys

import pytest

from rota.keeper.cleanup import kill_marked, marked_processes
from rota.keeper.linux import children, descendants, parent, send_signal, start_time

FORKING = "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        time.sleep(30)\nprint('ready', flush=True)\ntime.sleep(30)"


@pytest.fixture
def tree(request):
    name = f"sweep-{os.getpid()}"
    words = [sys.executable, "-I", "-S", "-c", FORKING]
    with subprocess.Popen(words, env={"ROTA_KEEPER": name}, stdout=subprocess.PIPE) as root:
        root.stdout.readline()
        yield name, root
        kill_marked(name)


def test_everything_that_carries_a_marker_is_ended(tree):
    name, root = tree
    assert len(marked_processes(name)) == 4
    assert kill_marked(name) == 4
    assert root.wait(5) == -9
    assert marked_processes(name) == []
    assert kill_marked(name) == 0


def test_a_marker_that_only_begins_alike_is_another(tree):
    name, _ = tree
    assert marked_processes(name[:-1]) == []
    assert marked_processes(name + "1") == []


def test_a_descendant_without_the_marker_is_found_through_its_parent(tree):
    name, _ = tree
    words = ["sh", "-c", "env -i sleep 30 & echo up; wait"]
    environment = {"ROTA_KEEPER": name, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        while len(descendants(other.pid)) != 1:
            pass
        assert kill_marked(name) == 6


def test_the_one_who_sweeps_is_spared(monkeypatch):
    """A daemon that was started inside an attempt carries its marker itself."""
    code = "from rota.keeper.cleanup import kill_marked\nprint(kill_marked('inside'))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"ROTA_KEEPER": "inside"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "0\n"


def test_descendants_are_parents_first(tree):
    _, root = tree
    found = descendants(os.getpid())
    assert found.index(root.pid) < min(found.index(child) for child in children(root.pid))
    assert {parent(child) for child in children(root.pid)} == {root.pid}


def test_a_process_is_struck_only_if_it_is_still_the_one(tree):
    _, root = tree
    began = start_time(root.pid)
    assert began > 0
    assert not send_signal(root.pid, 9, lambda pid: start_time(pid) == began + 1)
    assert root.poll() is None
    assert send_signal(root.pid, 9, lambda pid: start_time(pid) == began)
    root.wait(5)
    assert start_time(root.pid) == 0
    assert not send_signal(root.pid, 9, lambda _: True)

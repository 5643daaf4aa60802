"""Who looks for plug-ins: the daemon, once; the help and the lists of the command line never."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COUNT = """
import sys
from rota.cli.main import main
code = main({words!r})
plugins = sys.modules.get("rota.app.plugins")
scans = 0 if plugins is None else plugins.find_plugins.cache_info().misses
print("scans", scans, "metadata", "importlib.metadata" in sys.modules, file=sys.stderr)
"""
LISTS = [
    ["--help"],
    ["task", "create", "--help"],
    ["task", "list"],
    ["runs"],
    ["space", "list"],
    ["schedule", "list"],
    ["notify", "list"],
    ["thread", "list"],
]


def last_words(house, words):
    done = subprocess.run(
        [sys.executable, "-c", COUNT.format(words=words)],
        env=house._environment({}), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_neither_help_nor_lists_scan_without_a_daemon(house, words):
    house.json("task", "create", "x", "--command", "true")
    assert last_words(house, words).startswith("scans 0 ")


def test_neither_help_nor_lists_load_metadata_with_a_daemon(house):
    house.up()
    for words in (*LISTS, ["status"], ["run", "nothing"]):
        last_words(house, words)  # the first help is rendered, and then it is kept
        assert last_words(house, words) == "scans 0 metadata False", words


def test_what_needs_plug_ins_scans(house):
    create = ["task", "create", "x", "--command", "true"]
    assert last_words(house, create).startswith("scans 1 ")


def test_the_daemon_scans_once(house, tmp_path):
    counting = tmp_path / "sitecustomize.py"
    counting.write_text(
        "import importlib.metadata as metadata\n"
        "scan = metadata.entry_points\n"
        "def counted(*words, **more):\n"
        "    if not more:  # pydantic asks for its own plug-ins alone\n"
        f"        with open({str(tmp_path / 'scans')!r}, 'a') as file:\n"
        "            file.write('x')\n"
        "    return scan(*words, **more)\n"
        "metadata.entry_points = counted\n"
    )
    house.up(PYTHONPATH=str(tmp_path))
    house.json("task", "create", "x", "--command", "true")
    assert house.json("run", "x", "--wait")["state"] == "succeeded"
    assert json.loads(house.rota("status", "--json").stdout)["warnings"] == []
    assert (tmp_path / "scans").read_text() == "x"

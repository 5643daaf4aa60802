"""The compiled keeper, and what it is started with."""

from __future__ import annotations

import ast
import resource
import subprocess
import threading
from collections import Counter
from pathlib import Path

import pytest

from rota.keeper import build as keeper_build
from rota.keeper.build import (
    MAX_FILES,
    PACKAGE,
    PARTS,
    build_keeper,
    certain_kill,
    default_file_limit,
    raise_file_limit,
)
from rota.ports.executor import ProcessTreeMode


def parts():
    return {
        part: ast.parse(text) for part, text in zip(PARTS, keeper_build._sources(), strict=True)
    }


def test_every_part_is_there():
    folder = Path(keeper_build.__file__).parent
    assert set(PARTS) <= {path.stem for path in folder.glob("*.py")}


def test_no_name_means_two_things_once_the_parts_are_together():
    names = Counter(
        name
        for tree in parts().values()
        for node in tree.body
        for name in (
            [node.name]
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            else [target.id for target in getattr(node, "targets", [])]
        )
    )
    assert {name for name, count in names.items() if count > 1} == {"TYPE_CHECKING"}


def test_a_part_imports_only_what_was_put_in_before_it_and_cheap_modules():
    cheap = {"__future__", "_ctypes", "binascii", "os", "resource", "select", "sys", "time"}
    known = set()
    for part, tree in parts().items():
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                assert node.module.rpartition(".")[0] == PACKAGE
                assert node.module.rpartition(".")[2] in known, (part, node.module)
            if isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= cheap
        known.add(part)


def test_it_is_compiled_once(tmp_path):
    program = build_keeper(tmp_path)
    before = Path(program.path).stat()
    assert build_keeper(tmp_path) == program
    assert Path(program.path).stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in tmp_path.iterdir()] == [Path(program.path).name]


def test_it_starts_without_rota_and_without_what_is_slow(tmp_path):
    program = build_keeper(tmp_path)
    words = [program.python, "-I", "-S", "-X", "importtime", program.path, "--try"]
    told = subprocess.run(words, env={}, capture_output=True, text=True, check=False, timeout=20)
    loaded = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}
    assert "select" in loaded
    assert (
        loaded & {"rota", "signal", "ctypes", "json", "typing", "pathlib", "subprocess", "site"}
        == set()
    )


def test_a_guarded_tree_is_never_certain(tmp_path):
    program = build_keeper(tmp_path)
    assert certain_kill(ProcessTreeMode.GUARD, program) is False
    assert certain_kill(ProcessTreeMode.AUTO, program) is certain_kill(
        ProcessTreeMode.PIDNS, program
    )


def test_two_threads_never_put_it_together_at_the_same_time(tmp_path, monkeypatch):
    at_once, most, together = 0, 0, keeper_build._compile
    beside = threading.Event()

    def counted(texts):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        beside.wait(0.05)
        try:
            return together(texts)
        finally:
            at_once -= 1

    monkeypatch.setattr(keeper_build, "_compile", counted)
    folders = [tmp_path / str(number) for number in range(3)]
    threads = [
        threading.Thread(target=keeper_build.build_keeper, args=(folder,)) for folder in folders
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert all(list(folder.glob("*.pyc")) for folder in folders)


# open files


@pytest.fixture
def hard():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    default_file_limit.cache_clear()
    yield before[1]
    default_file_limit.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_daemon_may_open_more_than_usual(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, MAX_FILES), hard)
    assert default_file_limit() == 256


def test_who_may_open_as_many_already_takes_no_more(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)

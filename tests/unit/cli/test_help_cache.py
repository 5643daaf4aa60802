"""Help is rendered once; later it is read from the cache, if there is one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from rota.cli import help_cache

HEAVY = ("pydantic", "apsw", "asyncpg", "rich", "asyncio", "typer", "hashlib", "pathlib")
CODE = """
import sys
from rota.cli.main import main
main(sys.argv[1:])
print([m for m in HEAVY if m in sys.modules], file=sys.stderr)
"""


def start(cache, *words):
    return subprocess.Popen(
        [sys.executable, "-c", CODE.replace("HEAVY", repr(HEAVY)), *words],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(cache, *words):
    process = start(cache, *words)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out, err.strip()


def test_help_from_the_cache_is_the_same_and_loads_nothing_heavy(tmp_path):
    rendered, loaded = run(tmp_path, "task", "create", "--help")
    assert "--cron EXPR" in rendered
    assert "typer" in loaded
    assert run(tmp_path, "task", "create", "--help") == (rendered, "[]")
    assert run(tmp_path, "task", "--help")[1] == "[]", "the pages of a group are kept together"


def test_a_list_does_not_wait_for_help_to_be_rendered(tmp_path):
    run(tmp_path, "ls", "--home", str(tmp_path / "home"), "--store", "memory:")
    assert not list(tmp_path.glob("rota/*/*"))


@pytest.mark.parametrize("cache", ["a file", "relative", "/proc/nowhere"])
def test_help_needs_no_cache(tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a file").write_text("")
    folder = str(tmp_path / cache) if cache == "a file" else cache
    assert "Usage: rota task create" in run(folder, "task", "create", "--help")[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file"]


def test_a_misspelt_command_is_refused_without_a_cache(tmp_path):
    process = start(tmp_path / "cache", "task", "lst")
    assert "did you mean 'rota task list'?" in process.communicate()[1]


def test_programs_that_write_at_once_leave_whole_pages(tmp_path):
    processes = [start(tmp_path, "task", "create", "--help") for _ in range(4)]
    told = {process.communicate()[0] for process in processes}
    assert len(told) == 1
    (folder,) = tmp_path.glob("rota/*")
    assert all(path.suffix == ".txt" for path in folder.iterdir())
    assert (folder / "rota-task-create.txt").read_text() in told


def test_a_name_leads_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setattr(help_cache, "_folder", lambda: str(tmp_path))
    (tmp_path / "rota-task-create.txt").write_text("page")
    assert help_cache.read_page("rota task create") == "page"
    for name in ("rota task ../rota-task-create", "rota task \0"):
        assert help_cache.read_page(name) is None


def test_the_pages_of_old_installations_are_removed(tmp_path, monkeypatch):
    for n in range(6):
        old = tmp_path / f"help-{n}"
        old.mkdir()
        (old / "rota.txt").write_text("old")
        os.utime(old, (n, n))
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(help_cache, "_folder", lambda: str(tmp_path / "help-new"))
    help_cache.write_pages({"rota": "new"})
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {"help-new", "help-5", "help-4", "help-3", "other"}
    assert help_cache.read_page("rota") == "new"


def test_changed_sources_have_other_pages(tmp_path):
    for folder in help_cache.SOURCES:
        shutil.copytree(Path(rota.__file__).parent / folder, tmp_path / folder)

    def key():
        spec = importlib.util.spec_from_file_location("copied", tmp_path / "cli" / "help_cache.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module._key()

    before = key()
    assert key() == before
    file = tmp_path / "commands" / "task_fields.py"
    file.write_text(file.read_text() + "\n")
    changed = key()
    assert changed != before
    shutil.rmtree(tmp_path / "rules")
    assert key() == ""

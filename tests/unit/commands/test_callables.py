"""Where callables are found: behind all that is installed, and never where programs write."""

import sys

import pytest

from rota.cli.arguments import check_callables_here


@pytest.fixture
def path(monkeypatch):
    found = ["/installed"]
    monkeypatch.setattr(sys, "path", found)
    return found


def test_the_current_folder_comes_last_and_once(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_callables_here(tmp_path / "spaces")
    check_callables_here(tmp_path / "spaces")
    assert path == ["/installed", str(tmp_path)]


def test_a_folder_of_a_space_is_left_out(path, tmp_path, monkeypatch):
    work = tmp_path / "spaces" / "main" / "work"
    work.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "spaces")
    monkeypatch.chdir(work)
    check_callables_here(tmp_path / "link")
    assert path == ["/installed"]

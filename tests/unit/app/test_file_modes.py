"""What is Rota's own in a home is taken from others, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rota.app import file_modes
from rota.app.file_modes import make_private, permissive
from rota.app.settings import read_settings

PEOPLES = ("rota.toml", "notes.txt", "rules/one.md", "spaces/main/work/run.sh", "spaces/main/a.db")
OWN = (
    *("rota.db", "rota.db-wal", "rota.db-shm", "rota.db.before-0005", "admin.key", "api.json"),
    *("desk.key", "desk.port", "logs/rota.log", "logs/rota.log.1", "gateway/key", "errors/1.json"),
    *("keepers/lease", "keepers/lock"),
)
FOLDERS = (".", "logs", "gateway", "errors", "keepers", "secrets")
DEEPER = ("keepers/attempts/1/out", "secrets/key")


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    for name in (*PEOPLES, *OWN, *DEEPER):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def settings(home, monkeypatch):
    monkeypatch.delenv("ROTA_STORE", raising=False)
    found, _ = read_settings(str(home), None)
    return found


def modes(home):
    return {
        str(path.relative_to(home)): path.stat().st_mode & 0o777
        for path in (home, *home.rglob("*"))
    }


def test_only_what_is_rotas_own_is_narrowed(home, settings):
    before = modes(home)
    narrowed = make_private(settings)
    wanted = dict.fromkeys(FOLDERS, 0o700) | dict.fromkeys(OWN, 0o600)
    assert modes(home) == before | wanted
    assert {str(path.relative_to(home)) for path in narrowed.paths} == wanted.keys()
    more = f"{len(wanted) - 1} more files of Rota"
    (told,) = narrowed.sentences()
    assert told == f"Other users had access to {home} and {more}: only you have access now."
    assert make_private(settings).sentences() == []
    assert not list(permissive(settings))


def test_a_home_that_is_a_link_is_narrowed_where_it_leads(home, tmp_path):
    (tmp_path / "link").symlink_to(home)
    found, _ = read_settings(str(tmp_path / "link"), None)
    make_private(found)
    assert home.stat().st_mode & 0o777 == 0o700


def test_what_a_link_leads_to_is_left_alone(home, settings, tmp_path):
    aside = tmp_path / "aside"
    aside.touch()
    aside.chmod(0o644)
    (home / "logs" / "rota.log").unlink()
    (home / "logs" / "rota.log").symlink_to(aside)
    make_private(settings)
    assert aside.stat().st_mode & 0o777 == 0o644


def test_a_folder_in_which_everybody_has_files_is_no_home(home, settings):
    home.chmod(0o1777)
    narrowed = make_private(settings)
    assert home.stat().st_mode & 0o7777 == 0o1777
    assert (home / "rota.db").stat().st_mode & 0o777 == 0o600
    assert narrowed.sentences()[-1] == (
        f"Other users can read {home}, which is not Rota's alone: give --home a folder of its own."
    )


def test_folders_of_the_system_and_above_a_users_own_are_no_homes(monkeypatch, tmp_path):
    for folder in ("/", "/etc", "/usr", "/tmp", "/var/lib"):
        found, _ = read_settings(folder, None)
        assert Path(folder) not in [own.path for own in file_modes.own_of(found)]
    monkeypatch.setenv("HOME", str(tmp_path / "people" / "me"))
    (tmp_path / "people" / "me").mkdir(parents=True)
    for folder, is_one in (("people", False), ("people/me", True)):
        found, _ = read_settings(str(tmp_path / folder), None)
        own = [own.path for own in file_modes.own_of(found)]
        assert (tmp_path / folder in own) is is_one


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_left_alone(home, settings):
    for path in (home, home / "rota.db"):
        os.chown(path, 65_534, 65_534)
    narrowed = make_private(settings)
    assert home.stat().st_mode & 0o777 == 0o755
    assert (home / "rota.db").stat().st_mode & 0o777 == 0o644
    assert narrowed.open_home == home


def test_a_database_elsewhere_is_the_stores_own_matter(home, tmp_path):
    other = tmp_path / "x.db"
    other.touch(mode=0o660)
    found, _ = read_settings(str(home), f"sqlite:///{other}")
    assert other not in make_private(found).paths

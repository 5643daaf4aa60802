"""A folder is put in order when the last attempt in it is over, and never before."""

import os

import pytest

from rota.keeper.paths import guard_names
from rota.keeper.workspace import FolderLocks
from rota.ports.executor import GUARDED


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "spaces" / "main" / "work"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def claims(tmp_path):
    (tmp_path / "rooms").mkdir()
    return FolderLocks(tmp_path / "rooms", tmp_path / "spaces", GUARDED)


def begin(tmp_path, claims, work, name):
    """Let an attempt begin in a folder, as its launcher would."""
    room = tmp_path / "rooms" / name
    (room / "abcdef12").mkdir(parents=True)
    claims.acquire(room / "abcdef12", str(work))
    held = os.open(work, os.O_PATH | os.O_DIRECTORY)
    for one in guard_names(str(work), held, list(GUARDED)):
        os.close(one.descriptor)
    os.close(held)
    return room


def names(work):
    return sorted(str(path.relative_to(work)) for path in work.rglob("*"))


def test_what_only_held_a_name_is_gone_with_the_last_attempt(tmp_path, claims, work):
    first, second = (begin(tmp_path, claims, work, name) for name in ("1-1", "2-1"))
    assert ".git" in names(work)
    before = names(work)
    claims.release(first)
    assert names(work) == before
    claims.release(second)
    assert names(work) == []
    assert not any((tmp_path / "rooms").iterdir())


def test_what_people_have_there_stays(tmp_path, claims, work):
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".vscode").mkdir()
    (work / ".envrc").write_text("export A=1")
    room = begin(tmp_path, claims, work, "1-1")
    (work / ".claude").chmod(0o700)
    (work / ".claude" / "settings.json").write_text("{}")
    claims.release(room)
    assert names(work) == [
        *(".claude", ".claude/settings.json", ".envrc", ".git", ".git/objects", ".vscode"),
    ]


def test_folders_that_people_made_are_never_deleted(tmp_path, claims, work):
    (work / ".git").mkdir()
    (work / ".claude").mkdir()
    for name in (".git", ".claude"):
        (work / name).chmod(0o555)
    first, second = (begin(tmp_path, claims, work, name) for name in ("1-1", "2-1"))
    claims.release(first)
    claims.release(second)
    assert names(work) == [".claude", ".git"]


def test_what_an_attempt_held_goes_with_the_last_one_that_came_later(tmp_path, claims, work):
    first = begin(tmp_path, claims, work, "1-1")
    (work / ".vscode").rmdir()
    (work / ".vscode").mkdir()
    second = begin(tmp_path, claims, work, "2-1")
    claims.release(first)
    claims.release(second)
    assert names(work) == [".vscode"]


def test_a_claim_of_an_earlier_version_or_a_torn_one_takes_nothing_away(tmp_path, claims, work):
    rooms = [begin(tmp_path, claims, work, name) for name in ("1-1", "2-1")]
    before = names(work)
    (rooms[0] / "abcdef12" / "works-in").write_text(str(work))
    claims.release(rooms[1])
    assert names(work) == before
    (rooms[0] / "abcdef12" / "works-in").write_text("")
    claims.release(rooms[0])
    assert names(work) == before


def test_no_link_is_followed(tmp_path, claims, work):
    aside = tmp_path / "aside"
    (aside / "hooks").mkdir(parents=True)
    (aside / "hooks").chmod(0o555)
    room = begin(tmp_path, claims, work, "1-1")
    (work / ".git").rmdir()
    (work / ".git").symlink_to(aside)
    claims.release(room)
    assert (aside / "hooks").is_dir()


def test_an_attempt_that_claims_nothing_or_is_gone_is_simply_dropped(tmp_path, claims):
    (tmp_path / "rooms" / "1-1" / "abcdef12").mkdir(parents=True)
    claims.release(tmp_path / "rooms" / "1-1")
    claims.release(tmp_path / "rooms" / "1-1")
    assert not any((tmp_path / "rooms").iterdir())

"""Tidying: only what ended long ago and nobody knows is taken away."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from rota.errors import Unavailable
from rota.keeper.cleanup import RETENTION_SECONDS, UNSWEPT, find_uncleaned, remove_old_folders
from rota.keeper.home import LocalKeeperHome
from rota.keeper.workspace import FolderLocks, attempt_folder_name, egress_name
from rota.model.attempts import KeptAttempt

NOW = 1_700_000_000.0
LONG_AGO = NOW - RETENTION_SECONDS - 1


def kept(run_id):
    nonce = f"{run_id:016x}"
    return KeptAttempt(
        run_id=run_id, epoch=1, home="here", nonce=nonce, boot="boot", executor="process"
    )  # fmt: skip


@pytest.fixture
def keepers(tmp_path):
    for name in ("attempts", "rooms", "mailboxes"):
        (tmp_path / name).mkdir()
    (tmp_path / "lease").touch()
    os.utime(tmp_path / "lease", (NOW, NOW))
    return tmp_path


def claims(keepers):
    return FolderLocks(keepers / "rooms", keepers / "spaces", ())


def leave(keepers, one, at, *, ended=True):
    """Leave the folders of an attempt behind, and return their paths."""
    attempt = keepers / "attempts" / attempt_folder_name(one)
    attempt.mkdir()
    if ended:
        (attempt / "exit").touch()
        os.utime(attempt / "exit", (at, at))
    beside = [
        keepers / name / egress_name(one.run_id, one.epoch) for name in ("rooms", "mailboxes")
    ]
    for folder in beside:
        folder.mkdir()
        os.utime(folder, (at, at))
    return [attempt, *beside]


def test_what_ended_long_ago_and_is_not_known_goes(keepers):
    left = leave(keepers, kept(1), LONG_AGO)
    remove_old_folders(keepers, [], claims(keepers))
    assert not [path for path in left if path.exists()]


def test_what_is_known_stays_however_old(keepers):
    left = leave(keepers, kept(1), LONG_AGO)
    remove_old_folders(keepers, [kept(1)], claims(keepers))
    assert all(path.exists() for path in left)


def test_what_has_just_ended_stays(keepers):
    left = leave(keepers, kept(1), NOW)
    remove_old_folders(keepers, [], claims(keepers))
    assert all(path.exists() for path in left)


def test_an_attempt_without_an_ending_is_not_taken_away(keepers):
    attempt, *_ = leave(keepers, kept(1), LONG_AGO, ended=False)
    remove_old_folders(keepers, [], claims(keepers))
    assert attempt.exists()


def not_swept(keepers, one, **left):
    """Leave an attempt behind whose executor may have left something."""
    attempt, *_ = leave(keepers, one, LONG_AGO, **left)
    (attempt / UNSWEPT).write_text("container")
    return attempt


def test_what_is_not_swept_stays_until_it_is(keepers):
    attempt = not_swept(keepers, kept(1))
    remove_old_folders(keepers, [], claims(keepers))
    assert attempt.exists()
    (attempt / UNSWEPT).unlink()
    remove_old_folders(keepers, [], claims(keepers))
    assert not attempt.exists()


def test_only_what_has_ended_unknown_and_unswept_is_still_to_be_swept(keepers):
    not_swept(keepers, kept(1))
    not_swept(keepers, kept(2), ended=False)
    not_swept(keepers, kept(3))
    leave(keepers, kept(4), LONG_AGO)
    (left,) = find_uncleaned(keepers, "here", [kept(3)])
    assert left == replace(kept(1), boot="", executor="container")


class Engine:
    """An executor that ends what is left as soon as it answers."""

    def __init__(self):
        self.answers = False

    def sweep(self, spec):
        if not self.answers:
            raise Unavailable(f"it does not answer for {spec.name}")


async def test_an_executor_is_remembered_until_it_has_swept(tmp_path):
    engine = Engine()
    yard = LocalKeeperHome(tmp_path, "here", {"container": engine})
    keepers = tmp_path / "keepers"
    for name in ("attempts", "rooms", "mailboxes"):
        (keepers / name).mkdir(parents=True)
    attempt = not_swept(keepers, kept(1))
    (left,) = await yard.find_uncleaned([])
    with pytest.raises(Unavailable):
        await yard.clean_up(left)
    assert await yard.find_uncleaned([]) == [left]
    engine.answers = True
    await yard.clean_up(left)
    assert await yard.find_uncleaned([]) == []
    assert attempt.exists()


def test_what_somebody_else_takes_away_meanwhile_is_no_fault(keepers):
    (keepers / "rooms" / "9-1").symlink_to(keepers / "nowhere")
    remove_old_folders(keepers, [], claims(keepers))

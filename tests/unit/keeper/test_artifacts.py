"""Artifacts: whatever a program leaves there, the host follows nothing and waits for nothing."""

from __future__ import annotations

import ctypes
import io
import os
import socket
import stat
import tarfile
import threading
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rota.errors import NotFound, Refused
from rota.keeper.workspace import (
    MAX_ARTIFACT_BYTES,
    MAX_DEPTH,
    MAX_LISTED,
    LocalArtifactStore,
    artifacts_folder,
    result_name,
)
from rota.ports.host import ArtifactFolder

NOBODY = 65534
PR_SET_DUMPABLE = 4


@pytest.fixture
def kept(tmp_path):
    return LocalArtifactStore(tmp_path)


@pytest.fixture
def shelf(kept, tmp_path):
    made = artifacts_folder(tmp_path / "spaces" / "main", 7)
    kept.prepare(made, 1, anew=True)
    return made


def names(kept, run_id=7):
    return [artifact.name for artifact in kept.list_artifacts("main", run_id).files]


def content(kept, name):
    artifact, file = kept.open("main", 7, name)
    with file:
        assert artifact.name == name
        return file.read()


def test_a_run_that_was_given_no_folder_has_left_nothing(kept):
    told = kept.list_artifacts("main", 7)
    assert (told.files, told.left_out, told.more) == ((), 0, False)


def test_files_are_listed_by_name_and_read(kept, shelf):
    (shelf / "b" / "c").mkdir(parents=True)
    (shelf / "b" / "c" / "deep.txt").write_bytes(b"deep")
    (shelf / "a b.txt").write_bytes(b"one")
    (shelf / "übersicht.txt").write_bytes(b"two")
    told = kept.list_artifacts("main", 7)
    assert [(a.name, a.size) for a in told.files] == [
        ("a b.txt", 3),
        ("b/c/deep.txt", 4),
        ("übersicht.txt", 3),
    ]
    assert (told.left_out, told.more) == (0, False)
    assert content(kept, "b/c/deep.txt") == b"deep"


def test_a_run_that_left_nothing_has_nothing(kept, shelf):
    assert kept.list_artifacts("main", 7).files == ()
    assert kept.list_artifacts("main", 8).files == ()
    assert kept.list_artifacts("nobody", 7).files == ()


def test_files_that_come_and_go_meanwhile_hide_no_others(kept, shelf):
    for number in range(100):
        (shelf / f"report-{number}").touch()
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            for number in range(20):
                (shelf / f".new-{number}").touch()
            for number in range(20):
                (shelf / f".new-{number}").unlink()

    busy = threading.Thread(target=come_and_go)
    busy.start()
    try:
        for _ in range(100):
            assert len([name for name in names(kept) if name.startswith("report-")]) == 100
    finally:
        over.set()
        busy.join()


@pytest.fixture
def no_root(kept, tmp_path, monkeypatch):
    """A user whom modes of files hold, and who owns all there is."""
    monkeypatch.chdir(tmp_path)
    before = os.geteuid()
    if before == 0:
        for path in (tmp_path, *tmp_path.rglob("*")):
            os.chown(path, NOBODY, -1)
        become(NOBODY)
    yield LocalArtifactStore(Path())
    if before == 0:
        become(before)


def become(user):
    """Have the rights of a user; its /proc/self is its own, as that of one who never had others."""
    os.seteuid(user)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)


@pytest.mark.parametrize(
    ("mode", "seen", "left_out"), [(0o000, [], 1), (0o400, [], 2), (0o500, ["sub/a", "sub/b"], 0)]
)
def test_what_may_not_be_looked_at_is_counted(shelf, no_root, mode, seen, left_out):
    own = Path("spaces/main/artifacts/7")
    (own / "sub").mkdir()
    for name in ("good", "sub/a", "sub/b"):
        (own / name).touch()
    (own / "sub").chmod(mode)
    told = no_root.list_artifacts("main", 7)
    assert [artifact.name for artifact in told.files] == ["good", *seen]
    assert (told.left_out, told.more) == (left_out, False)


def test_a_shelf_that_its_program_has_locked_shows_nothing_until_the_next_attempt(shelf, no_root):
    own = Path("spaces/main/artifacts/7")
    (own / "made").touch()
    own.chmod(0)
    told = no_root.list_artifacts("main", 7)
    assert (told.files, told.left_out) == ((), 1)
    no_root.prepare(own, 2, anew=False)
    assert names(no_root) == ["made"]


def test_a_shelf_that_its_program_has_locked_is_deleted_in_its_time(shelf, no_root):
    Path("spaces/main/artifacts/7/made").touch()
    Path("spaces/main/artifacts/7").chmod(0)
    (told,) = no_root.list_folders()
    assert (told.run_id, told.empty) == (7, False)
    no_root.delete_folder(told)
    assert no_root.list_folders() == []


def link(path, secret):
    path.symlink_to(secret)


def link_of_a_folder(path, secret):
    path.symlink_to(secret.parent)


def hard_link(path, secret):
    path.hardlink_to(secret)


def pipe(path, _secret):
    os.mkfifo(path)


def a_socket(path, _secret):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def device(path, _secret):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def newline(path, _secret):
    path.with_name("two\nlines").write_text("x")


def escape(path, _secret):
    path.with_name("\x1b[31mred").write_text("x")


def turned_around(path, _secret):
    path.with_name("\u202etxt.exe").write_text("x")


def not_unicode(path, _secret):
    with open(os.path.join(os.fsencode(path.parent), b"\xff\xfe"), "wb"):  # noqa: PTH118, PTH123
        pass


HOSTILE = [
    link,
    link_of_a_folder,
    hard_link,
    pipe,
    a_socket,
    device,
    newline,
    escape,
    turned_around,
    not_unicode,
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("plant", HOSTILE, ids=lambda plant: plant.__name__)
def test_a12_what_is_no_plain_file_is_passed_over(kept, shelf, tmp_path, plant):
    secret = tmp_path / "keys" / "secret"
    secret.parent.mkdir()
    secret.write_text("secret")
    (shelf / "good").write_text("good")
    plant(shelf / "bad", secret)
    told = kept.list_artifacts("main", 7)
    assert [artifact.name for artifact in told.files] == ["good"]
    assert told.left_out == 1
    for name in ("bad", "bad/secret", *{path.name for path in shelf.iterdir()} - {"good"}):
        with pytest.raises(NotFound):
            kept.open("main", 7, name)


def test_a12_an_archive_is_bytes_and_nobody_unpacks_it(kept, shelf, tmp_path):
    with zipfile.ZipFile(shelf / "slip.zip", "w") as made:
        made.writestr("../../../out", "x")
    with tarfile.open(shelf / "slip.tar", "w") as made:
        made.addfile(tarfile.TarInfo("/etc/out"), io.BytesIO())
    before = {name: (shelf / name).read_bytes() for name in ("slip.tar", "slip.zip")}
    assert names(kept) == [*before]
    assert {name: content(kept, name) for name in before} == before
    assert not [*tmp_path.rglob("out")]


def test_a12_a_set_user_bit_goes_nowhere(kept, shelf):
    (shelf / "tool").write_text("#!/bin/sh\n")
    (shelf / "tool").chmod(0o4755)
    assert content(kept, "tool") == b"#!/bin/sh\n"


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/", "/etc/passwd", "../7/good", "../../../../etc/passwd", "a//b", "good/",
     "good/..", "./good", "a\0b", "x" * 256, "/".join("a" * (MAX_DEPTH + 1)), "\udcff"],
)  # fmt: skip
def test_a_name_leads_nowhere_else(kept, shelf, name):
    (shelf / "good").write_text("good")
    with pytest.raises(NotFound):
        kept.open("main", 7, name)


@pytest.mark.parametrize("replaced", ["7", "artifacts"])
def test_a_folder_that_was_swapped_for_a_link_shows_nothing(kept, shelf, tmp_path, replaced):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "7").mkdir(parents=True)
    (elsewhere / "secret").write_text("secret")
    (elsewhere / "7" / "secret").write_text("secret")
    there = next(path for path in (shelf, shelf.parent) if path.name == replaced)
    there.rename(tmp_path / "moved")
    there.symlink_to(elsewhere)
    assert names(kept) == []
    with pytest.raises(NotFound):
        kept.open("main", 7, "secret")
    kept.delete_folder(ArtifactFolder("main", 7, datetime.now(UTC), empty=False))
    assert (elsewhere / "7" / "secret").exists()


def test_a_link_in_the_place_of_the_folder_is_replaced_by_a_folder(kept, shelf, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shelf.rmdir()
    shelf.symlink_to(elsewhere)
    kept.prepare(shelf, 2, anew=False)
    assert shelf.is_dir()
    assert not shelf.is_symlink()


def test_a_list_is_bounded(kept, shelf):
    for number in range(MAX_LISTED + 5):
        (shelf / f"{number:05}").touch()
    told = kept.list_artifacts("main", 7)
    assert (len(told.files), told.more) == (MAX_LISTED, True)


def test_what_lies_too_deep_is_left_out(kept, shelf):
    deep = shelf.joinpath(*["d"] * (MAX_DEPTH + 3))
    deep.mkdir(parents=True)
    (deep / "x").touch()
    told = kept.list_artifacts("main", 7)
    assert (told.files, told.left_out, told.more) == ((), 1, False)


def test_what_is_too_large_is_refused_and_not_read(kept, shelf):
    with (shelf / "huge").open("wb") as file:
        file.truncate(MAX_ARTIFACT_BYTES + 1)
    assert names(kept) == ["huge"]
    with pytest.raises(Refused, match="1 GiB"):
        kept.open("main", 7, "huge")


def test_artifacts_stay_over_attempts_and_a_result_does_not(kept, shelf):
    (shelf / "made").write_text("by the first")
    (shelf / result_name(2)).mkdir()
    (shelf / result_name(2) / "x").touch()
    kept.prepare(shelf, 2, anew=False)
    assert names(kept) == ["made"]


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o500])
@pytest.mark.parametrize("locked", ["", "sub", "sub/sub", "sub/sub/sub"])
def test_no_folder_is_locked_against_its_deletion(shelf, no_root, locked, mode):
    own = Path("spaces/main/artifacts/7")
    (own / "result-2" / "sub/sub/sub").mkdir(parents=True)
    for folder in ("", "sub", "sub/sub", "sub/sub/sub"):
        (own / "result-2" / folder / "x").touch()
    (own / "result-2" / locked).chmod(mode)
    no_root.prepare(own, 2, anew=False)
    assert list(own.iterdir()) == []


def test_another_try_within_an_attempt_finds_what_the_first_left(kept, shelf):
    (shelf / "made").write_text("by the first try")
    kept.prepare(shelf, 1, anew=False)
    assert names(kept) == ["made"]


def test_the_first_attempt_finds_nothing_of_an_earlier_life(kept, shelf):
    (shelf / "old").write_text("of another database")
    kept.prepare(shelf, 1, anew=True)
    assert names(kept) == []


def test_a_result_is_read_up_to_a_bound(kept, shelf):
    (shelf / "result-1").write_bytes(b"x" * 100)
    assert kept.read_artifact("main", 7, "result-1", 10) == b"x" * 10
    os.truncate(shelf / "result-1", 2 * MAX_ARTIFACT_BYTES)
    assert kept.read_artifact("main", 7, "result-1", 10) == b"x" * 10
    (shelf / "result-1").unlink()
    (shelf / "result-1").symlink_to("/etc/passwd")
    assert kept.read_artifact("main", 7, "result-1", 10) is None


@pytest.mark.timeout(60)
def test_everything_of_a_run_is_deleted_however_deep_it_is(kept, shelf, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    (shelf / "link").symlink_to(outside)
    os.mkfifo(shelf / "pipe")
    held = os.open(shelf, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=held)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=held))
        inner = os.open("d", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = inner
    os.close(held)
    (told,) = kept.list_folders()
    assert (told.space, told.run_id, told.empty) == ("main", 7, False)
    kept.delete_folder(told)
    assert kept.list_folders() == []
    assert (outside / "mine").exists()


def test_only_folders_of_runs_are_shelves(kept, shelf):
    (shelf.parent / "notes").mkdir()
    (shelf.parent / "8").write_text("no folder")
    (told,) = kept.list_folders()
    assert (told.run_id, told.empty) == (7, True)

"""Where a program works, what it finds there, and the artifacts it leaves."""

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

from rota.errors import Invalid, NotFound, Refused
from rota.keeper.paths import guard_names
from rota.keeper.workspace import (
    MAX_ARTIFACT_BYTES,
    MAX_CONFIG,
    MAX_DEPTH,
    MAX_LISTED,
    FolderLocks,
    LocalArtifactStore,
    artifacts_folder,
    delete_tree,
    find_program,
    make_folder,
    make_mailbox,
    read_config,
    readable_folders,
    resources_folder,
    result_name,
    working_folder,
    writable_folder,
)
from rota.model.programs import Program
from rota.ports.agent import AgentWorkspace
from rota.ports.executor import GUARDED
from rota.ports.host import ArtifactFolder

# the working folder


def test_a_folder_that_is_there_is_taken(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert working_folder(str(tmp_path), None) == str(tmp_path)
    assert working_folder(str(tmp_path), "a/b") == f"{tmp_path}/a/b"


@pytest.mark.parametrize("folder", ["none", "file", "link", "link/inner", "../x", "/etc", 5, ""])
def test_anything_else_is_refused(tmp_path, folder):
    work, outside = tmp_path / "work", tmp_path / "outside"
    (outside / "inner").mkdir(parents=True)
    work.mkdir()
    (work / "file").touch()
    (work / "link").symlink_to(outside)
    with pytest.raises(Invalid, match="^folder "):
        working_folder(str(work), folder)


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("run.py", 0o644, ["/usr/bin/python3", "{}/run.py", "-x"]),
        ("run.py", 0o755, ["{}/run.py", "-x"]),
        ("run.sh", 0o755, ["{}/run.sh", "-x"]),
        ("run.sh", 0o644, ["{}/run.sh", "-x"]),
    ],
)
def test_a_file_of_the_folder_is_named_by_its_path(tmp_path, name, mode, words):
    (tmp_path / name).touch()
    (tmp_path / name).chmod(mode)
    room = AgentWorkspace(folder="/f", cwd=str(tmp_path), home="/h", python="/usr/bin/python3")
    command = find_program(Program(argv=(name, "-x"), cwd=room.cwd), room)
    assert list(command.argv) == [word.format(tmp_path) for word in words]
    assert find_program(Program(argv=("ls", name), cwd=room.cwd), room).argv == ("ls", name)
    with pytest.raises(Invalid):
        find_program(Program(argv=(f"{tmp_path}/{name}",), cwd=room.cwd), room)


@pytest.fixture
def space(tmp_path):
    """A space's folder with links in it, some of which lead out."""
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "app").mkdir(parents=True)
    (work / "tools").mkdir()
    (work / ".venv" / "bin").mkdir(parents=True)
    outside.mkdir()
    for file in (outside / "tool", outside / "tool.py", work / "tools" / "real"):
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    (work / "app" / "near").symlink_to("../tools/real")
    (work / "app" / "far").symlink_to(outside / "tool")
    (work / "app" / "far.py").symlink_to(outside / "tool.py")
    (work / "app" / "folder").symlink_to(outside)
    (work / "app" / "round").symlink_to("far")
    (work / ".venv" / "pyvenv.cfg").touch()
    (work / ".venv" / "bin" / "python").symlink_to(outside / "tool")
    (work / ".venv" / "bin" / "evil").symlink_to(outside / "tool")
    return work


def named(work, program, cwd):
    room = AgentWorkspace(
        folder="/f", cwd=str(cwd), work=str(work), home="/h", python="/usr/bin/python3"
    )
    return find_program(Program(argv=(program,), cwd=room.cwd), room).argv


@pytest.mark.parametrize("program", ["far", "far.py", "folder/tool", "round"])
def test_a_program_that_a_link_has_outside_the_space_is_refused(space, program):
    with pytest.raises(Invalid, match="^command "):
        named(space, program, space / "app")


def test_a_link_to_another_file_of_the_space_is_followed(space):
    assert named(space, "near", space / "app") == (f"{space}/app/near",)


def test_the_interpreter_of_an_environment_of_the_space_may_be_a_link(space, tmp_path):
    python = ".venv/bin/python"
    assert named(space, python, space) == (f"{space}/{python}",)
    with pytest.raises(Invalid, match="^command "):
        named(space, ".venv/bin/evil", space)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".venv").symlink_to(space / ".venv")
    with pytest.raises(Invalid, match="^command "):
        named(tmp_path / "other", python, tmp_path / "other")


def test_the_space_itself_may_be_reached_through_a_link(space, tmp_path):
    (tmp_path / "linked").symlink_to(space)
    there = tmp_path / "linked"
    assert named(there, "tools/real", there) == (f"{there}/tools/real",)


# artifacts

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


# mailboxes


def test_a_mailbox_is_made_once_and_is_private(tmp_path):
    box = make_mailbox(tmp_path / "7-2", "abcdef12")
    (tmp_path / "7-2" / "abcdef12" / "out" / "x.json").touch()
    assert make_mailbox(tmp_path / "7-2", "abcdef12") == box == str(tmp_path / "7-2" / "abcdef12")
    found = sorted(str(path.relative_to(box)) for path in (tmp_path / "7-2").rglob("*"))[1:]
    assert found == ["in", "in/files", "in/messages", "in/replies", "out", "out/x.json"]
    for folder in ("in", "out", "in/replies", "in/messages", "in/files"):
        assert (tmp_path / "7-2" / "abcdef12" / folder).stat().st_mode & 0o777 == 0o700
    assert make_mailbox(tmp_path / "7-2", "00000000") != box
    assert (readable_folders(box), writable_folder(box)) == ([f"{box}/in"], f"{box}/out")
    assert (readable_folders(None), writable_folder(None)) == ([], None)


def test_what_stands_in_the_place_of_a_folder_is_named(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(Invalid, match="gone.*: remove it"):
        make_folder(tmp_path / "gone")


def test_whatever_a_program_left_there_goes(tmp_path):
    box = make_mailbox(tmp_path / "7-2", "abcdef12")
    (tmp_path / "kept").write_text("kept")
    out = os.open(f"{box}/out", os.O_RDONLY)
    os.symlink(tmp_path, "link", dir_fd=out)
    for _ in range(1_500):
        os.mkdir("deeper", dir_fd=out)
        below = os.open("deeper", os.O_RDONLY, dir_fd=out)
        os.close(out)
        out = below
    os.close(out)
    delete_tree(tmp_path / "7-2")
    delete_tree(tmp_path / "7-2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]


# the config of a task


def test_without_a_config_there_is_none(tmp_path):
    assert read_config(tmp_path) is None
    assert read_config(tmp_path / "nowhere") is None


def test_the_first_name_wins(tmp_path):
    (tmp_path / "config.json").write_text('{"a": 1}')
    assert read_config(tmp_path) == '{"a": 1}'
    (tmp_path / "task_config.json").write_text('{"a":\n "\\u0000é"}')
    assert read_config(tmp_path) == '{"a": "\\u0000\\u00e9"}'


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"null", b"\xff", b'{"a": NaN}', b'{"a": 1e999}', b"[" * 50_000,
                b'{"a": "' + b"x" * MAX_CONFIG + b'"}',
                '{"ä": "'.encode() + "é".encode() * (MAX_CONFIG // 3) + b'"}'],
    ids=lambda content: repr(content[:8]),
)  # fmt: skip
def test_what_is_no_small_object_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(Invalid, match=r"^config\.json "):
        read_config(tmp_path)


@pytest.mark.timeout(10)
def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path):
    (tmp_path / "secret").write_text('{"secret": 1}')
    (tmp_path / "task_config.json").symlink_to("secret")
    with pytest.raises(Invalid):
        read_config(tmp_path)
    (tmp_path / "task_config.json").unlink()
    os.mkfifo(tmp_path / "task_config.json")
    with pytest.raises(Invalid):
        read_config(tmp_path)


@pytest.mark.parametrize("name", ["a/b", "a/../../b", "a:b", "x" * 128])
def test_the_folder_of_a_task_is_one_step_below_the_others(tmp_path, name):
    assert resources_folder(tmp_path, name).parent == tmp_path / "resources"
    assert resources_folder(tmp_path, name).resolve().parent == tmp_path / "resources"


# locks on folders


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


def paths_in(work):
    return sorted(str(path.relative_to(work)) for path in work.rglob("*"))


def test_what_only_held_a_name_is_gone_with_the_last_attempt(tmp_path, claims, work):
    first, second = (begin(tmp_path, claims, work, name) for name in ("1-1", "2-1"))
    assert ".git" in paths_in(work)
    before = paths_in(work)
    claims.release(first)
    assert paths_in(work) == before
    claims.release(second)
    assert paths_in(work) == []
    assert not any((tmp_path / "rooms").iterdir())


def test_what_people_have_there_stays(tmp_path, claims, work):
    (work / ".git" / "objects").mkdir(parents=True)
    (work / ".vscode").mkdir()
    (work / ".envrc").write_text("export A=1")
    room = begin(tmp_path, claims, work, "1-1")
    (work / ".claude").chmod(0o700)
    (work / ".claude" / "settings.json").write_text("{}")
    claims.release(room)
    assert paths_in(work) == [
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
    assert paths_in(work) == [".claude", ".git"]


def test_what_an_attempt_held_goes_with_the_last_one_that_came_later(tmp_path, claims, work):
    first = begin(tmp_path, claims, work, "1-1")
    (work / ".vscode").rmdir()
    (work / ".vscode").mkdir()
    second = begin(tmp_path, claims, work, "2-1")
    claims.release(first)
    claims.release(second)
    assert paths_in(work) == [".vscode"]


def test_a_claim_of_an_earlier_version_or_a_torn_one_takes_nothing_away(tmp_path, claims, work):
    rooms = [begin(tmp_path, claims, work, name) for name in ("1-1", "2-1")]
    before = paths_in(work)
    (rooms[0] / "abcdef12" / "works-in").write_text(str(work))
    claims.release(rooms[1])
    assert paths_in(work) == before
    (rooms[0] / "abcdef12" / "works-in").write_text("")
    claims.release(rooms[0])
    assert paths_in(work) == before


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

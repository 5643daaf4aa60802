"""What may be shown to programs, and that nothing else ever is."""

import os
import threading
import time

import pytest

from rota.errors import Invalid, NotPermitted
from rota.executors.shared.mounts import AllowedMount, MountAllowlist, read_mounts
from rota.keeper.paths import open_below
from rota.model.programs import SharedFolder
from rota.model.spaces import SpaceRole
from rota.ports.executor import ExecutionSpec

SPACES = AllowedMount(folder="/srv/spaces")


def test_what_is_not_listed_is_not_shown():
    listed = MountAllowlist([SPACES])
    for path in ("/etc", "/srv", "/srv/spaces2", "/srv/spacesx/a"):
        with pytest.raises(NotPermitted, match="may not be mounted"):
            listed.mount(path, SpaceRole.MAIN, write=False)


@pytest.mark.parametrize(
    ("entry", "role", "wish", "writes"),
    [
        (SPACES, SpaceRole.MAIN, True, True),
        (SPACES, SpaceRole.MEMBER, True, True),
        (SPACES, SpaceRole.MAIN, False, False),
        (AllowedMount(folder="/srv/spaces", members_write=False), SpaceRole.MEMBER, True, False),
        (AllowedMount(folder="/srv/spaces", members_write=False), SpaceRole.MAIN, True, True),
        (AllowedMount(folder="/srv/spaces", write=False), SpaceRole.MAIN, True, False),
    ],
)
def test_who_writes_is_what_the_list_says(entry, role, wish, writes):
    assert MountAllowlist([entry]).mount("/srv/spaces/one", role, write=wish).write is writes


def test_the_more_exact_entry_decides():
    listed = MountAllowlist([SPACES, AllowedMount(folder="/srv/spaces/shared", write=False)])
    assert not listed.mount("/srv/spaces/shared/x", SpaceRole.MAIN, write=True).write
    assert listed.mount("/srv/spaces/own", SpaceRole.MAIN, write=True).write


def test_what_rota_gives_to_attempts_no_task_can_ask_for():
    listed = MountAllowlist([AllowedMount(folder="/srv/spaces", own=True)])
    assert listed.mount("/srv/spaces/one", SpaceRole.MEMBER, write=True).write
    for path in ("/srv/spaces", "/srv/spaces/other", "/srv/spaces/other/work"):
        for write in (False, True):
            with pytest.raises(NotPermitted, match="belongs to Rota"):
                listed.share(SharedFolder(path=path, write=write), SpaceRole.MAIN)


@pytest.mark.parametrize("folder", ["/", "/etc", "/root", "/home", "srv", "/srv/../etc", "/srv/"])
def test_a_list_cannot_hand_out_the_house(folder):
    with pytest.raises(Invalid):
        MountAllowlist([AllowedMount(folder=folder)])


def test_a_room_that_would_show_its_own_state_is_refused():
    room = ExecutionSpec(
        name="a", state="/srv/spaces/one/state", folder="/srv/spaces/one", home="/srv/spaces/h"
    )
    with pytest.raises(NotPermitted, match="own state"):
        MountAllowlist([SPACES]).of(room)


def test_an_outer_folder_never_hides_an_inner_one():
    room = ExecutionSpec(
        name="a",
        state="/var/a",
        folder="/srv/spaces/one/work",
        home="/srv/spaces/one",
        readable=["/srv/spaces/one/work/docs", "/srv/spaces/one/work"],
    )
    assert [(m.path, m.write) for m in MountAllowlist([SPACES]).of(room)] == [
        ("/srv/spaces/one", True),
        ("/srv/spaces/one/work", False),
        ("/srv/spaces/one/work/docs", False),
    ]


def write_list(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_list_is_read_from_a_file(tmp_path):
    path = write_list(
        tmp_path / "mounts.toml",
        '[[mount]]\nfolder = "/srv/a"\nmembers_write = false\n[[mount]]\nfolder = "/srv/b"\nwrite = false\n',
    )
    assert read_mounts(path).folders == [
        AllowedMount(folder="/srv/a", members_write=False),
        AllowedMount(folder="/srv/b", write=False),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[[mount]]\n",
        "[[mount]]\nfolder = 3\n",
        '[[mount]]\nfolder = "/a"\nread = true\n',
        "x = 1\n",
        "[[",
        "mount = 1\n",
    ],
)
def test_a_list_that_says_something_else_is_refused(tmp_path, text):
    with pytest.raises(Invalid):
        read_mounts(write_list(tmp_path / "mounts.toml", text))


def test_a_list_that_hands_itself_out_is_refused(tmp_path):
    (tmp_path / "inside").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in (tmp_path, tmp_path / "inside", tmp_path / "link"):
        path = write_list(tmp_path / "inside" / "m.toml", f'[[mount]]\nfolder = "{folder}"\n')
        with pytest.raises(Invalid, match="move it out"):
            read_mounts(path)


def test_a_list_that_is_not_there_is_told(tmp_path):
    with pytest.raises(Invalid, match="cannot be read: No such file"):
        read_mounts(tmp_path / "none.toml")


def test_a_list_that_others_may_write_is_refused(tmp_path):
    path = write_list(tmp_path / "m.toml", "")
    path.chmod(0o666)
    with pytest.raises(Invalid, match="chmod"):
        read_mounts(path)


def test_a_link_on_the_way_or_at_the_end_is_refused(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "real").mkdir(parents=True)
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (outside / "x").mkdir()
    for path in (root / "link", root / "link" / "x", root / "missing", tmp_path):
        with pytest.raises(NotPermitted):
            open_below(str(root), str(path))
    os.close(open_below(str(root), str(root / "real")))
    os.close(open_below(str(root), str(root)))


def test_a_folder_that_is_swapped_for_a_link_all_the_time_never_leads_out(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a" / "b").mkdir(parents=True)
    (outside / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(outside)
    forbidden = (outside / "b").stat().st_ino
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            (root / "a").rename(tmp_path / "aside")
            (tmp_path / "link").rename(root / "a")
            (root / "a").rename(tmp_path / "link")
            (tmp_path / "aside").rename(root / "a")

    swapping = threading.Thread(target=swap, name="rota-swap")
    swapping.start()
    led, refused = 0, 0
    until = time.monotonic() + 20
    try:
        while (not led or not refused or led + refused < 20_000) and time.monotonic() < until:
            try:
                held = open_below(str(root), str(root / "a" / "b"))
            except NotPermitted:
                refused += 1
                continue
            led += 1
            assert os.fstat(held).st_ino != forbidden
            os.close(held)
    finally:
        stop.set()
        swapping.join()
    assert led
    assert refused

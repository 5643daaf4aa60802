"""The folders of mailboxes: private, made once, and gone however a program left them."""

import os

import pytest

from rota.errors import Invalid
from rota.keeper.workspace import (
    delete_tree,
    make_folder,
    make_mailbox,
    readable_folders,
    writable_folder,
)


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

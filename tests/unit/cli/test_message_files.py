"""`rota say --file`: what is sent, what is shown of it, and what is refused and not read."""

from __future__ import annotations

import os

import pytest

HERE = "cli:default"
PNG = bytes(range(256)) * 5


@pytest.fixture
def photo(rota, tmp_path):
    rota.ok("task", "create", "desk", "--instructions", "Talk.", "--answers", "--thread", HERE,
            "--agent", "command", "--command", "cat")  # fmt: skip
    path = tmp_path / "my photo.png"
    path.write_bytes(PNG)
    return path


def test_files_are_sent_and_shown(rota, photo):
    said = rota.json("say", HERE, "Look.", "--file", str(photo))
    assert [(file["name"], file["type"], file["size"]) for file in said["files"]] == [
        ("my photo.png", "image/png", len(PNG))
    ]
    rota.ok("say", HERE, "and that is all")
    shown = rota.ok("messages", HERE).out
    assert "my photo.png (image/png, 1,280 bytes)" in shown
    found = rota.json("messages", HERE)["messages"]
    assert [message["files"] for message in found] == [[], said["files"]]


def test_a_file_says_enough(rota, photo):
    said = rota.json("say", HERE, "--file", str(photo), "--file", __file__)
    assert (said["text"], len(said["files"])) == ("", 2)
    told = rota("say", HERE)
    assert told.code != 0
    assert "needs 1 to 16000 characters, or none with files" in told.err


def test_a_table_without_files_is_as_it_was(rota, photo):
    rota.ok("say", HERE, "Look.")
    assert "files" not in rota.ok("messages", HERE).out


def refused(rota, path):
    told = rota("say", HERE, "Look.", "--file", str(path))
    assert told.code != 0
    assert len(told.err.strip().splitlines()) == 1, told.err
    return told.err


def test_what_is_no_plain_file_is_refused_and_not_waited_for(rota, photo, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", tmp_path, "/dev/zero"):
        assert "must be a regular file" in refused(rota, path)
    assert "no such file" in refused(rota, tmp_path / "nowhere")
    assert rota("messages", HERE).out.count("\n") <= 1


def test_a_file_that_is_too_large_is_not_read(rota, photo, tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert "attach at most 10 MiB to a message" in refused(rota, tmp_path / "huge")
    with (tmp_path / "most").open("wb") as file:
        file.truncate(10 << 20)
    told = rota("say", HERE, "--file", str(tmp_path / "most"), "--file", str(photo))
    assert "attach at most 10 MiB to a message" in told.err
    assert rota.json("say", HERE, "--file", str(tmp_path / "most"))["files"][0]["size"] == 10 << 20
    many = [word for _ in range(11) for word in ("--file", str(photo))]
    assert "at most 10" in rota("say", HERE, *many).err


def test_two_files_of_one_name_are_refused(rota, photo, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "MY PHOTO.png").write_bytes(b"x")
    told = rota("say", HERE, "--file", str(photo), "--file", str(tmp_path / "b" / "MY PHOTO.png"))
    assert "distinct names" in told.err

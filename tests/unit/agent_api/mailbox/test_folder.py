"""The reader of a mailbox: whatever a program puts there, nothing of the host is read or waited for."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from rota.agent_api.mailbox import folder as box_module
from rota.agent_api.mailbox.folder import LARGEST, MOST_REPLIES, CommandRejected, Mailbox

SECRET = b"the secret of the host"


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(SECRET)
    return file


def refused(box, name="x.json"):
    began = time.monotonic()
    with pytest.raises(CommandRejected) as told:
        box.read(name)
    assert time.monotonic() - began < 0.05
    return told.value.code


def test_a_plain_file_is_read_once_and_taken_away(box, folder):
    folder.put("a", b"{}")
    found = box.read("a.json")
    assert found.data == b"{}"
    assert box.drop("a.json", found)
    assert (folder.left(), box.read("a.json")) == ([], None)


@pytest.mark.parametrize("target", ["secret", "/proc/self/environ", "/dev/zero", "nowhere"])
def test_a_link_is_never_followed(box, folder, secret, target):
    (folder.out / "x.json").symlink_to(secret if target == "secret" else target)
    assert refused(box) == "symlink"
    assert box.drop("x.json")
    assert (folder.left(), secret.read_bytes()) == ([], SECRET)


def test_a_file_with_another_name_is_refused(box, folder, secret):
    (folder.out / "x.json").hardlink_to(secret)
    assert refused(box) == "hard_link"
    assert box.drop("x.json")
    assert secret.read_bytes() == SECRET


def test_nothing_but_a_file_is_opened(box, folder):
    os.mkfifo(folder.out / "fifo.json")
    (folder.out / "folder.json").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder.out / "s.json"))
        for name in ("fifo.json", "folder.json", "s.json"):
            assert refused(box, name) == "not_a_file"
            assert box.drop(name)
    assert folder.left() == []


def test_a_folder_that_is_not_empty_stays_where_it_is(box, folder):
    (folder.out / "x.json" / "deep").mkdir(parents=True)
    assert refused(box) == "not_a_file"
    assert not box.drop("x.json")


def test_a_file_of_another_user_is_refused(box, folder, monkeypatch):
    folder.put("x", b"{}")
    monkeypatch.setattr(box, "_user", os.geteuid() + 1)
    assert refused(box) == "not_yours"


def test_a_huge_file_is_refused_by_its_size(box, folder):
    with (folder.out / "x.json").open("wb") as file:
        os.truncate(file.fileno(), 1 << 40)
    assert refused(box) == "too_large"


def test_a_file_that_grows_while_it_is_read_is_refused(box, folder, monkeypatch):
    folder.put("x", b"x" * LARGEST)
    looked_at = box_module._check_plain_file

    def growing(facts, user):
        looked_at(facts, user)
        with (folder.out / "x.json").open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(box_module, "_check_plain_file", growing)
    with pytest.raises(CommandRejected, match="at most 1 MiB"):
        box.read("x.json")


def test_what_was_read_stays_what_it_was(box, folder):
    folder.put("x", b'{"a": 1}')
    with (folder.out / "x.json").open("r+b") as writing:
        found = box.read("x.json")
        writing.write(b'{"b": 2}')
    assert found.data == b'{"a": 1}'


def test_a_file_put_in_the_place_of_one_that_was_read_is_not_lost(box, folder):
    folder.put("x", b"first")
    found = box.read("x.json")
    folder.put("x", b"second")
    assert box.drop("x.json", found)
    assert box.read("x.json").data == b"second"


def test_a11_a_file_that_is_changed_after_it_was_read_counts_as_it_was_read(box, folder):
    folder.put("x", b"first")
    found = box.read("x.json")
    with (folder.out / "x.json").open("r+b") as file:
        file.write(b"other")
    assert found.data == b"first"
    assert box.drop("x.json", found)
    assert folder.left() == []


@pytest.mark.parametrize(
    "name",
    [b"new\nline.json", b"\xe2\x80\xae.json", b"\xff.json", b"A.json", b".json", b"-a.json",
     b"a b.json", b"a" * 65 + b".json", b"a" * 250 + b".json", b"a.b.json"],
)  # fmt: skip
def test_a_name_that_is_not_plain_is_refused_and_removed(box, folder, name):
    (folder.out / os.fsdecode(name)).write_bytes(b"{}")
    (found,) = box.waiting(10).names
    assert refused(box, found) == "bad_name"
    assert box.drop(found)
    assert folder.left() == []


@pytest.mark.parametrize("name", ["../secret.json", "a/b.json", "a\0.json", "a.json\n"])
def test_a_name_that_leads_elsewhere_is_never_used(box, name):
    assert refused(box, name) == "bad_name"


def test_a_listing_is_bounded_and_goes_nowhere_below(box, folder):
    for number in range(30):
        (folder.out / f"{number}.json").touch()
    (folder.out / "deep" / "deeper").mkdir(parents=True)
    assert not box.waiting(31).more
    found = box.waiting(10)
    assert (len(found.names), found.more) == (10, True)


@pytest.mark.parametrize("tries", [2_000, pytest.param(100_000, marks=pytest.mark.programs)])
def test_out_itself_may_be_moved_and_replaced_while_it_is_read(box, folder, tmp_path, tries):
    """A thread swaps `out` for a link to a folder of the host's; the held one is read all along."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "x.json").write_bytes(SECRET)
    folder.put("x", b"{}")
    ended = threading.Event()

    def swap():
        while not ended.is_set():
            folder.out.rename(folder.path / "moved")
            folder.out.symlink_to(host)
            folder.out.unlink()
            (folder.path / "moved").rename(folder.out)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        found = {box.read("x.json").data for _ in range(tries)}
    finally:
        ended.set()
        swapping.join()
    assert found == {b"{}"}


@pytest.mark.parametrize("part", ["out", "in"])
def test_a_mailbox_whose_folders_are_links_is_not_opened(folder, tmp_path, part):
    (folder.path / part).rename(tmp_path / "elsewhere")
    (folder.path / part).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        Mailbox(str(folder.path))


def test_where_replies_go_no_link_is_followed(box, folder, tmp_path, secret):
    """Without walls a program can write to `in`, too; what it puts there leads nowhere."""
    (folder.replies / "a.json").symlink_to(secret)
    box.reply("a", {"ok": True})
    assert folder.reply("a") == {"ok": True}
    (folder.replies / "a.json").unlink()
    folder.replies.rmdir()
    folder.replies.symlink_to(tmp_path)
    with pytest.raises(OSError):
        box.reply("b", {"ok": True})
    assert secret.read_bytes() == SECRET
    assert not (tmp_path / "b.json").exists()


def test_only_the_newest_replies_stay(box, folder):
    for number in range(MOST_REPLIES + 5):
        box.reply(f"r{number}", {})
    names = {path.name for path in folder.replies.iterdir()}
    assert len(names) == MOST_REPLIES
    assert "r4.json" not in names
    assert "r5.json" in names


def test_a_closed_mailbox_reads_nothing(folder):
    box = Mailbox(str(folder.path))
    folder.put("x", b"{}")
    box.close()
    box.close()
    with pytest.raises(OSError, match="closed"):
        box.waiting(10)

"""What a keeper keeps of a stream, whatever its pieces."""

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.keeper.client import KeeperFifo
from rota.keeper.process import InputFile, SpoolFile, WakeupPipe
from rota.keeper.protocol import TAIL_BYTES
from rota.model.programs import MIB

PIECES = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 40_000)), max_size=12)


@given(PIECES, st.integers(0, 120_000))
def test_head_and_tail_are_those_of_the_stream(pieces, cap):
    with tempfile.TemporaryDirectory() as folder:
        spool = SpoolFile(f"{folder}/out", cap)
        for byte, length in pieces:
            if length:
                spool.append(bytes([byte]) * length)
        os.close(spool.file)
        stream = b"".join(bytes([byte]) * length for byte, length in pieces)
        head = Path(folder, "out").read_bytes()
    assert head == stream[:cap]
    assert (spool.size, spool.total) == (len(head), len(stream))
    assert spool.tail() == stream[len(head) :][-TAIL_BYTES:]


def test_single_bytes_past_the_cap_do_not_pile_up(tmp_path):
    spool = SpoolFile(str(tmp_path / "out"), 0)
    for _ in range(200_000):
        spool.append(b"x")
    assert len(spool._tail) < 40
    assert spool.tail() == b"x" * TAIL_BYTES
    os.close(spool.file)


def test_a_file_that_takes_no_more_is_a_clean_prefix(tmp_path):
    spool = SpoolFile(str(tmp_path / "out"), 1000)
    spool.append(b"one ")
    os.close(spool.file)
    spool.file = os.open("/dev/full", os.O_WRONLY)
    spool.append(b"two ")
    os.close(spool.file)
    spool.file = os.open(tmp_path / "out", os.O_WRONLY | os.O_APPEND)
    spool.append(b"three")  # there is room again, but a gap would lie before it
    os.close(spool.file)
    assert (spool.errno, spool.size, spool.total) == (28, 4, 13)
    assert (tmp_path / "out").read_bytes() == b"one "
    assert spool.tail() == b"two three"


def test_a_spool_leaves_room_on_the_disk_for_others(tmp_path, monkeypatch):
    monkeypatch.setattr(
        os, "fstatvfs", lambda _file: SimpleNamespace(f_bavail=9, f_frsize=MIB, f_blocks=1000)
    )
    spool = SpoolFile(str(tmp_path / "out"), 100 * MIB)
    for _ in range(64):
        spool.append(b"x" * (64 * 1024))
    os.close(spool.file)
    assert (spool.errno, spool.size, spool.total) == (28, MIB, 4 * MIB)


@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_feed_stops_at_a_full_pipe_and_goes_on(inside):
    given_bytes = os.urandom(300_000)
    (inside / "in").write_bytes(given_bytes)
    reading, writing = os.pipe()
    feed = InputFile(writing)
    assert feed.push()
    got = os.read(reading, 1 << 20)
    while feed.push():
        got += os.read(reading, 1 << 20)
    (inside / "in.end").touch()
    assert not feed.push()
    while more := os.read(reading, 1 << 20):
        got += more
    os.close(reading)
    assert got == given_bytes
    assert (feed.offset, feed.open) == (300_000, False)


def test_a_ring_without_a_daemon_is_no_fault(tmp_path):
    assert WakeupPipe(bytes(tmp_path / "wake"), b"a").wake()
    os.mkfifo(tmp_path / "wake")
    assert WakeupPipe(bytes(tmp_path / "wake"), b"a").wake()


def test_a_ring_is_heard_by_name_also_by_the_next_daemon(tmp_path):
    ringer = WakeupPipe(bytes(tmp_path / "wake"), b"run-1.1")
    with KeeperFifo(tmp_path / "wake") as wake:
        assert ringer.wake()
        assert ringer.wake()
        assert wake.read_names() == {"run-1.1"}
        assert wake.read_names() == set()
    (tmp_path / "wake").unlink()
    with KeeperFifo(tmp_path / "wake") as wake:
        assert ringer.wake()
        assert wake.read_names() == {"run-1.1"}


def test_a_daemon_that_does_not_listen_is_rung_again_later(tmp_path):
    ringer = WakeupPipe(bytes(tmp_path / "wake"), b"n" * 200)
    with KeeperFifo(tmp_path / "wake") as wake:
        while ringer.wake():
            pass
        assert wake.read_names() == {"n" * 200}
        assert ringer.wake()
    os.close(ringer._file)

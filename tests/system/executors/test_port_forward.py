"""The way out of a sandbox, run without one: what a greedy or lazy caller can do to it."""

import contextlib
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rota.executors.shared import port_forward

PATIENCE = 20.0


@pytest.fixture
def outside(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(PATIENCE)
        listener.bind(str(tmp_path / "g"))
        listener.listen(200)
        yield listener


@pytest.fixture
def port(outside, tmp_path):
    """A port that leads to the socket; the process behind it is ended with the test."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    find = "import os; print(open(f'/proc/{os.getpid()}/stat').read().split()[4])"
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", port_forward.__file__, str(number), str(tmp_path / "g")),
            *("--", sys.executable, "-c", find),
        ],
        capture_output=True,
        start_new_session=True,
        check=True,
    )
    session = int(done.stdout)
    yield number, session
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def call(port):
    made = socket.create_connection(("127.0.0.1", port))
    made.settimeout(PATIENCE)
    return made


def test_bytes_go_both_ways_and_each_side_may_end_first(outside, port):
    with call(port[0]) as inside:
        peer, _ = outside.accept()
        with peer:
            inside.sendall(b"question")
            inside.shutdown(socket.SHUT_WR)
            assert peer.makefile("rb").read() == b"question"
            peer.sendall(b"answer")
            peer.shutdown(socket.SHUT_WR)
            assert inside.makefile("rb").read() == b"answer"


def test_a_large_body_arrives_whole(outside, port):
    body = os.urandom(1 << 20) * 8
    taken = []

    def take():
        peer, _ = outside.accept()
        with peer, peer.makefile("rb") as file:
            taken.append(file.read())

    taking = threading.Thread(target=take, name="rota-take")
    taking.start()
    with call(port[0]) as inside:
        inside.sendall(body)
    taking.join()
    assert taken == [body]


def test_whoever_does_not_read_makes_the_other_wait_and_fills_no_memory(outside, port):
    with call(port[0]) as inside:
        peer, _ = outside.accept()
        with peer:
            inside.setblocking(False)
            sent = 0
            with contextlib.suppress(BlockingIOError):
                while sent < 200_000_000:
                    sent += inside.send(b"x" * 65536)
            assert sent < 50_000_000
            with call(port[0]) as second:
                other, _ = outside.accept()
                with other:
                    second.sendall(b"still served")
                    assert other.recv(100) == b"still served"
    assert memory_of_session(port[1]) < 30 * 1024


def test_an_answer_reaches_who_is_cut_off_while_it_sends(outside, port):
    with call(port[0]) as inside:
        peer, _ = outside.accept()
        inside.sendall(b"x" * 10)
        assert peer.recv(10) == b"x" * 10
        inside.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                inside.send(b"x" * 65536)
        peer.sendall(b"enough")
        peer.close()
        inside.settimeout(PATIENCE)
        assert inside.recv(10) == b"enough"


def processes_of(session):
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[2] == str(session):
                yield folder


def told_of(process, word):
    found = re.search(rf"^{word}:\s+(\d+)", (process / "status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def memory_of_session(session):
    held = 0
    for process in processes_of(session):
        with contextlib.suppress(OSError):
            held += told_of(process, "VmRSS")
    return held


def test_many_who_say_nothing_wait_outside_and_the_rest_is_served(outside, port):
    with contextlib.ExitStack() as lazy:
        callers = [lazy.enter_context(call(port[0])) for _ in range(port_forward.CONNECTIONS + 10)]
        peers = [lazy.enter_context(outside.accept()[0]) for _ in range(port_forward.CONNECTIONS)]
        callers[0].sendall(b"first")
        assert b"first" in {peers[0].recv(10)}
        callers[1].close()
        peers[1].close()
        late = lazy.enter_context(outside.accept()[0])
        callers[port_forward.CONNECTIONS].sendall(b"late")
        assert late.recv(10) == b"late"


@pytest.mark.parametrize("more", [0, 1])
def test_callers_wait_while_the_system_has_no_room_for_them_and_nobody_is_busy(outside, port, more):
    """Room for no socket, or for one of the two that a caller needs."""
    (carrier,) = processes_of(port[1])
    number = int(carrier.name)
    before = resource.prlimit(number, resource.RLIMIT_NOFILE)
    with call(port[0]) as served, outside.accept()[0] as peer:
        most = len(list((carrier / "fd").iterdir())) + more
        resource.prlimit(number, resource.RLIMIT_NOFILE, (most, before[1]))
        with call(port[0]) as inside:
            inside.sendall(b"patient")
            rests = told_of(carrier, "voluntary_ctxt_switches") + 5
            until = time.monotonic() + PATIENCE
            while told_of(carrier, "voluntary_ctxt_switches") < rests:
                assert time.monotonic() < until
                time.sleep(0.01)
            served.sendall(b"meanwhile")
            assert peer.recv(20) == b"meanwhile"
            resource.prlimit(number, resource.RLIMIT_NOFILE, before)
            with outside.accept()[0] as other:
                assert other.recv(20) == b"patient"


def test_a_host_that_is_gone_ends_the_call(outside, port):
    outside.close()
    with call(port[0]) as inside, contextlib.suppress(ConnectionResetError):
        assert inside.recv(1) == b""


def test_it_loads_little_before_it_becomes_the_program():
    """Whatever it imports, every program with a way out waits for."""
    words = (
        sys.executable,
        "-I",
        "-S",
        "-X",
        "importtime",
        port_forward.__file__,
        "--",
        "/bin/true",
    )
    told = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    loaded = {line.rpartition("|")[2].strip() for line in told.splitlines()}
    assert "_socket" in loaded
    assert not loaded & {"socket", "selectors", "enum", "signal", "typing", "re"}

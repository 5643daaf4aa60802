"""Ways out of containers: what they lead to, who has them, and that they go with the program."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rota.executors.container.engine import LABEL
from rota.executors.container.executor import ContainerExecutor
from rota.keeper.build import Interpreter
from rota.model.programs import Program
from rota.ports.executor import EgressSocket
from tests.system.executors.engines import a_docker, a_podman
from tests.system.executors.images import PYTHON

PATIENCE = 30.0
KITS = {
    "podman": lambda: a_podman("overlay"),
    "mapped": lambda: a_podman("vfs"),
    "docker": a_docker,
}
CALL = """
import os, socket, sys
for port in map(int, sys.argv[1:]):
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as made:
            made.sendall(b"hello")
            print(port, made.recv(100).decode(), flush=True)
    except OSError as fault:
        print(port, type(fault).__name__)
print(os.path.exists("/run/rota"), socket.gethostname())
"""
WAIT = """
import signal
with open("alive", "w") as file:
    file.write("up\\n")
    file.flush()
    signal.pause()
"""


@pytest.fixture(scope="module", params=list(KITS))
def kit(request):
    with KITS[request.param]() as made:
        yield made


@pytest.fixture
def container(ground, kit):
    return ContainerExecutor(Interpreter.running(), ground.mounts, kit.engine)


class Answering:
    """A socket of the host that answers each caller with its own name."""

    def __init__(self, path, port, *, alone=False):
        path.parent.mkdir(exist_ok=True)
        self.way = EgressSocket(socket=str(path), port=port, alone=alone)
        self.name = path.name
        self.open()

    def open(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.way.socket)
        self.listener.listen()
        self.thread = threading.Thread(target=self.answer, name="rota-answer")
        self.thread.start()

    def answer(self):
        with contextlib.suppress(OSError):
            while True:
                peer, _ = self.listener.accept()
                with peer:
                    if not (said := peer.recv(100)):
                        return
                    peer.sendall(said + b" from " + self.name.encode())

    def close(self):
        with socket.socket(socket.AF_UNIX) as last:  # a caller who says nothing ends it
            last.connect(self.way.socket)
        self.thread.join()
        self.listener.close()
        Path(self.way.socket).unlink()


@pytest.fixture
def answering(ground):
    with contextlib.ExitStack() as stack:

        def made(name, port, **changes):
            return stack.enter_context(
                contextlib.closing(Answering(ground.root / name, port, **changes))
            )

        yield made


def test_both_ways_lead_to_sockets_of_the_host_and_the_program_sees_neither(
    ground, kit, container, answering
):
    egress, desk = answering("g", 8123), answering("d/desk", 7684, alone=True)
    ways = {"egress": egress.way, "desk": desk.way}
    done = ground.run(container, PYTHON, "-c", CALL, "8123", "7684", image=kit.image, **ways)
    lines = done.stdout.decode().splitlines()
    assert lines[:2] == ["8123 hello from g", "7684 hello from desk"], done.stderr
    assert lines[2] == "False rota"
    assert kit.ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}") == ""


def test_another_container_does_not_have_them(ground, kit, container, answering):
    desk = answering("d/desk", 7684, alone=True)
    with running(ground, kit, container, desk=desk.way):
        own = {"image": kit.image, "state": another_state(ground, "one")}
        done = ground.run(container, PYTHON, "-c", CALL, "7684", **own)
        assert done.stdout.startswith(b"7684 ConnectionRefusedError\n"), done
        other = answering("e/other", 7684, alone=True)
        own = {"image": kit.image, "state": another_state(ground, "two"), "desk": other.way}
        done = ground.run(container, PYTHON, "-c", CALL, "7684", **own)
        assert done.stdout.startswith(b"7684 hello from other\n"), done


def test_a_socket_that_is_made_anew_is_found(ground, kit, container, answering):
    desk = answering("d/desk", 7684, alone=True)
    text = f"import sys; sys.argv[1:] = ['7684']; code = {CALL!r}; exec(code)\n"
    text += "open('go').read(); exec(code)"
    os.mkfifo(ground.folder / "go")
    child, spec = begun(ground, kit, container, text, desk=desk.way)
    try:
        assert child.stdout.readline() == b"7684 hello from desk\n"
        desk.close()
        desk.open()
        (ground.folder / "go").write_text("")
        assert child.communicate(timeout=PATIENCE)[0].splitlines()[1] == b"7684 hello from desk"
    finally:
        child.kill()
        child.communicate()
        container.sweep(spec)


def test_with_its_client_killed_the_sidecar_ends_by_itself(ground, kit, container, answering):
    desk = answering("d/desk", 7684, alone=True)
    with running(ground, kit, container, desk=desk.way) as (child, spec):
        sidecar = kit.ask("ps", "--quiet", "--filter", f"name=rota-{spec.name}-sidecar")
        assert sidecar
        inside = int(kit.ask("inspect", "--format", "{{.State.Pid}}", sidecar))
        ended = os.pidfd_open(inside)
        child.kill()
        child.wait()
        assert waited(ended), "nobody holds it any more"


def test_a_sidecar_that_cannot_be_had_stops_the_program(ground, kit, answering):
    broken = ground.root / kit.engine.kind
    broken.write_text(
        "#!/bin/sh\ncase \"$*\" in *' --detach '*) echo no room for it >&2; exit 125;; esac\n"
        f'exec {kit.engine.program} "$@"\n'
    )
    broken.chmod(0o755)
    engine = replace(kit.engine, program=str(broken))
    executor = ContainerExecutor(Interpreter.running(), ground.mounts, engine)
    desk = answering("d/desk", 7684, alone=True)
    argv = ("/bin/sh", "-c", "echo x >ran")
    done = ground.run(executor, *argv, image=kit.image, desk=desk.way)
    assert (done.returncode, done.stderr.decode()) == (
        125,
        "cannot start container: no room for it\n",
    )
    assert not (ground.folder / "ran").exists()


def test_a_sidecar_whose_image_somebody_else_just_brought_is_had(ground, kit, answering):
    late = ground.root / kit.engine.kind
    late.write_text(
        f"#!/bin/sh\ncase \"$*\" in *' --detach '*) mkdir {ground.root}/once 2>/dev/null &&"
        f' {{ echo no such image >&2; exit 125; }};; esac\nexec {kit.engine.program} "$@"\n'
    )
    late.chmod(0o755)
    engine = replace(kit.engine, program=str(late))
    executor = ContainerExecutor(Interpreter.running(), ground.mounts, engine)
    executor.check()
    desk = answering("d/desk", 7684, alone=True)
    done = ground.run(executor, PYTHON, "-c", CALL, "7684", image=kit.image, desk=desk.way)
    assert done.stdout.startswith(b"7684 hello from desk\n"), done
    assert (ground.root / "once").exists()


def test_an_engine_that_cannot_have_lobbies_is_told_of(ground, kit):
    broken = ground.root / kit.engine.kind
    broken.write_text(
        "#!/bin/sh\ncase \"$*\" in *' run '*|run*) echo not here >&2; exit 125;; esac\n"
        f'exec {kit.engine.program} "$@"\n'
    )
    broken.chmod(0o755)
    engine = replace(kit.engine, program=str(broken))
    missing = ContainerExecutor(Interpreter.running(), ground.mounts, engine).check()
    assert (missing[0].what, missing[0].where) == ("sidecars of containers", "not here")
    assert missing[0].needed


def another_state(ground, name):
    (ground.root / name).mkdir(mode=0o700)
    return str(ground.root / name)


def begun(ground, kit, container, text, **changes):
    command = Program(argv=[PYTHON, "-c", text], cwd=str(ground.folder))
    spec = container.wrap(command, ground.room(image=kit.image, **changes))
    child = subprocess.Popen(
        spec.command.argv,
        env=dict(spec.command.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    return child, spec


@contextlib.contextmanager
def running(ground, kit, container, **changes):
    os.mkfifo(ground.folder / "alive")
    child, spec = begun(ground, kit, container, WAIT, **changes)
    try:
        with (ground.folder / "alive").open() as alive:
            assert alive.readline() == "up\n"
            yield child, spec
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
        container.sweep(spec)


def waited(handle):
    import select

    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)

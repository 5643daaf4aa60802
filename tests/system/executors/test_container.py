"""Containers of the real podman, with an image made of this machine's own Python."""

import os
import signal
import socket
import subprocess
import threading
from dataclasses import replace

import pytest

from rota.errors import Invalid, NotPermitted, Unavailable
from rota.executors.container.engine import ContainerEngine
from rota.executors.container.executor import ContainerExecutor
from rota.executors.shared.mounts import AllowedMount, MountAllowlist
from rota.keeper.build import Interpreter
from rota.model.programs import MIB, Program, ResourceLimits
from rota.ports.executor import EgressSocket
from rota.testing.executor_contract import ExecutorContract
from tests.system.executors.engines import a_podman
from tests.system.executors.images import PYTHON

PATIENCE = 120


@pytest.fixture(scope="module")
def podman():
    with a_podman("overlay") as made:
        yield made


@pytest.fixture
def container(ground, podman):
    return ContainerExecutor(Interpreter.running(), ground.mounts, podman.engine)


@pytest.fixture
def run(ground, podman, container):
    def run(*argv, **changes):
        (ground.state / "container.id").unlink(missing_ok=True)  # every attempt has its own
        return ground.run(container, *argv, **({"image": podman.image} | changes))

    return run


def test_the_engine_answers(container):
    assert [each for each in container.check() if each.needed] == []


def test_words_environment_input_and_exit_code_come_through(run, ground, podman):
    text = "import os, sys; print(sys.argv[1:], os.environ['A'], input(), os.getcwd()); sys.exit(7)"
    done = run(PYTHON, "-c", text, "a b", "$HOME", env={"A": "x y"}, stdin=b"hi\n")
    assert done.stdout.decode() == f"['a b', '$HOME'] x y hi {ground.folder}\n", done.stderr
    assert done.returncode == 7
    assert podman.ask("ps", "--all", "--quiet") == ""


def test_the_environment_of_the_image_holds(run, podman):
    """A path of the host names nothing there."""
    own = podman.changed("ENV PATH=/opt/own/bin:/bin", "ENV LANG=C")
    text = 'echo "$PATH $LANG"'
    assert run("sh", "-c", text, image=own).stdout == b"/opt/own/bin:/bin C\n"
    named = run("/bin/sh", "-c", text, image=own, env={"PATH": "/named"})
    assert named.stdout == b"/named C\n"


def test_no_value_of_the_environment_stands_on_a_command_line(container, ground, podman):
    command = Program(argv=["x"], env={"KEY": "sesame"})
    spec = container.wrap(command, ground.room(image=podman.image))
    assert "sesame" not in " ".join(spec.command.argv)


def test_the_working_folder_is_written_and_what_runs_later_is_not(run, ground):
    done = run("/bin/sh", "-c", "echo hi >file; echo x >.envrc; echo x >.git/config; cat file")
    assert done.stdout == b"hi\n"
    assert (ground.folder / "file").read_text() == "hi\n"
    assert not (ground.folder / ".git" / "config").exists()
    assert (ground.folder / ".envrc").is_dir()


def test_a_member_reads_where_the_list_says_so(ground, podman):
    listed = MountAllowlist([
        AllowedMount(folder=str(ground.spaces), members_write=False),
        AllowedMount(folder=str(ground.home)),
    ])  # fmt: skip
    executor = ContainerExecutor(Interpreter.running(), listed, podman.engine)
    done = ground.run(executor, "/bin/sh", "-c", "echo hi >file", image=podman.image)
    assert b"Read-only file system" in done.stderr
    assert list(ground.folder.iterdir()) == []


def test_a_program_that_takes_too_much_memory_ends_alone(run):
    text = "x = [b'x' * 1000_000 for _ in range(200)]; print('all of it')"
    done = run(PYTHON, "-c", text, bounds=ResourceLimits(memory_bytes=64 * MIB))
    assert done.returncode == 137
    assert done.stdout == b""


def test_no_attack_works(container, attacked, podman):
    assert attacked(container, python=PYTHON, image=podman.image) == {}


def test_no_attack_works_with_users_of_its_own(ground, attacked):
    with a_podman("vfs") as made:
        executor = ContainerExecutor(Interpreter.running(), ground.mounts, made.engine)
        assert attacked(executor, python=PYTHON, image=made.image) == {}


def test_the_client_passes_a_polite_signal_on(container, ground, podman):
    text = "import signal, sys; signal.signal(15, lambda *_: sys.exit(9)); print('up', flush=True); signal.pause()"
    spec = container.wrap(Program(argv=[PYTHON, "-c", text]), ground.room(image=podman.image))
    told = spec.command
    child = subprocess.Popen(
        told.argv,
        env=dict(told.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE) == 9
    finally:
        child.kill()
        child.communicate()
        container.sweep(spec)


def test_what_is_left_of_a_killed_client_is_swept_by_its_label(container, ground, podman):
    os.mkfifo(ground.folder / "alive")
    text = "import signal; f = open('alive', 'w'); f.write('up\\n'); f.flush(); signal.pause()"
    command = Program(argv=[PYTHON, "-c", text], cwd=str(ground.folder))
    spec = container.wrap(command, ground.room(image=podman.image))
    told = spec.command
    child = subprocess.Popen(
        told.argv, env=dict(told.env), stdin=subprocess.DEVNULL, start_new_session=True
    )
    with (ground.folder / "alive").open() as alive:
        assert alive.readline() == "up\n"
        child.kill()
        child.wait()
        container.sweep(spec)
        assert alive.read() == ""
    assert podman.ask("ps", "--all", "--quiet") == ""


def test_a_folder_swapped_for_a_link_when_the_engine_looks_is_noticed(ground, podman):
    """The engine is given paths: what it mounted is compared with what was looked at."""
    inner, secret = ground.folder / "docs", ground.root / "secret"
    for folder, kind in ((inner, "allowed"), (secret, "forbidden")):
        folder.mkdir()
        (folder / "kind").write_text(kind)
    swapping = ground.root / "podman"
    swapping.write_text(
        f"#!/bin/sh\ncase \"$*\" in *' create '*) mv {inner} {inner}.aside; ln -s {secret} {inner};; esac\n"
        f'exec {podman.engine.program} "$@"\n'
    )
    swapping.chmod(0o755)
    engine = replace(podman.engine, program=str(swapping))
    executor = ContainerExecutor(Interpreter.running(), ground.mounts, engine)
    done = ground.run(
        executor,
        "/bin/cat",
        f"{inner}/kind",
        readable=[str(inner)],
        writable=False,
        image=podman.image,
    )
    assert done.stdout == b""
    assert (done.returncode, b"was replaced" in done.stderr) == (126, True)
    assert podman.ask("ps", "--all", "--quiet") == ""


def test_the_egress_socket_leads_to_the_hosts_socket(ground, run):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(ground.root / "g"))
    listener.listen()

    def answer():
        peer, _ = listener.accept()
        with peer:
            peer.sendall(peer.recv(100).upper())

    answering = threading.Thread(target=answer, name="rota-answer")
    answering.start()
    text = "import socket; c = socket.create_connection(('127.0.0.1', 8123)); c.sendall(b'hello'); print(c.recv(9))"
    try:
        done = run(
            PYTHON, "-c", text, egress=EgressSocket(socket=str(ground.root / "g"), port=8123)
        )
        assert done.stdout == b"b'HELLO'\n", done.stderr
    finally:
        with socket.socket(socket.AF_UNIX) as last:  # lets the answering end, called or not
            last.connect_ex(str(ground.root / "g"))
        answering.join()
        listener.close()


def test_an_engine_that_wavers_may_be_asked_again_and_a_missing_image_not(ground, podman):
    broken = ground.root / "podman"
    broken.write_text(
        "#!/bin/sh\ncase \"$*\" in *' create '*) echo cannot connect to it >&2; exit 125;; esac\n"
        f'exec {podman.engine.program} "$@"\n'
    )
    broken.chmod(0o755)
    engine = replace(podman.engine, program=str(broken))
    wavering = ContainerExecutor(Interpreter.running(), ground.mounts, engine)
    done = ground.run(wavering, "/bin/true", image=podman.image)
    assert (done.returncode, b"cannot connect" in done.stderr) == (125, True)
    whole = ContainerExecutor(Interpreter.running(), ground.mounts, podman.engine)
    done = ground.run(whole, "/bin/true", image=f"localhost/none@sha256:{'0' * 64}")
    assert (done.returncode, b"image not known" in done.stderr) == (126, True), done.stderr


def test_a_program_that_the_image_lacks_never_began(run, ground, podman):
    (ground.folder / "tool").write_text("#!/bin/sh\necho here\n")
    (ground.folder / "tool").chmod(0o755)
    for missing in ("nosuchprog", "/opt/nosuchprog", "./nosuchprog"):
        done = run(missing)
        told = f"cannot start container: {missing} is not in the image {podman.image}: "
        assert done.stderr.decode() == f"{told}name a program of the image\n"
        assert (done.returncode, done.stdout) == (126, b"")
    assert podman.ask("ps", "--all", "--quiet") == ""
    for there in ("python3", "./tool", f"{ground.folder}/tool"):
        assert run(there, "-c", "1").returncode == 0


@pytest.mark.parametrize(
    "image", [None, "debian", "debian:12", "localhost/rota-test:1", "x@sha256:12", "--privileged"]
)
def test_an_image_that_can_change_is_refused(container, ground, image):
    with pytest.raises(Invalid, match="by digest"):
        container.wrap(Program(argv=["x"]), ground.room(image=image))


def test_a_link_to_elsewhere_and_an_unlisted_folder_are_refused(run, ground, container, podman):
    (ground.spaces / "link").symlink_to("/etc")
    done = run("/bin/true", readable=[str(ground.spaces / "link")])
    assert (done.returncode, b"symbolic link" in done.stderr) == (126, True)
    with pytest.raises(NotPermitted):
        container.wrap(Program(argv=["x"]), ground.room(image=podman.image, readable=["/run"]))


def test_an_engine_that_is_not_there_is_refused(ground):
    engine = ContainerEngine(program="/nonexistent/podman", kind="podman")
    executor = ContainerExecutor(Interpreter.running(), ground.mounts, engine)
    with pytest.raises(Unavailable, match="install docker or podman"):
        executor.wrap(Program(argv=["x"]), ground.room())


def test_the_engine_keeps_no_copy_of_what_a_program_says(container, ground, podman):
    """It would grow without end, unredacted, where nobody looks."""
    text = "print('x' * 3_000_000, flush=True); input()"
    spec = container.wrap(Program(argv=[PYTHON, "-c", text]), ground.room(image=podman.image))
    told = spec.command
    child = subprocess.Popen(
        told.argv, env=dict(told.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert len(child.stdout.readline()) == 3_000_001
        large = [file for file in podman.root.rglob("*.log") if file.stat().st_size > 1_000_000]
        assert large == []
        child.communicate(b"\n", timeout=PATIENCE)
        assert child.returncode == 0
    finally:
        child.kill()
        child.communicate()
        container.sweep(spec)


@pytest.mark.programs
class TestContract(ExecutorContract):
    timeout_seconds = 10.0

    @pytest.fixture
    def executor(self, attempt_root, podman):
        listed = MountAllowlist([AllowedMount(folder=str(attempt_root))])
        return ContainerExecutor(Interpreter.running(), listed, podman.engine)

    @pytest.fixture
    def image(self, podman):
        return podman.image

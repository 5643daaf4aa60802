"""Containers of a real docker, where one answers."""

import os
import subprocess

import pytest

from rota.executors.container.engine import LABEL
from rota.executors.container.executor import ContainerExecutor
from rota.executors.shared.exec_program import CANNOT_START
from rota.executors.shared.mounts import AllowedMount, MountAllowlist
from rota.keeper.build import Interpreter
from rota.model.programs import MIB, Program, ResourceLimits
from rota.testing.executor_contract import ExecutorContract
from tests.system.executors.engines import a_docker
from tests.system.executors.images import PYTHON


@pytest.fixture(scope="module")
def kit():
    with a_docker() as made:
        yield made


@pytest.fixture
def image(kit):
    return kit.image


@pytest.fixture
def docker(ground, kit):
    return ContainerExecutor(Interpreter.running(), ground.mounts, kit.engine)


def test_a_program_runs_and_its_end_comes_through(docker, ground, image):
    text = "echo hi >file; echo x >.envrc; cat; echo $A; exit 5"
    given = {
        "stdin": b"in ",
        "env": {"A": "x"},
        "bounds": ResourceLimits(memory_bytes=64 * MIB, cpus=1),
    }
    done = ground.run(docker, "/bin/sh", "-c", text, image=image, **given)
    assert (done.returncode, done.stdout) == (5, b"in x\n"), done.stderr
    assert (ground.folder / "file").read_text() == "hi\n"
    assert (ground.folder / ".envrc").is_dir()


def test_no_attack_works(docker, attacked, image):
    assert attacked(docker, python=PYTHON, image=image) == {}


def test_what_is_left_of_a_killed_client_is_swept_by_its_label(docker, ground, image, kit):
    os.mkfifo(ground.folder / "alive")
    text = "import signal; f = open('alive', 'w'); f.write('up\\n'); f.flush(); signal.pause()"
    command = Program(argv=[PYTHON, "-c", text], cwd=str(ground.folder))
    spec = docker.wrap(command, ground.room(image=image))
    told = spec.command
    child = subprocess.Popen(told.argv, env=dict(told.env), stdin=subprocess.DEVNULL)
    with (ground.folder / "alive").open() as alive:
        assert alive.readline() == "up\n"
        child.kill()
        child.wait()
        docker.sweep(spec)
        assert alive.read() == ""
    assert kit.ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}={spec.name}") == ""


def test_the_engine_keeps_no_copy_of_what_a_program_says(docker, ground, image, kit):
    """It would grow without end, unredacted, where nobody looks."""
    text = "print('x' * 3_000_000, flush=True); input()"
    spec = docker.wrap(Program(argv=[PYTHON, "-c", text]), ground.room(image=image))
    told = spec.command
    child = subprocess.Popen(
        told.argv, env=dict(told.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert len(child.stdout.readline()) == 3_000_001
        large = [file for file in kit.root.rglob("*.log") if file.stat().st_size > 1_000_000]
        assert large == []
        child.communicate(b"\n", timeout=120)
        assert child.returncode == 0
    finally:
        child.kill()
        child.communicate()
        docker.sweep(spec)


def test_a_missing_image_is_not_the_end_of_a_program(docker, ground):
    done = ground.run(docker, "/bin/true", image=f"localhost/none@sha256:{'0' * 64}")
    assert (done.returncode, done.stderr.startswith(CANNOT_START.encode())) == (126, True), done
    assert b"No such image" in done.stderr


def test_the_environment_of_the_image_holds(docker, ground, kit):
    own = kit.changed("ENV PATH=/opt/own/bin:/bin", "ENV LANG=C")
    done = ground.run(docker, "sh", "-c", 'echo "$PATH $LANG"', image=own)
    assert done.stdout == b"/opt/own/bin:/bin C\n", done.stderr


@pytest.mark.programs
class TestContract(ExecutorContract):
    timeout_seconds = 10.0

    @pytest.fixture
    def executor(self, attempt_root, kit):
        listed = MountAllowlist([AllowedMount(folder=str(attempt_root))])
        return ContainerExecutor(Interpreter.running(), listed, kit.engine)

    @pytest.fixture
    def image(self, kit):
        return kit.image

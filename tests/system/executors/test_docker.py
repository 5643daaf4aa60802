"""Containers of a real docker, where one answers."""

import os
import shutil
import subprocess

import pytest
from tests.system.executors.images import PYTHON, an_image

from rota.executors.container.executor import ContainerExecutor
from rota.executors.container.words import Engine
from rota.executors.kit.executor import SEARCH_PATH, Interpreter
from rota.executors.kit.mounts import MountList
from rota.model.programs import MIB, Bounds, Command

ADDRESS = os.environ.get("ROTA_TEST_DOCKER_HOST", "unix:///var/run/docker.sock")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    program = shutil.which("docker", path=SEARCH_PATH) or pytest.skip("docker is not installed")
    env = {
        "PATH": SEARCH_PATH,
        "HOME": str(tmp_path_factory.mktemp("docker")),
        "DOCKER_HOST": ADDRESS,
    }
    made = Engine(program=program, kind="docker", env=env, local_images=True)
    missing = ContainerExecutor(Interpreter.running(), MountList(), made).check()
    for each in missing:
        if each.needed:
            pytest.skip(f"no engine of docker answers at {ADDRESS}: {each}")
    return made


def ask(engine, *words, given=None):
    done = subprocess.run(
        engine.words(*words), stdin=given, capture_output=True, env=dict(engine.env), check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


@pytest.fixture(scope="module")
def image(engine):
    with an_image() as content:
        made = ask(engine, "import", "-", "rota-test:1", given=content)
    yield made
    ask(engine, "rmi", "--force", made)


@pytest.fixture
def docker(ground, engine):
    return ContainerExecutor(Interpreter.running(), ground.mounts, engine)


def test_a_program_runs_and_its_end_comes_through(docker, ground, image):
    text = "echo hi >file; echo x >.envrc; cat; echo $A; exit 5"
    given = {"stdin": b"in ", "env": {"A": "x"}, "bounds": Bounds(memory_bytes=64 * MIB, cpus=1)}
    done = ground.run(docker, "/bin/sh", "-c", text, image=image, **given)
    assert (done.returncode, done.stdout) == (5, b"in x\n"), done.stderr
    assert (ground.folder / "file").read_text() == "hi\n"
    assert (ground.folder / ".envrc").is_dir()


def test_no_attack_works(docker, attacked, image):
    assert attacked(docker, python=PYTHON, image=image) == {}


def test_what_is_left_of_a_killed_client_is_swept_by_its_label(docker, ground, image, engine):
    os.mkfifo(ground.folder / "alive")
    text = "import signal; f = open('alive', 'w'); f.write('up\\n'); f.flush(); signal.pause()"
    command = Command(argv=[PYTHON, "-c", text], cwd=str(ground.folder))
    spec = docker.wrap(command, ground.room(image=image))
    told = spec.command
    child = subprocess.Popen(told.argv, env=dict(told.env), stdin=subprocess.DEVNULL)
    with (ground.folder / "alive").open() as alive:
        assert alive.readline() == "up\n"
        child.kill()
        child.wait()
        docker.sweep(spec)
        assert alive.read() == ""
    assert ask(engine, "ps", "--all", "--quiet") == ""

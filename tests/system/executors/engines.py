"""Real engines with a storage of their own, and one image in it: podman, and docker's."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from rota.executors.container.engine import ContainerEngine, UserMapping
from rota.ports.executor import SEARCH_PATH
from tests.system.executors.images import PYTHON, an_image

PATIENCE = 120
STARTING_SECONDS = 60.0
INITS = ("/usr/libexec/podman", "/usr/local/libexec/podman", "/usr/lib/podman", "/usr/bin")
SETTINGS = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
USUAL_DOCKER = "unix:///var/run/docker.sock"


class Kit:
    """What every engine of the tests can do."""

    engine: ContainerEngine
    image: str
    root: Path

    def ask(self, *words, given=None):
        done = subprocess.run(
            self.engine.words(*words),
            stdin=given or subprocess.DEVNULL,
            capture_output=True,
            env=dict(self.engine.env),
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def make_image(self, *programs):
        if not Path(PYTHON).exists():
            pytest.skip(f"{PYTHON} is needed to make an image of")
        with an_image(*programs) as content:
            return self.ask("import", "-", "localhost/rota-test:1", given=content).split()[-1]

    def changed(self, *changes):
        """Return the image of the tests with further words of its own."""
        made = self.ask("create", self.image, "/bin/true")
        words = [word for change in changes for word in ("--change", change)]
        own = self.ask("commit", *words, made).split()[-1]
        self.ask("rm", made)
        return f"sha256:{own.removeprefix('sha256:')}"

    def _quietly(self, *words):
        subprocess.run(
            self.engine.words(*words), capture_output=True, env=dict(self.engine.env), check=False
        )

    def _unmount(self):
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for path in sorted((m for m in mounts if m.startswith(f"{self.root}/")), reverse=True):
            subprocess.run(["umount", path], check=True)


class Podman(Kit):
    """An engine of podman's."""

    def __init__(self, root: Path, driver: str, programs=()) -> None:
        program = shutil.which("podman", path=SEARCH_PATH) or pytest.skip("podman is not installed")
        if not any(Path(folder, "catatonit").exists() for folder in INITS):
            pytest.skip("podman has no init for containers: install the package catatonit")
        self.root = root
        runtime = 'runtime = "runc"\n' if shutil.which("runc", path=SEARCH_PATH) else ""
        (root / "containers.conf").write_text(SETTINGS + runtime)
        options = ["--root", f"{root}/root", "--runroot", f"{root}/run", "--tmpdir", f"{root}/tmp"]
        self.engine = ContainerEngine(
            program=program,
            kind="podman",
            options=[*options, "--storage-driver", driver],
            env={
                "PATH": SEARCH_PATH,
                "HOME": str(root),
                "CONTAINERS_CONF": str(root / "containers.conf"),
            },
            users=UserMapping.MAPPED if driver == "vfs" else UserMapping.OWN,
            local_images=True,
        )
        self.image = self.make_image(*programs)

    def close(self):
        self._quietly("rm", "--all", "--force")
        self._quietly("system", "reset", "--force")
        self._unmount()


class Docker(Kit):
    """Docker's engine: one that answers, or one that is started from a folder of programs."""

    def __init__(self, root: Path, programs=()) -> None:
        self.root = root
        self.daemon = None
        path = ":".join([*_folders(), SEARCH_PATH])
        program = shutil.which("docker", path=path) or pytest.skip("docker is not installed")
        address = os.environ.get("ROTA_TEST_DOCKER_HOST")
        daemon = shutil.which("dockerd", path=":".join(_folders())) if os.geteuid() == 0 else None
        if address is None and daemon:
            address = f"unix://{root}/docker.sock"
            self.daemon = self._start(daemon, address, path)
        self.address = address or os.environ.get("DOCKER_HOST", USUAL_DOCKER)
        env = {"PATH": SEARCH_PATH, "HOME": str(root), "DOCKER_HOST": self.address}
        self.engine = ContainerEngine(program=program, kind="docker", env=env, local_images=True)
        try:
            self._until_it_answers()
            self.image = self.make_image(*programs)
        except BaseException:
            self.close()
            raise

    def _start(self, daemon, address, path):
        words = ["--data-root", f"{self.root}/data", "--exec-root", f"{self.root}/exec"]
        words += ["--pidfile", f"{self.root}/pid", "-H", address, "--bridge=none"]
        words += ["--iptables=false", "--ip6tables=false", "--default-ulimit", "nofile=1024:1024"]
        words += ["--exec-opt", "native.cgroupdriver=cgroupfs"]
        with (self.root / "log").open("wb") as log:
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", daemon, *words],  # it never outlives the tests
                env={"PATH": path},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _until_it_answers(self):
        until = time.monotonic() + (STARTING_SECONDS if self.daemon else 0.0)
        while True:
            done = subprocess.run(
                self.engine.words("ps", "--quiet"),
                capture_output=True,
                env=dict(self.engine.env),
                check=False,
            )
            if done.returncode == 0:
                return
            if self.daemon and self.daemon.poll() is not None:
                last = (self.root / "log").read_text().strip().splitlines()[-1:]
                pytest.skip(f"dockerd in {UNPACKED.name} ended: {last}")
            if time.monotonic() > until:
                pytest.skip(f"no engine of docker answers at {self.address}: {WAYS}")
            time.sleep(0.1)

    def close(self):
        if self.daemon is None:
            self._quietly("rmi", "--force", "localhost/rota-test:1")
            return
        self.daemon.terminate()
        try:
            self.daemon.wait(STARTING_SECONDS)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.wait()
        self._unmount()


UNPACKED = Path(__file__).parents[3] / ".docker"
WAYS = "name one in ROTA_TEST_DOCKER_HOST, or make tools"


def _folders():
    """Return where programs of docker's lie in the folder that packages were unpacked in."""
    return [f"{UNPACKED}{below}" for below in ("/usr/bin", "/usr/sbin")]


@contextlib.contextmanager
def a_podman(driver, *programs):
    if os.geteuid() != 0:
        pytest.skip("a storage of its own in a test's folder needs root")
    with tempfile.TemporaryDirectory(prefix="rota-") as short:  # podman takes 50 characters
        made = Podman(Path(short), driver, programs)
        try:
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def a_docker(*programs):
    with tempfile.TemporaryDirectory(prefix="rota-") as short:
        made = Docker(Path(short), programs)
        try:
            yield made
        finally:
            made.close()

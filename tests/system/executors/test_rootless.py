"""Containers of a user without root, who has a podman of their own."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from rota.ports.executor import SEARCH_PATH
from tests.system.executors.engines import SETTINGS
from tests.system.executors.images import PYTHON

ROOT = Path(__file__).parents[3]
PATIENCE = 100


@pytest.fixture
def user():
    """Somebody of this machine who may have users of their own in a namespace."""
    if os.geteuid() != 0 or not Path("/etc/subuid").exists():
        pytest.skip("only root can become a user who has subordinate ids")
    named = [line.partition(":")[0] for line in Path("/etc/subuid").read_text().splitlines()]
    for each in pwd.getpwall():
        if each.pw_uid and each.pw_name in named:
            return each
    return pytest.skip("no user has subordinate ids: `useradd` gives some")


@pytest.fixture
def as_user(user):
    with tempfile.TemporaryDirectory(prefix="rota-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "run").mkdir(mode=0o700)
        runtime = 'runtime = "runc"\n' if shutil.which("runc", path=SEARCH_PATH) else ""
        (home / "containers.conf").write_text(SETTINGS + runtime)
        for path in (home, home / "run"):
            os.chown(path, user.pw_uid, user.pw_gid)
        env = {
            "PATH": SEARCH_PATH,
            "HOME": folder,
            "XDG_RUNTIME_DIR": f"{folder}/run",
            "CONTAINERS_CONF": f"{folder}/containers.conf",
        }

        def run(*words):
            ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
            return subprocess.run(
                ["setpriv", *ids, "--", *words],
                cwd="/",
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )

        yield run
        run("podman", "--storage-driver", "vfs", "system", "reset", "--force")
        for pausing in (home / "run").rglob("pause.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pausing.read_text()), signal.SIGKILL)


def test_a_program_runs_is_told_its_environment_and_reaches_the_desk(as_user, user):
    podman = shutil.which("podman", path=SEARCH_PATH) or pytest.skip("podman is not installed")
    if not Path(PYTHON).exists() or not shutil.which("newuidmap", path=SEARCH_PATH):
        pytest.skip(f"{PYTHON} and newuidmap (package uidmap) are needed")
    if as_user("cat", str(ROOT / "src" / "rota" / "errors.py")).returncode:
        pytest.skip(f"{user.pw_name} cannot read {ROOT}")
    script = str(Path(__file__).with_name("rootless.py"))
    done = as_user(PYTHON, script, str(ROOT), podman)
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    assert (told["missing"], told["code"], told["error"]) == ([], 0, "")
    assert told["said"] == ["hello", "said", str(user.pw_uid)]
    assert told["left"] == [user.pw_uid]

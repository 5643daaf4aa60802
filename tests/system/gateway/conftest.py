"""A daemon whose agents ask a provider on loopback through the gateway."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from rota.app.settings import load_settings
from rota.app.sites import LocalSiteChecker
from rota.keeper.protocol import from_lines
from tests.system.attempt.conftest import Kept
from tests.system.conftest import House
from tests.system.gateway.test_process import Home
from tests.system.gateway.upstream import Upstream

REAL = "sk-ant-canary-3e9b7d52c1"
PATIENCE = 20.0
ASKING = """
import json, os, sys, urllib.request
address, key = os.environ["ANTHROPIC_BASE_URL"], os.environ["ANTHROPIC_API_KEY"]
wanted = urllib.request.Request(
    address + "/v1/messages", b"{}", {"X-Api-Key": key, "Authorization": "Bearer of-the-agent"}
)
with urllib.request.urlopen(wanted, timeout=60) as answer:
    for line in answer:
        if line.strip():
            print("heard", line.decode().strip(), flush=True)
"""


class Gated(Kept):
    """A home with a gateway."""

    def __init__(self, house, provider):
        super().__init__(house, None)
        self.provider = provider
        self.gateway = Home(house.home, provider)
        (self.work / "asking.py").write_text(ASKING)

    def plan(self, text=""):
        told = f'[upstreams.anthropic]\nurl = "{self.provider.url}"\nlocal = true\n{text}'
        path = self.house.home / "gateway.toml"
        path.write_text(told)
        path.chmod(0o600)

    def set_secret(self, name, value):
        command = self.house._command(["secret", "set", name])
        return subprocess.run(
            command, cwd=self.house.folder, env=self.house._environment(self.extra), input=value,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip

    def agent(self, name, *words, **more):
        """Create a task whose agent is a plain program."""
        said = {"agent": "command", "instructions": "Ask.", "executor": "process", **more}
        return self.task(name, "python3", *words, self.token, **said)

    def task(self, name, *command, **more):
        status, body = self.call("POST", "/v1/tasks", {"name": name, "command": command, **more})
        assert status == 201, body

    def begin(self, name):
        status, body = self.call("POST", f"/v1/tasks/{name}/run-now", {})
        assert status in {200, 201}, body
        return json.loads(body)["run"]

    def run(self, number):
        return json.loads(self.call("GET", f"/v1/runs/{number}")[1])

    def done(self, name):
        return self.until(self.begin(name), lambda run: run["finished_at"] is not None)

    def keep(self, name, value):
        status, body = self.call("PUT", f"/v1/secrets/{name}", {"value": value})
        assert status == 200, body

    def end(self):
        """End the daemon, what it kept, and the gateway."""
        self.house.close()
        for file in (self.house.home / "keepers" / "attempts").glob("*/keeper"):
            with contextlib.suppress(OSError, KeyError, ValueError):
                if not (file.parent / "exit").exists():
                    os.kill(int(from_lines(file.read_bytes())[0]["pid"]), signal.SIGTERM)
        pid = self.gateway.pid()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        assert self.gateway.until_gone()
        until = time.monotonic() + PATIENCE
        while self.living() and time.monotonic() < until:
            time.sleep(0.05)


@pytest.fixture
def gated(bytecode):
    with (
        Upstream() as provider,
        tempfile.TemporaryDirectory(prefix="rota-", ignore_cleanup_errors=True) as folder,
    ):
        made = Gated(House(Path(folder), bytecode), provider)
        try:
            yield made
        finally:
            made.end()


@pytest.fixture(scope="session")
def sandbox():
    tried = LocalSiteChecker(load_settings("/nonexistent")).try_out("sandbox")
    if not tried.available:
        pytest.skip(f"no sandbox here: {tried.missing[0]}")

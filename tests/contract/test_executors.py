"""Every executor keeps the contract of its port."""

from __future__ import annotations

import pytest

from rota.executors.process.executor import ProcessExecutor
from rota.executors.sandbox.executor import SandboxExecutor
from rota.executors.shared.mounts import AllowedMount, MountAllowlist
from rota.executors.shared.resource_limits import find_hierarchy
from rota.executors.tmux.executor import TmuxExecutor
from rota.keeper.build import Interpreter, can_use_namespaces
from rota.testing.executor_contract import ExecutorContract


@pytest.fixture
def process():
    python = Interpreter.running()
    certain = can_use_namespaces(python)
    return ProcessExecutor(python, hierarchy=find_hierarchy(), certain_kill=certain)


@pytest.fixture
def sandbox(attempt_root):
    listed = MountAllowlist([AllowedMount(folder=str(attempt_root))])
    return SandboxExecutor(Interpreter.running(), listed, hierarchy=find_hierarchy())


@pytest.fixture
def tmux(process, sandbox):
    return TmuxExecutor(Interpreter.running(), plain=process, walled=sandbox)


class TestProcess(ExecutorContract):
    @pytest.fixture
    def executor(self, process):
        return process

    @pytest.fixture
    def isolated(self):
        return False


class TestSandbox(ExecutorContract):
    @pytest.fixture
    def executor(self, sandbox):
        return sandbox


class TestTmux(ExecutorContract):
    @pytest.fixture
    def executor(self, tmux):
        return tmux

    @pytest.fixture(params=[False, True], ids=["plain", "isolated"])
    def isolated(self, request, sandbox):
        if request.param and (missing := [each for each in sandbox.check() if each.needed]):
            pytest.skip(f"no sandbox here: {missing[0]}")
        return request.param

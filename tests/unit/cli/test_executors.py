"""Where programs can run here, told without saying a thing twice."""

from __future__ import annotations

from types import SimpleNamespace

from rota.app.sites import ExecutorTrial
from rota.cli.doctor import executor_lines
from rota.ports.executor import MissingRequirement

GROUP = MissingRequirement("a limit on CPUs", "cgroup", "hand it over", needed=False)
RUNTIME = MissingRequirement("a runtime that holds", "podman", "upgrade it", needed=False)


def tried(name, *missing):
    return ExecutorTrial(SimpleNamespace(name=name, certain_kill=True), missing)


def test_what_several_executors_lack_is_told_once():
    told = [
        *executor_lines(
            [tried("process", GROUP), tried("container", RUNTIME), tried("tmux", GROUP)]
        )
    ]
    assert told == [
        "Executors:",
        "  ✓ process    processes can be stopped reliably",
        "  ✓ container  processes can be stopped reliably",
        "      without a runtime that holds (podman): upgrade it",
        "  ✓ tmux       processes can be stopped reliably",
        "  process, tmux: without a limit on CPUs (cgroup): hand it over",
    ]

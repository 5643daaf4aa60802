"""Where programs can run here, told without saying a thing twice."""

from __future__ import annotations

from types import SimpleNamespace

from rota.doors.cli.executors import executor_lines
from rota.executors.kit.executor import Missing
from rota.wiring.sites import Tried

GROUP = Missing("a bound on processors", "cgroup", "hand it over", needed=False)
RUNTIME = Missing("a runtime that holds", "podman", "upgrade it", needed=False)


def tried(name, *missing):
    return Tried(SimpleNamespace(name=name, certain_kill=True), missing)


def test_what_several_executors_lack_is_told_once():
    told = [
        *executor_lines(
            [tried("process", GROUP), tried("container", RUNTIME), tried("tmux", GROUP)]
        )
    ]
    assert told == [
        "Programs can run in:",
        "  ✓ process    every stop is certain",
        "  ✓ container  every stop is certain",
        "      without a runtime that holds (podman): upgrade it",
        "  ✓ tmux       every stop is certain",
        "  process, tmux: without a bound on processors (cgroup): hand it over",
    ]

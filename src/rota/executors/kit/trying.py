"""Try out, in a process that ends with it, whether keepers can hold trees in PID namespaces."""

from __future__ import annotations

import subprocess
from functools import cache

from rota.executors.kit.executor import Interpreter
from rota.executors.kit.keeper.kernel import namespaces_work

PATIENCE = 10.0


def main(words: list[str]) -> int:  # noqa: ARG001 - how every module is run
    """Tell by the exit code."""
    return 0 if namespaces_work() else 1


@cache
def namespaces_to_be_had(python: Interpreter) -> bool:
    """Return whether the processes of an attempt can be held together for certain here."""
    words = python.module("rota.executors.kit.trying")
    try:
        done = subprocess.run(  # noqa: S603
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0

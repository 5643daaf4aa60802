"""Processes of Rota, each forked from one that has loaded everything: real, and up at once.

A forked process runs the same command as one that is typed; it only finds its modules loaded. With
`cold` it is started from nothing instead.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rota.faultpoints import EXIT_CODE, arm
from rota.timing.zones import zone
from tests.tools.crash.caller import call

LOADED: Final = (
    *("rota.cli.main", "rota.cli.command_line", "rota.cli.daemon"),
    *("rota.library.rota", "rota.store.sqlite.database", "rota.store.postgres.database"),
    *("tests.tools.crash.work", "rota.app.settings"),
)
ROOT: Final = str(Path(__file__).parents[3])
"""Where a daemon that is started from nothing finds the work of its tasks."""
RETRY_SECONDS: Final = 0.004
CRASHED: Final = 99


def load_everything() -> None:
    """Load what the processes need, once, before any of them is forked."""
    for name in LOADED:
        importlib.import_module(name)
    zone("UTC")
    gc.collect()
    gc.freeze()


class Process:
    """A child of this process."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid = pid
        self.log = log
        self.code: int | None = None
        self.stopped = False

    @property
    def alive(self) -> bool:
        """Whether it has not ended; a stopped one is alive."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self.stopped = True
            elif pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    @property
    def up(self) -> bool:
        """Whether it has said that it is up, and so takes signals."""
        return "Rota is running." in self.log.read_text(errors="replace")

    @property
    def struck(self) -> bool:
        """Whether it was ended by a fault, and not by itself."""
        return not self.alive and self.code in {-signal.SIGKILL, EXIT_CODE}

    @property
    def killed(self) -> bool:
        """Whether it was ended by SIGKILL."""
        return not self.alive and self.code == -signal.SIGKILL

    def wait(self, seconds: float) -> bool:
        """Wait for its end; true if it has come."""
        return wait_for(lambda: not self.alive, seconds)

    def finish(self, seconds: float, others: Sequence[Process] = ()) -> bool:
        """Wait for its end; true if it has come.

        It and others go on whenever they were stopped: one that holds the database holds up all.
        """

        def ended() -> bool:
            for process in (self, *others):
                if process.stopped:
                    process.send(signal.SIGCONT)
            return not self.alive

        return wait_for(ended, seconds)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if anybody is there to take it."""
        if self.alive:
            os.kill(self.pid, number)
            if number is signal.SIGCONT:
                self.stopped = False

    def kill(self) -> None:
        """End it at once."""
        self.send(signal.SIGKILL)
        self.wait(10.0)


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Look at a condition until it holds; false if it did not within a time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(RETRY_SECONDS)
    return True


def start_daemon(log: Path, environment: dict[str, str], *, cold: bool = False) -> Process:
    """Start `rota up` in the folder of its log."""

    def run() -> int:
        if cold:
            command = [sys.executable, "-m", "rota.cli.main", "up"]
            path = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), ROOT)))
            cold_environment = {**_inherited(), **environment, "PYTHONPATH": path}
            os.execve(command[0], command, cold_environment)  # noqa: S606
        os.environ.update(environment)
        from rota.cli.main import main

        return main(["up"])

    return _fork(log, run)


def start_caller(
    log: Path, address: str, number: int, extras: tuple[str, ...], fault: str, *, last: bool
) -> Process:
    """Start the outside caller in the folder of its log."""

    def run() -> int:
        arm(fault)
        asyncio.run(call(address, number, extras, last=last))
        return 0

    return _fork(log, run)


def _inherited() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}


def _fork(log: Path, run: Callable[[], int]) -> Process:
    sys.stdout.flush()
    sys.stderr.flush()
    log.touch()
    pid = os.fork()
    if pid:
        return Process(pid, log)
    code = CRASHED
    try:
        os.chdir(log.parent)
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for number in (1, 2):
            os.dup2(file, number)
        os.close(file)
        code = run()
    except BaseException:  # noqa: BLE001 - whatever it was, the parent's code must not run on here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

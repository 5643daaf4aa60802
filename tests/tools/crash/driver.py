"""The driver: lets a daemon live and die on one database, heals it, and hears the verdict."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rota.app.addresses import store_at
from rota.flow.observe.verification import verify
from rota.runtime.clock import SystemClock
from tests.tools.crash import witness
from tests.tools.crash.cases import TOLD_TO_STOP, Blow, Case
from tests.tools.crash.evidence import Database
from tests.tools.crash.processes import Process, start_caller, start_daemon, wait_for
from tests.tools.crash.verdict import judge

STRUCK_SECONDS: Final = 10.0
CALLER_SECONDS: Final = 45.0
QUIET_SECONDS: Final = 30.0
LEAVE_SECONDS: Final = 15.0
QUIET_LOOK: Final = 0.02
PAUSED_SECONDS: Final = {"sqlite": 0.5, "postgres": 1.6}
"""How long a stopped process rests; on PostgreSQL past the end of its lease."""
TTL: Final = "1s"
DEADLY: Final = frozenset({"kill", "exit"})


@dataclass(slots=True)
class Result:
    """What became of a case."""

    case: Case
    folder: Path
    kills: int = 0
    struck: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


class Driver:
    """Drives one case in a folder of its own."""

    def __init__(self, case: Case, folder: Path, address: str, *, cold: bool = False) -> None:
        self.result = Result(case, folder)
        self._case = case
        self._folder = folder
        self._address = address
        self._cold = cold
        self._database = Database(address)
        self._processes: list[Process] = []
        self._callers: list[tuple[int, Blow, Process]] = []

    def run(self) -> Result:
        """Live, die, heal, and judge."""
        began = time.monotonic()
        try:
            self._go()
        finally:
            for process in self._processes:
                process.kill()
            self.result.seconds = time.monotonic() - began
        return self.result

    def _go(self) -> None:
        for number, blow in enumerate(self._case.blows):
            self._live(number, blow)
        if self._heal(len(self._case.blows)):
            self._judge()

    def _live(self, number: int, blow: Blow) -> None:
        daemon = self._start_daemon(blow.fault)
        caller = self._start_caller(number, blow)
        if not blow.fault:
            wait_for(lambda: not daemon.alive, blow.after)
        elif self._until_struck(daemon, caller, blow):
            self.result.struck += 1
        elif self._case.sure:
            self._complain(f"life {number} never came to {blow}")
        self._bury(daemon, blow)
        if caller.struck:
            self.result.kills += caller.killed
            caller = self._start_caller(number, blow, armed=False)
        self._callers.append((number, blow, caller))

    def _until_struck(self, daemon: Process, caller: Process, blow: Blow) -> bool:
        """Wait until one of them is hurt; what does not hurt for good is given its moment."""
        patience = STRUCK_SECONDS if self._case.sure else 1 + blow.after
        deadline = time.monotonic() + patience
        told = False
        while time.monotonic() < deadline:
            if not daemon.alive or caller.struck:
                return daemon.code != 0
            for process in (daemon, caller):
                if process.stopped:
                    self._let_rest(process)
                    return True
            if not told and not caller.alive and blow.owner in TOLD_TO_STOP:
                daemon.send(signal.SIGTERM)
                told = True
            time.sleep(QUIET_LOOK / 4)
        return blow.action not in DEADLY

    def _let_rest(self, process: Process) -> None:
        """Keep a process stopped while others go on, then let it continue for a while."""
        other = self._start_daemon("") if self._case.store == "postgres" else None
        time.sleep(PAUSED_SECONDS[self._case.store])
        process.send(signal.SIGCONT)
        process.wait(PAUSED_SECONDS[self._case.store])
        if other is not None:
            self._bury(other, Blow())

    def _bury(self, daemon: Process, blow: Blow) -> None:
        """Make sure that a daemon is dead, and that it did not end for reasons of its own."""
        if daemon.alive:
            daemon.kill()
        if daemon.killed:
            self.result.kills += 1
        elif blow.action not in {"exit", "raise"} and not (
            daemon.code == 0 and blow.owner in TOLD_TO_STOP
        ):
            self._complain(f"the daemon ended by itself with code {daemon.code} at {blow}")
        witness.note("died", str(self._folder), process=daemon.pid)

    def _see_off(self, number: int, blow: Blow, caller: Process) -> None:
        """Let the caller finish; one that was hurt does everything again."""
        for _ in range(2):
            if not caller.finish(CALLER_SECONDS, [other for *_, other in self._callers]):
                caller.kill()
                self._complain(f"caller {number} did not come to an end")
                return
            self.result.kills += caller.killed
            if caller.code == 0:
                return
            caller = self._start_caller(number, blow, armed=False)
        self._complain(f"caller {number} ended with code {caller.code}")

    def _heal(self, number: int, survivor: Process | None = None) -> bool:
        """Let everything come to an end without any fault; true if it did."""
        daemon = survivor or self._start_daemon("")
        for earlier in self._callers:
            self._see_off(*earlier)
        caller = self._start_caller(number, Blow(), last=True)
        if not caller.wait(CALLER_SECONDS) or caller.code != 0:
            self._complain(f"the last caller did not come to an end (code {caller.code})")
            return False
        deadline = time.monotonic() + QUIET_SECONDS
        while left := self._database.left_open():
            if time.monotonic() > deadline or not daemon.alive:
                self.result.faults += [f"stranded: {sentence}" for sentence in left]
                break
            time.sleep(QUIET_LOOK)
        daemon.send(signal.SIGTERM)
        if not daemon.wait(LEAVE_SECONDS) or daemon.code != 0:
            self._complain(f"the healed daemon ended with code {daemon.code}")
        return True

    def _judge(self) -> None:
        messages = list(witness.messages(self._folder))
        lines = witness.noted(self._folder)
        self.result.faults += judge(lines, messages, self._database.read())
        self.result.faults += asyncio.run(verified(self._address))

    def _start_daemon(self, fault: str, *, cold: bool = False, **more: str) -> Process:
        environment = {
            "ROTA_HOME": str(self._folder / "home"),
            "ROTA_STORE": self._address,
            "ROTA_WORKER_TTL": TTL,
            "ROTA_DRAIN": TTL,
            "ROTA_LOG_FORMAT": "json",
            "ROTA_FAULT": fault,
            **more,
        }
        log = self._folder / f"daemon-{len(self._processes)}.log"
        daemon = start_daemon(log, environment, cold=cold or self._cold)
        self._processes.append(daemon)
        return daemon

    def _start_caller(
        self, number: int, blow: Blow, *, armed: bool = True, last: bool = False
    ) -> Process:
        caller = start_caller(
            self._folder / f"caller-{len(self._processes)}.log",
            self._address,
            number,
            self._case.extras_of(blow),
            blow.fault if armed else "",
            last=last,
        )
        self._processes.append(caller)
        return caller

    def _complain(self, sentence: str) -> None:
        self.result.faults.append(f"driver: {sentence}")


async def verified(address: str) -> list[str]:
    """Return what `rota verify` finds, beside what plain SQL found."""
    store = store_at(address, SystemClock())
    await store.open()
    try:
        found = (await verify(store)).violations
    finally:
        await store.close()
    return [f"verify: {v.invariant.value} {v.where}: {v.what}" for v in found]


def make_home(folder: Path) -> None:
    """Make the folder of a case."""
    (folder / "home").mkdir(parents=True)
    os.chmod(folder, 0o700)  # noqa: PTH101

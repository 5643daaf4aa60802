"""Random kills of daemon, keeper, inner process and program, and the judgement afterwards."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rota.keeper.cleanup import kill_marked
from rota.keeper.linux import all_pids, children, die_with_parent, send_signal
from rota.keeper.protocol import from_lines, read_file
from rota.ports.executor import ProcessTreeMode
from tests.tools.keepers.attempts import become_nobody
from tests.tools.keepers.daemon import REFUSED, STREAMS, Daemon, open_database

WEIGHTS = {"daemon": 3, "keeper": 3, "inner": 2, "program": 3, "both": 1}
RIVALS = 0.15
BEGIN_SECONDS = 30.0
FINISH_SECONDS = 30.0
RETRY_SECONDS = 0.01
EXITED, BROKEN = "exited", 99
BROKEN_KEEPER = {"keeper_error", "spawn_failed", "exec_failed"}


@dataclass(slots=True, kw_only=True)
class Result:
    """What was killed, what came of it, and what was wrong."""

    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    lines: int = 0
    refused: int = 0
    unproven: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = " ".join(f"{count} {what}" for what, count in sorted(self.kills.items()))
        ends = " ".join(f"{count} {what}" for what, count in sorted(self.endings.items()))
        return (
            f"seed {self.seed}: {self.kills.total()} kills ({kills}); {self.attempts} attempts,"
            f" {self.lines} lines; {ends}; {self.unproven} unproven; {self.refused} rivals refused;"
            f" {len(self.faults)} faults"
        )


class Killing:
    """One run: a daemon with its attempts, and somebody who kills."""

    def __init__(
        self,
        home: Path,
        seed: int,
        trees: list[ProcessTreeMode],
        *,
        at_once: int = 6,
        nobody: bool = False,
    ) -> None:
        self.home = home
        self.seed = seed
        self.trees = trees
        self.at_once = at_once
        self.nobody = nobody
        self.chance = random.Random(seed)
        self.result = Result(seed=seed)
        self.daemon = 0

    def run(self, kills: int, seconds: float) -> Result:
        """Kill so often, or for so long; then let everything end, and judge."""
        try:
            self._restart()
            if not wait_for(self._begun, BEGIN_SECONDS):
                self.result.faults.append("the daemon began no attempt")
            deadline = time.monotonic() + seconds
            while self.result.kills.total() < kills and time.monotonic() < deadline:
                time.sleep(self.chance.uniform(0.0, 0.12))
                self._kill_somebody()
            (self.home / "stop").touch()
            self._finish()
            self._judge()
        finally:
            self._clear_away()
        return self.result

    def _begun(self) -> bool:
        """Say whether there is a keeper to kill: a daemon killed before that proves nothing."""
        return any(self.home.glob(f"{self.home.name}.*/keeper"))

    def _fork(self, *, patient: bool = True) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = BROKEN
        try:
            if self.nobody:
                become_nobody()
            die_with_parent()
            Daemon(self.home, self.trees, self.at_once, self.seed, patient=patient).run()
            code = 0
        except BaseException:  # noqa: BLE001 - a fork never returns into its parent's code
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def _restart(self) -> None:
        self.daemon = self._fork()

    def _kill_somebody(self) -> None:
        what = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if what == "daemon":
            self._end_daemon()
            time.sleep(self.chance.choice([0.0, self.chance.uniform(0.0, 0.4)]))
            self._restart()
            self.result.kills[what] += 1
            if self.chance.random() < RIVALS:
                self._rival()
            return
        name, victims = self._victims(what)
        carries = name.encode()
        still_it = lambda pid: carries in read_file(f"/proc/{pid}/environ")  # noqa: E731
        for number in [signal.SIGSTOP] * (len(victims) > 1) + [signal.SIGKILL]:
            struck = [send_signal(pid, number, still_it) for pid in victims]
        self.result.kills[what] += bool(victims) and any(struck)

    def _rival(self) -> None:
        """Start a second daemon while the first holds its lock."""
        wait_for((self.home / "daemon.lock").exists, 5.0)
        locked = lambda: str((self.home / "daemon.lock").stat().st_ino) in _locks()  # noqa: E731
        wait_for(locked, 5.0)
        _, status = os.waitpid(self._fork(patient=False), 0)
        refused = os.waitstatus_to_exitcode(status) == REFUSED
        self.result.refused += refused
        if not refused:
            self.result.faults.append("a second daemon was let in")

    def _victims(self, what: str) -> tuple[str, list[int]]:
        """Return an attempt that is kept, and those of its processes that shall die."""
        found = []
        for folder in self.home.glob(f"{self.home.name}.*"):
            facts = from_lines(read_file(str(folder / "keeper")))[0]
            if facts and not (folder / "exit").exists():
                found.append((int(facts["pid"]), int(facts["inner"]), facts["name"]))
        self.chance.shuffle(found)
        for keeper, inner, name in found:
            below = children(inner)
            if inner not in children(keeper) or not _is_of(keeper, name):
                continue
            if what == "program" and not below:
                continue
            chosen = {"keeper": [keeper], "inner": [inner], "both": [keeper, inner]}
            return name, chosen.get(what) or [self.chance.choice(below)]
        return "", []

    def _finish(self) -> None:
        ended: list[int] = []

        def over() -> bool:
            pid, status = os.waitpid(self.daemon, os.WNOHANG)
            if pid:
                ended.append(os.waitstatus_to_exitcode(status))
            return bool(pid)

        if not wait_for(over, FINISH_SECONDS):
            self.result.faults.append("the daemon did not finish")
            self._end_daemon()
        elif ended != [0]:
            self.result.faults.append(f"the daemon ended with {ended}")
        self.daemon = 0

    def _end_daemon(self) -> None:
        if self.daemon:
            os.kill(self.daemon, signal.SIGKILL)
            os.waitpid(self.daemon, 0)
            self.daemon = 0

    def _judge(self) -> None:
        database = open_database(self.home)
        rows = list(database.execute("select name, lines, code, tree from attempts"))
        self.result.attempts = len(rows)
        for name, lines, code, tree in rows:
            find = "select reason, code, proven, out_size, err_size from endings where name = ?"
            endings = list(database.execute(find, (name,)))
            if len(endings) != 1:
                self.result.faults.append(f"{name} has {len(endings)} endings")
                continue
            reason, got, proven, *sizes = endings[0]
            self.result.endings[reason] += 1
            self.result.unproven += not proven
            if reason == EXITED and got != code:
                self.result.faults.append(f"{name} exited with {got} instead of {code}")
            if reason in BROKEN_KEEPER:
                told = read_file(str(self.home / name / "keeper.err")).decode(errors="replace")
                self.result.faults.append(f"{name} ended with {reason}: {told}")
            if not proven and tree == ProcessTreeMode.PIDNS:
                self.result.faults.append(f"{name} is unproven in a namespace")
            for stream, size in zip(STREAMS, sizes, strict=True):
                find = "select at, line from lines where name = ? and stream = ? order by rowid"
                recorded = list(database.execute(find, (name, stream)))
                self.result.lines += len(recorded)
                self._judge_lines(
                    f"{name} {stream}", recorded, size, whole=reason == EXITED and lines
                )
            ran = read_file(str(self.home / name / "ran")).count(b"\n")
            if ran > 1:
                self.result.faults.append(f"{name} ran {ran} times")
        database.close()

    def _judge_lines(
        self, what: str, recorded: list[tuple[int, bytes]], size: int, *, whole: int
    ) -> None:
        at = 0
        stream = what.rpartition(" ")[2].encode()
        for number, (offset, line) in enumerate(recorded):
            last = number == len(recorded) - 1
            good = (b"%s %d\n" % (stream, number), b"%s end %d\n" % (stream, number))
            if offset != at or (line not in good and not (last and good[0].startswith(line))):
                self.result.faults.append(f"{what}: line {number} at {offset} is {line!r}")
                return
            at += len(line)
        if at != size:
            self.result.faults.append(f"{what}: {at} bytes are recorded of {size}")
        if whole and len(recorded) != whole + 1:
            self.result.faults.append(f"{what}: {len(recorded)} lines are recorded of {whole + 1}")

    def _clear_away(self) -> None:
        """Count what survived, and end it."""
        time.sleep(RETRY_SECONDS)
        self._end_daemon()
        if self.result.kills and not self.result.attempts:
            self.result.faults.append("nothing was judged")
        names = [folder.name for folder in self.home.glob(f"{self.home.name}.*")]
        wait_for(lambda: not self._survivors(), 1.0)
        survivors = self._survivors()
        if survivors:
            self.result.faults.append(f"{len(survivors)} processes survived: {survivors}")
            for name in names:
                kill_marked(name)

    def _survivors(self) -> list[tuple[int, bytes]]:
        """Return whatever names this home in its command line or its environment."""
        home = str(self.home).encode()
        marker = f"={self.home.name}.".encode()
        found = []
        for pid in all_pids():
            if pid == os.getpid():
                continue
            line = read_file(f"/proc/{pid}/cmdline")
            if home in line or marker in read_file(f"/proc/{pid}/environ"):
                found.append((pid, line[:80]))
        return found


def _is_of(keeper: int, name: str) -> bool:
    return name.encode() in read_file(f"/proc/{keeper}/cmdline")


def _locks() -> str:
    return read_file("/proc/locks").decode()


def wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    """Look at a condition until it holds; false if it did not within a time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(RETRY_SECONDS)
    return True

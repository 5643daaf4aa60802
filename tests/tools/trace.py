"""What the daemon does for `rota run hello --wait`: python -m tests.tools.trace [--json].

A daemon with the sample task `hello`, without its schedule, runs under a profiler while the command
line asks for a run and line asks for a run and waits for its end. The tool prints each file of Rota that the daemon enters
from the request until the run is settled, in the order of their first entry, with its functions and
how often each was entered; then what it enters in addition to answer the waiting command; then the
calls from the request to the INSERT of the run. What services did beside it is left out: a function
counts if it was entered in every take.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, Any, NamedTuple, cast

import apsw

import rota
from rota.runtime import event_loop

SRC = str(Path(rota.__file__).parent) + "/"
TAKES = 5
PATIENCE = 60.0
INSERT = "insert into runs"
REQUESTS = "api/"
"""Where a request enters the daemon."""
SETTLED = "log_settled"
"""The function that is entered as soon as a run is settled."""
COMPREHENSIONS = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"})
"""Parts of the function that they stand in."""


class Function(NamedTuple):
    """A function of a file, in the order of its first line."""

    file: str
    name: str
    line: int


class Take(NamedTuple):
    """How often each function was entered until the run was settled, and in all.

    `way` has the calls to the INSERT of the run.
    """

    settled: dict[Function, int]
    entered: dict[Function, int]
    way: tuple[str, ...]


class Recorder:
    """Counts the functions of Rota that are entered while it is on, in every thread."""

    def __init__(self) -> None:
        self._on = False
        self._asked = False
        self._entered: dict[Function, int] = {}
        self._settled: dict[Function, int] = {}
        self._known: dict[CodeType, tuple[Function | None, int]] = {}
        self._way: tuple[str, ...] = ()

    def begin(self) -> None:
        """Forget what was seen, and look from the next request on."""
        self._entered, self._settled, self._way = {}, {}, ()
        self._asked, self._on = False, True

    def end(self) -> Take:
        """Return what was seen."""
        self._on = False
        return Take(self._settled, self._entered, self._way)

    def profile(self, frame: FrameType, event: str, _arg: object) -> None:
        """Count a function that is entered; coroutines that go on are not."""
        if not self._on or event != "call":
            return
        code = frame.f_code
        try:
            function, first = self._known[code]
        except KeyError:
            function, first = self._known[code] = (function_of(code), beginning(code))
        if function is None or frame.f_lasti != first:
            return
        self._asked = self._asked or function.file.startswith(REQUESTS)
        if self._asked:
            self._entered[function] = self._entered.get(function, 0) + 1
        if function.name == SETTLED and not self._settled:
            self._settled = dict(self._entered)

    def executed(self, _cursor: object, sql: str, _bound: object) -> bool:
        """Keep the calls that have led to the INSERT of a run."""
        if self._on and not self._way and sql.lstrip().lower().startswith(INSERT):
            self._way = (*awaited(), *called(sys._getframe(1)))
        return True


def beginning(code: CodeType) -> int:
    """Return the instruction that a frame is at when its function is entered, and not resumed."""
    resumes = (one for one in dis.get_instructions(code) if one.opname == "RESUME")
    return next((one.offset for one in resumes if one.arg == 0), 0)


def function_of(code: CodeType) -> Function | None:
    """Return a function of Rota, None for any other."""
    if not code.co_filename.startswith(SRC) or code.co_name in COMPREHENSIONS:
        return None
    return Function(code.co_filename.removeprefix(SRC), code.co_qualname, code.co_firstlineno)


def called(frame: FrameType | None) -> list[str]:
    """Return the calls of Rota that a frame is in, the outermost first."""
    found = []
    while frame is not None:
        found.append(shown(frame.f_code))
        frame = frame.f_back
    return [call for call in reversed(found) if call is not None]


def shown(code: CodeType) -> str | None:
    """Return a call as a line shows it, None for one that is not Rota's."""
    function = function_of(code)
    return None if function is None else f"{function.file}:{function.name}"


def awaited() -> list[str]:
    """Return the calls of the request that waits for the database, the outermost first."""
    loop = LOOP[0]
    ways = [list(chain(task.get_coro())) for task in asyncio.all_tasks(loop)] if loop else []
    ways = [way for way in ways if any(call.startswith("api/") for call in way)]
    return max(ways, key=len, default=[])


def chain(coroutine: object) -> Iterator[str]:
    """Yield the calls of Rota that a coroutine waits in."""
    while coroutine is not None:
        code = getattr(coroutine, "cr_code", None) or getattr(coroutine, "gi_code", None)
        call = shown(code) if isinstance(code, CodeType) else None
        if call is not None:
            yield call
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)


LOOP: list[asyncio.AbstractEventLoop | None] = [None]
"""The loop of the daemon, once it is there."""


def serve(home: str) -> None:
    """Be the daemon, and answer each line of the input with what was seen since the one before."""
    recorder = Recorder()
    apsw.connection_hooks.append(lambda made: setattr(made, "exec_trace", recorder.executed))
    threading.setprofile(recorder.profile)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")

    def listen() -> None:
        sys.setprofile(None)
        for line in sys.stdin:
            if line.strip() == "begin":
                recorder.begin()
                told: dict[str, object] = {}
            else:
                take = recorder.end()
                counts = {"settled": take.settled, "entered": take.entered}
                told = {name: [[*f, n] for f, n in one.items()] for name, one in counts.items()}
                told["way"] = take.way
            answers.write(json.dumps(told) + "\n")
            answers.flush()

    threading.Thread(target=listen, daemon=True).start()
    make = event_loop.fastest_loop() or asyncio.new_event_loop

    def made() -> asyncio.AbstractEventLoop:
        LOOP[0] = loop = make()
        return loop

    event_loop.fastest_loop = cast("Callable[[], Any]", lambda: made)
    from rota.cli.main import main

    os.dup2(2, 1)
    sys.setprofile(recorder.profile)
    sys.exit(main(["--home", home, "up", "--port", "0"]))


class Daemon:
    """A daemon that is traced, with a home of its own."""

    def __init__(self, home: str) -> None:
        self.home = home
        words = [sys.executable, "-m", "tests.tools.trace", "--serve", home]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.rota("task", "create", "hello", "--call", "rota.samples:hello")

    def rota(self, *words: str) -> str:
        """Run a command of the command line and return what it writes."""
        self._alive()
        while not Path(self.home, "api.json").exists():
            self._alive()
            time.sleep(0.05)
        command = [sys.executable, "-m", "rota.cli.main", "--home", self.home, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
        return done.stdout

    def _alive(self) -> None:
        if self._process.poll() is not None:
            message = f"the daemon ended with {self._process.returncode}"
            raise ChildProcessError(message)

    def take(self) -> Take:
        """Trace one `rota run hello --wait`."""
        self._ask("begin")
        self.rota("run", "hello", "--wait")
        told = self._ask("end")
        settled, entered = (
            {Function(*where): count for *where, count in told[name]}
            for name in ("settled", "entered")
        )
        if not settled or not told["way"]:
            message = f"no {SETTLED}() or no {INSERT!r} was seen: correct the names in this tool"
            raise LookupError(message)
        return Take(settled, entered, tuple(told["way"]))

    def _ask(self, line: str) -> dict[str, Any]:
        stdin, stdout = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        stdin.write(line + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def close(self) -> None:
        """Stop the daemon."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)


def common(counts: Sequence[dict[Function, int]]) -> dict[Function, int]:
    """Return what every take has entered, in the order of the last one, with the median count."""
    last = counts[-1]
    everywhere = [where for where in last if all(where in count for count in counts)]
    return {where: int(statistics.median(c[where] for c in counts)) for where in everywhere}


def by_file(counts: dict[Function, int]) -> list[dict[str, Any]]:
    """Return functions by their files, in the order of their first entry."""
    files: dict[str, list[dict[str, object]]] = {}
    for where, count in counts.items():
        entry = {"function": where.name, "line": where.line, "entered": count}
        files.setdefault(where.file, []).append(entry)
    return [{"file": file, "functions": functions} for file, functions in files.items()]


def report(takes: Sequence[Take]) -> dict[str, Any]:
    """Return what the takes have in common."""
    settled = common([take.settled for take in takes])
    known = {where.file for where in settled}
    after = {
        where: count
        for where, count in common([take.entered for take in takes]).items()
        if where.file not in known
    }
    way = takes[-1].way
    return {
        "takes": len(takes),
        "until_settled": by_file(settled),
        "for_the_answer": by_file(after),
        "insert_depth": len(way),
        "insert_calls": list(way),
    }


PARTS = {
    "until_settled": "from the request of `rota run hello --wait` until the run is settled",
    "for_the_answer": "more to answer the waiting command",
}


def lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the report as text."""
    for part, meaning in PARTS.items():
        functions = sum(len(file["functions"]) for file in found[part])
        yield f"{len(found[part])} files, {functions} functions {meaning}:"
        for number, file in enumerate(found[part], 1):
            yield f"{number:4} {file['file']}"
            yield from (f"     {one['entered']:4} x {one['function']}" for one in file["functions"])
    yield f"{found['insert_depth']} calls to the INSERT of the run:"
    yield from (f"      {call}" for call in found["insert_calls"])


def main() -> int:
    """Trace and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write the report as JSON")
    parser.add_argument("--takes", type=int, default=TAKES, help=f"how many takes [{TAKES}]")
    parser.add_argument("--serve", metavar="HOME", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve is not None:
        serve(asked.serve)
    with tempfile.TemporaryDirectory(prefix="rota-trace-") as home:
        daemon = Daemon(home)
        try:
            daemon.take()  # what is loaded or made only once
            takes = [daemon.take() for _ in range(asked.takes)]
        finally:
            daemon.close()
    found = report(takes)
    sys.stdout.write(json.dumps(found, indent=2) if asked.json else "\n".join(lines(found)))
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

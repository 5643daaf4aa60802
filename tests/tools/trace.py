"""What the daemon does for `rota run hello --wait`: python -m tests.tools.trace [--json].

A daemon with the sample tasks runs under a profiler while the command line asks for a run and waits
for its end. The tool prints each file of Rota that the daemon enters meanwhile, in the order of
their first entry, with its functions and how often each was entered, and the calls on the way from
the request to the INSERT of the run. What services did beside it is left out: a function counts if
it was entered in every take.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, cast

import apsw

import rota
from rota.runtime import event_loop

SRC = str(Path(rota.__file__).parent) + "/"
TAKES = 5
PATIENCE = 60.0
INSERT = "insert into runs"
FRESH = 0
"""The last instruction of a frame that is entered, and not resumed, lies before its first one."""


class Function(NamedTuple):
    """A function of a file, in the order of its first line."""

    file: str
    name: str
    line: int


class Take(NamedTuple):
    """What one take has seen: how often each function was entered, and the way to the INSERT."""

    entered: dict[Function, int]
    way: tuple[str, ...]


class Recorder:
    """Counts the functions of Rota that are entered while it is on, in every thread."""

    def __init__(self) -> None:
        self._on = False
        self._entered: dict[Function, int] = {}
        self._known: dict[CodeType, Function | None] = {}
        self._way: tuple[str, ...] = ()

    def begin(self) -> None:
        """Forget what was seen, and look from now on."""
        self._entered, self._way = {}, ()
        self._on = True

    def end(self) -> Take:
        """Return what was seen."""
        self._on = False
        return Take(self._entered, self._way)

    def profile(self, frame: FrameType, event: str, _arg: object) -> None:
        """Count a function that is entered; coroutines that go on are not."""
        if not self._on or event != "call" or frame.f_lasti > FRESH:
            return
        code = frame.f_code
        try:
            function = self._known[code]
        except KeyError:
            function = self._known[code] = function_of(code)
        if function is not None:
            self._entered[function] = self._entered.get(function, 0) + 1

    def executed(self, _cursor: object, sql: str, _bound: object) -> bool:
        """Keep the calls that have led to the INSERT of a run."""
        if self._on and not self._way and sql.lstrip().lower().startswith(INSERT):
            self._way = (*awaited(), *called(sys._getframe(1)))
        return True


def function_of(code: CodeType) -> Function | None:
    """Return a function of Rota, None for any other."""
    if not code.co_filename.startswith(SRC) or code.co_qualname == "<module>":
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
                told = {"entered": [[*f, n] for f, n in take.entered.items()], "way": take.way}
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
    sys.exit(main(["--home", home, "up", "--samples", "--port", "0"]))

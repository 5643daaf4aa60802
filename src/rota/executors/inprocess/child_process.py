"""Process: runs one callable, so that it can be stopped reliably.

The parent writes the assignment to standard input and reads the report, one line, from a separate
pipe, so output of the callable does not interfere. The child leads a process group; ending the
group ends what it started. A process that left the group may keep the pipe open, so the report ends
with the child, not with the pipe. If the parent dies the child ends itself: the run will be tried
again.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

from rota.errors import Invalid
from rota.executors.inprocess.run_context import (
    InvalidResult,
    RunContext,
    WaitForAnswer,
    encode_result,
    resolve,
)
from rota.model.attempts import (
    Assignment,
    AttemptReport,
    Failed,
    OutgoingMessage,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.json import from_json, to_json
from rota.model.runs import Lease
from rota.model.tasks import Task
from rota.ports.runner import failure

MAX_REPORT = 16 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
TERM_SECONDS = 2.0


def path_of(function: Callable[..., Any]) -> str:
    """Return `module:name` of a callable; raise Invalid if a child could not import it."""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or "<" in name:
        advice = "an isolated task needs a function at the top level of an importable module"
        raise Invalid("isolate", f"{module}:{name}", advice)
    return f"{module}:{name}"


async def run_in_child(path: str, assignment: Assignment) -> AttemptReport:
    """Run a callable in a child; after cancellation the child is gone before this returns."""
    reader, writer = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "rota.executors.inprocess.child_process",
            str(writer),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(writer,),
            env={**os.environ, **_run_variables(assignment)},  # noqa: TID251 - handed on, not read
            start_new_session=True,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    with _PipeReader(reader) as reading:
        try:
            await process.communicate(_encode_assignment(path, assignment))
        except asyncio.CancelledError:
            await _end(process)
            raise
        _kill(process.pid)
        line = reading.line()
    if line is None:
        sentence = f"its process ended with code {process.returncode} and without a result"
        return AttemptReport(outcome=Failed(code="exit", message=sentence))
    return _decode(json.loads(line))


class _PipeReader:
    """Reads a pipe on the event loop: a thread would be blocked as long as the child runs."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._read = bytearray()
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> Self:
        os.set_blocking(self._pipe, False)
        self._loop.add_reader(self._pipe, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)

    def _take(self) -> bool:
        """Read available data; return whether there may be more."""
        try:
            part = os.read(self._pipe, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not part:
            self._loop.remove_reader(self._pipe)
        self._read += part
        return bool(part)

    def line(self) -> bytes | None:
        """Return the line written by a child that has ended; None if it is incomplete."""
        while b"\n" not in self._read and self._take():
            pass
        line, end, _ = self._read.partition(b"\n")
        return bytes(line) if end else None


def _run_variables(assignment: Assignment) -> dict[str, str]:
    """Return the variables that describe the run."""
    lease = assignment.lease
    said = {
        "ROTA_RUN_ID": str(lease.run_id),
        "ROTA_TASK": assignment.task.name,
        "ROTA_TRACE_ID": assignment.trace_id,
    }
    return said if lease.thread is None else {**said, "ROTA_THREAD_KEY": lease.thread}


def _encode_assignment(path: str, assignment: Assignment) -> bytes:
    record = {
        "call": path,
        "path": sys.path,
        "lease": list(assignment.lease),
        "task": to_json(assignment.task),
        "answers": list(assignment.answers),
        "incarnation": assignment.incarnation,
    }
    return json.dumps(record).encode()


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(TERM_SECONDS):
            await process.wait()
    except TimeoutError:
        _kill(process.pid)
        await process.wait()
    _kill(process.pid)


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _decode(record: dict[str, Any]) -> AttemptReport:
    if "asked" in record:
        asked = record["asked"]
        return AttemptReport(
            outcome=WaitingForAnswer(
                question=asked["question"],
                context=asked["context"],
                options=tuple(asked["options"]),
                expires_in=timedelta(seconds=asked["expires_in"]),
                default=asked["default"],
            )
        )
    if "error" in record:
        return AttemptReport(
            outcome=Failed(
                code=record["code"], message=record["error"], retryable=record["retryable"]
            )
        )
    messages = tuple(OutgoingMessage(**message) for message in record["messages"])
    return AttemptReport(outcome=Succeeded(result=record["result"]), messages=messages)


def _end_with_parent(pipe: int) -> None:
    """Wait until the parent has closed the pipe, and kill the group."""
    reader = select.poll()
    reader.register(pipe, 0)  # reports only that the other end is closed
    reader.poll()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the child: read the assignment, call, report."""
    watch = threading.Thread(target=_end_with_parent, args=(int(sys.argv[1]),), daemon=True)
    watch.start()
    given = json.loads(sys.stdin.buffer.read())
    sys.path[:] = given["path"]
    task = from_json(Task, given["task"])
    answers, incarnation = tuple(given["answers"]), given["incarnation"]
    handle = RunContext(Assignment(Lease(*given["lease"]), task, answers, incarnation))
    try:
        line = _call(given["call"], handle)
    except InvalidResult as error:
        line = _line({"code": error.code, "error": str(error), "retryable": False})
    with os.fdopen(int(sys.argv[1]), "wb") as pipe:
        pipe.write(line)


def _call(path: str, handle: RunContext) -> bytes:
    """Call the function, and return its result as a line; raise InvalidResult if not possible."""
    try:
        result = resolve(path)(handle)
        if inspect.iscoroutine(result):
            result = asyncio.run(result)
        messages = [to_json(message) for message in handle.messages]
        return _line({"result": encode_result(result), "messages": messages})
    except WaitForAnswer as waits:
        return _line({"asked": to_json(waits.asked)})
    except InvalidResult:
        raise
    except Exception as error:  # noqa: BLE001 - reported as the failure it is
        failed = failure(error)
        return _line({"code": failed.code, "error": failed.message, "retryable": True})


def _line(report: dict[str, object]) -> bytes:
    line = json.dumps(report).encode()
    if len(line) > MAX_REPORT:
        told = f"its result and messages are {len(line)} bytes of JSON, at most 16 MiB are allowed"
        raise InvalidResult(f"{told} from an isolated callable: send less, or leave it in a file")
    return line + b"\n"


if __name__ == "__main__":
    main()

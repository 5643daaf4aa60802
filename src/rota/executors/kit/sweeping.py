"""Finding and ending the processes of an attempt by the marker in their environment.

This is for what nobody holds any more: a guarded tree whose keeper and guard were both killed. A
process that was started with an environment of its own carries no marker; it is found only as a
descendant of one that does. So a sweep ends what it finds, and proves nothing.
"""

from __future__ import annotations

import os
import select
import signal
import time

from rota.executors.kit.keeper.processes import all_pids, descendants, parent
from rota.executors.kit.keeper.words import MARKER, read_file

SWEEP_SECONDS = 5.0
LOOK_SECONDS = 0.005
QUIET_LOOKS = 2  # a process that is just becoming another program shows no environment
LONGEST_ENVIRONMENT = 1 << 22


def marked(name: str) -> list[int]:
    """Return the living processes that carry an attempt's marker, without this one's ancestors."""
    spared = _line_of_ancestors()
    return [pid for pid in all_pids() if pid not in spared and _carries(pid, name)]


def sweep(name: str, seconds: float = SWEEP_SECONDS) -> int:
    """End everything that carries a marker, with its descendants; return how many were ended.

    They are stopped until no new one appears, then killed. Raises TimeoutError if one stays.
    """
    spared = _line_of_ancestors()
    frozen: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    try:
        quiet = 0
        while quiet < QUIET_LOOKS and time.monotonic() < deadline:
            fresh = [pid for pid in _tree(name) if pid not in frozen and pid not in spared]
            frozen.update(_freeze(fresh, name, {*frozen, *fresh}))
            quiet = 0 if fresh else quiet + 1
            if not fresh:
                time.sleep(LOOK_SECONDS)
        for handle in frozen.values():
            _send(handle, signal.SIGKILL)
        _wait_for([handle for handle in frozen.values() if handle >= 0], deadline)
    finally:
        for handle in frozen.values():
            if handle >= 0:
                os.close(handle)
    return sum(handle >= 0 for handle in frozen.values())


def _tree(name: str) -> list[int]:
    found = dict.fromkeys(marked(name))
    for pid in tuple(found):
        found.update(dict.fromkeys(descendants(pid)))
    return list(found)


def _carries(pid: int, name: str) -> bool:
    environment = read_file(f"/proc/{pid}/environ", LONGEST_ENVIRONMENT)
    return f"{MARKER}={name}".encode() in environment.split(b"\0")


def _freeze(pids: list[int], name: str, family: set[int]) -> dict[int, int]:
    """Stop processes and return a handle of each, -1 for one that is gone or another by now."""
    handles: dict[int, int] = {}
    for pid in pids:
        handles[pid] = -1
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        if parent(pid) in family or _carries(pid, name):
            handles[pid] = handle
            _send(handle, signal.SIGSTOP)
        else:
            os.close(handle)
    return handles


def _send(handle: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return  # it is gone, or nobody may end it: then it is waited for in vain


def _line_of_ancestors() -> set[int]:
    line, pid = {0, 1}, os.getpid()
    while pid not in line:
        line.add(pid)
        pid = parent(pid)
    return line


def _wait_for(handles: list[int], deadline: float) -> None:
    for handle in handles:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        left = max(0.0, deadline - time.monotonic())
        if not poll.poll(left * 1000):
            message = "a process of the attempt does not end"
            raise TimeoutError(message)

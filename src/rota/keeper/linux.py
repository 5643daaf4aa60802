"""System calls and /proc for the keeper: namespaces, subreaper, killing process trees.

It uses `_ctypes` directly, because `ctypes` would double the start-up time of a keeper.
"""

from __future__ import annotations

import _ctypes
import os

from rota.keeper.protocol import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import Any

    _Simple = _ctypes._SimpleCData[int]
else:
    import _signal

    _Simple = _ctypes._SimpleCData

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
MS_REC_SLAVE = 16384 | 1 << 19

_THIS_PROGRAM: Any = None


class _Int(_Simple):
    _type_ = "i"


class _UnsignedLong(_Simple):
    _type_ = "L"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Int


def _call(name: str, *values: object) -> None:
    function = _Function(_ctypes.dlsym(_ctypes.dlopen(_THIS_PROGRAM, 0), name))
    if function(*values) < 0:
        number = _ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _control(option: int, value: object) -> None:
    none = _UnsignedLong(0)
    _call("prctl", option, value, none, none, none)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent thread ends; setuid resets that."""
    _control(PR_SET_PDEATHSIG, _UnsignedLong(9))


def become_subreaper() -> None:
    """Become the parent of orphaned descendants."""
    _control(PR_SET_CHILD_SUBREAPER, _UnsignedLong(1))


def set_process_name(name: bytes) -> None:
    """Set the process name, of at most 15 bytes."""
    _control(PR_SET_NAME, name)


def enter_pid_namespace() -> bool:
    """Make the next child the first of a PID namespace; true if that took a user namespace."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _call("unshare", CLONE_NEWPID)
        return False
    _call("unshare", CLONE_NEWUSER | CLONE_NEWPID)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        file = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(file, text.encode())
        os.close(file)
    return True


def mount_own_proc() -> None:
    """Mount the /proc of this PID namespace, for this process and its descendants only."""
    _call("unshare", CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _UnsignedLong(MS_REC_SLAVE), None)
    _call("mount", b"proc", b"/proc", b"proc", _UnsignedLong(MS_NOSUID_NODEV_NOEXEC), None)


def namespaces_work() -> bool:
    """Whether a PID namespace can be created; the calling process must exit afterwards."""
    try:
        enter_pid_namespace()
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        try:
            mount_own_proc()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


WRAPPERS = frozenset({"bwrap", "conmon", "crun", "runc", "tmux"})
"""Programs that kill their children at once on SIGTERM, so they are not sent one."""


def _stat(pid: int) -> list[bytes]:
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def start_time(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0 if it does not exist."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in {b"Z", b"X"} else 0


def parent(pid: int) -> int:
    """Return the parent of a process, zombies included; 0 if it does not exist."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def program_name(pid: int) -> str:
    """Return the name of a process."""
    return read_file(f"/proc/{pid}/comm").decode(errors="replace").strip()


def all_pids() -> list[int]:
    """Return all process ids in ascending order."""
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        found += map(int, read_file(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _children_by_scan() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for pid in all_pids():
        found.setdefault(parent(pid), []).append(pid)
    return found


def descendants(root: int) -> list[int]:
    """Return all descendants of a process, parents before their children."""
    if os.path.exists(f"/proc/{root}/task/{root}/children"):
        look = children
    else:  # a kernel without CONFIG_PROC_CHILDREN
        known = _children_by_scan()
        look = lambda pid: known.get(pid, [])  # noqa: E731
    found = list(look(root))
    seen = set(found)
    for pid in found:
        fresh = [child for child in look(pid) if child not in seen]
        seen.update(fresh)
        found += fresh
    return found


def send_signal(pid: int, number: int, still_it: Callable[[int], bool]) -> bool:
    """Send a signal to a process if `still_it` confirms its identity; true if sent."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not still_it(pid):
            return False
        _signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def terminate_descendants(root: int, only: int = 0) -> None:
    """Send SIGTERM to all descendants except wrappers, or to one; continue stopped ones."""
    everyone = descendants(root)
    family = {root, *everyone}
    for pid in everyone:
        wanted = pid == only if only else program_name(pid).split(":")[0] not in WRAPPERS
        if wanted:
            for number in (_signal.SIGTERM, _signal.SIGCONT):
                send_signal(pid, number, lambda pid: parent(pid) in family)


def kill_descendants(reaped: Callable[[int, int], None] = lambda _pid, _status: None) -> None:
    """Kill all descendants of this process, which must be a subreaper; return when none is left.

    They are stopped first, until no new one appears, because a stopped process cannot fork.
    Processes that this user may not signal are waited for.
    """
    me = os.getpid()
    while True:
        frozen: dict[int, None] = {}
        while fresh := [pid for pid in descendants(me) if pid not in frozen]:
            frozen.update(dict.fromkeys(fresh))
            _signal_all(fresh, _signal.SIGSTOP, {me, *frozen})
        _signal_all(list(frozen), _signal.SIGKILL, {me, *frozen})
        flags = 0
        while True:
            try:
                pid, status = os.waitpid(-1, flags)
            except ChildProcessError:
                return
            if pid == 0:
                break
            reaped(pid, status)
            flags = os.WNOHANG


def _signal_all(pids: list[int], number: int, family: set[int]) -> None:
    for pid in pids:
        send_signal(pid, number, lambda pid: parent(pid) in family)

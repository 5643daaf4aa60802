"""Linux for the keeper: namespaces, subreaper, /proc, the end of a process tree.

`_ctypes` is used without `ctypes`, which would double the time a keeper needs to start.
"""

from __future__ import annotations

import _ctypes
import os

from rota.keeper.protocol import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Simple = _ctypes._SimpleCData[int]
else:
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
    """Have this process killed when the thread that forked it ends; a change of user undoes it."""
    _control(PR_SET_PDEATHSIG, _UnsignedLong(9))


def gather_orphans() -> None:
    """Become the parent of every descendant that loses its own."""
    _control(PR_SET_CHILD_SUBREAPER, _UnsignedLong(1))


def call_myself(name: bytes) -> None:
    """Set the name that process lists show, of at most 15 bytes."""
    _control(PR_SET_NAME, name)


def enter_pid_namespace() -> bool:
    """Have the next child begin a PID namespace; true if a user namespace was needed for it."""
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


def see_own_processes() -> None:
    """Mount a /proc of this PID namespace, seen by this process and its descendants alone."""
    _call("unshare", CLONE_NEWNS)
    _call("mount", b"none", b"/", None, _UnsignedLong(MS_REC_SLAVE), None)
    _call("mount", b"proc", b"/proc", b"proc", _UnsignedLong(MS_NOSUID_NODEV_NOEXEC), None)


def namespaces_work() -> bool:
    """Try in this process, which must not go on afterwards, whether a tree can be held in one."""
    try:
        enter_pid_namespace()
        child = os.fork()
    except OSError:
        return False
    if child == 0:
        try:
            see_own_processes()
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

WRAPPERS = frozenset({"bwrap", "conmon", "crun", "runc", "tmux"})
"""Programs that end what they hold at once when they are asked to stop: they are not asked."""


def _stat(pid: int) -> list[bytes]:
    return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def start_time(pid: int) -> int:
    """Return when a process began, in clock ticks since the boot; 0 if there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in {b"Z", b"X"} else 0


def parent(pid: int) -> int:
    """Return the parent of a process, also of a dead one nobody has waited for; 0 if none."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def program_name(pid: int) -> str:
    """Return the short name of a process, as a process list shows it."""
    return read_file(f"/proc/{pid}/comm").decode(errors="replace").strip()


def all_pids() -> list[int]:
    """Return every process there is, oldest number first."""
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


def strike(pid: int, number: int, still_it: Callable[[int], bool]) -> bool:
    """Send a signal to a process, if a number still means it; true if it was sent."""
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


def ask_to_end(root: int, only: int = 0) -> None:
    """Send SIGTERM to all descendants but wrappers, or to one of them; stopped ones wake up."""
    everyone = descendants(root)
    family = {root, *everyone}
    for pid in everyone:
        wanted = pid == only if only else program_name(pid).split(":")[0] not in WRAPPERS
        if wanted:
            for number in (_signal.SIGTERM, _signal.SIGCONT):
                strike(pid, number, lambda pid: parent(pid) in family)


def end_descendants(reaped: Callable[[int, int], None] = lambda _pid, _status: None) -> None:
    """Kill every descendant of this process and return when there is none.

    They are stopped first, again and again until no new one appears: what is stopped forks no
    more. This process must be one that gathers orphans. A process nobody may signal is waited for.
    """
    me = os.getpid()
    while True:
        frozen: dict[int, None] = {}
        while fresh := [pid for pid in descendants(me) if pid not in frozen]:
            frozen.update(dict.fromkeys(fresh))
            _strike_all(fresh, _signal.SIGSTOP, {me, *frozen})
        _strike_all(list(frozen), _signal.SIGKILL, {me, *frozen})
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


def _strike_all(pids: list[int], number: int, family: set[int]) -> None:
    for pid in pids:
        strike(pid, number, lambda pid: parent(pid) in family)

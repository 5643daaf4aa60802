"""What the kernel offers and Python does not: namespaces, the bond to a parent, subreapers.

`_ctypes` is used without `ctypes`, which would double the time a keeper needs to start.
"""

from __future__ import annotations

import _ctypes
import os

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

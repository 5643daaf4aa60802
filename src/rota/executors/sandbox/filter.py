"""Which system calls a program behind the walls cannot make.

Everything is allowed but what reaches into other processes, changes mounts, makes namespaces, types
into terminals, or widens what the kernel shows of itself. A call of another architecture ends the
program. `clone3` does not exist, because its arguments cannot be seen: libraries then use `clone`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rota.errors import Unavailable
from rota.executors.sandbox import bpf

COMMON = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
"""Numbers that are the same everywhere."""

X86_64 = COMMON | {
    "ioctl": 16,
    "socket": 41,
    "socketpair": 53,
    "clone": 56,
    "ptrace": 101,
    "syslog": 103,
    "pivot_root": 155,
    "chroot": 161,
    "acct": 163,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "perf_event_open": 298,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}

AARCH64 = COMMON | {
    "ioctl": 29,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "quotactl": 60,
    "acct": 89,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "syslog": 116,
    "ptrace": 117,
    "reboot": 142,
    "socket": 198,
    "socketpair": 199,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "clone": 220,
    "swapon": 224,
    "swapoff": 225,
    "perf_event_open": 241,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}

JUDGED = frozenset({"ioctl", "socket", "socketpair", "clone", "clone3"})
"""Calls that are decided by their arguments, or not by `EPERM`."""
FORBIDDEN = (frozenset(X86_64) | frozenset(AARCH64)) - JUDGED

TERMINAL_TRICKS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCSETD": 0x5423}
NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""Sockets that a network namespace keeps in; others, AF_VSOCK for one, reach past it."""
X32 = 0x40000000


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture as the kernel calls it, and the numbers of its calls."""

    name: str
    architecture: int
    numbers: Mapping[str, int]


MACHINES = {
    "x86_64": Machine("x86_64", 0xC000003E, X86_64),
    "aarch64": Machine("aarch64", 0xC00000B7, AARCH64),
}


@cache
def filter_for(machine: str) -> bytes:
    """Return the filter for an architecture, by the name `uname -m` gives it."""
    if machine not in MACHINES:
        known = " or ".join(MACHINES)
        raise Unavailable(f"no filter of system calls for {machine}: sandbox needs {known}")
    return build(MACHINES[machine])


def build(machine: Machine) -> bytes:
    """Return the filter as the kernel reads it."""
    numbers = machine.numbers
    made = bpf.Assembler()
    made.load(bpf.ARCHITECTURE_AT)
    made.jump(bpf.IF_EQUAL, machine.architecture, "known", "foreign")
    made.label("foreign")
    made.end(bpf.KILL)
    made.label("known")
    made.load(bpf.NUMBER_AT)
    if machine.name == "x86_64":
        _decide(made, bpf.IF_AT_LEAST, X32, bpf.errno(errno.ENOSYS), "x32")
    for name in sorted(FORBIDDEN & numbers.keys()):
        _decide(made, bpf.IF_EQUAL, numbers[name], bpf.errno(errno.EPERM), name)
    _decide(made, bpf.IF_EQUAL, numbers["clone3"], bpf.errno(errno.ENOSYS), "clone3")
    _judge_ioctl(made, numbers["ioctl"])
    _judge_clone(made, numbers["clone"])
    _judge_family(made, numbers["socket"], "socket")
    _judge_family(made, numbers["socketpair"], "socketpair")
    made.end(bpf.ALLOW)
    return made.assemble()


def _decide(made: bpf.Assembler, code: int, value: int, verdict: int, name: str) -> None:
    made.jump(code, value, None, f"not {name}")
    made.end(verdict)
    made.label(f"not {name}")


def _judge_ioctl(made: bpf.Assembler, number: int) -> None:
    # The kernel reads 32 bits of the request; whatever a program puts above them is no disguise.
    made.jump(bpf.IF_EQUAL, number, None, "not ioctl")
    made.load(bpf.argument(1))
    for name, request in TERMINAL_TRICKS.items():
        _decide(made, bpf.IF_EQUAL, request, bpf.errno(errno.EPERM), name)
    made.end(bpf.ALLOW)
    made.label("not ioctl")


def _judge_clone(made: bpf.Assembler, number: int) -> None:
    made.jump(bpf.IF_EQUAL, number, None, "not clone")
    made.load(bpf.argument(0))
    _decide(made, bpf.IF_ANY_BIT, NEW_NAMESPACES, bpf.errno(errno.EPERM), "namespace")
    made.end(bpf.ALLOW)
    made.label("not clone")


def _judge_family(made: bpf.Assembler, number: int, name: str) -> None:
    made.jump(bpf.IF_EQUAL, number, None, f"not {name}")
    made.load(bpf.argument(0))
    for family in FAMILIES.values():
        made.jump(bpf.IF_EQUAL, family, f"{name} allowed", None)
    made.end(bpf.errno(errno.EAFNOSUPPORT))
    made.label(f"{name} allowed")
    made.end(bpf.ALLOW)
    made.label(f"not {name}")

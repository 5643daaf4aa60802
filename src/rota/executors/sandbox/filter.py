"""The list of forbidden system calls as a filter that the kernel runs.

A call of another architecture ends the program.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from rota.errors import Unavailable
from rota.executors.kit.calls import (
    AARCH64,
    FAMILIES,
    FORBIDDEN,
    NEW_NAMESPACES,
    TERMINAL_TRICKS,
    X86_64,
)
from rota.executors.sandbox import bpf

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

"""The system call filter as BPF.

Jumps go forward to labels. A filter sees one call: its number, the machine's architecture and six
arguments of 64 bits, of which the kernel looks at one half at a time.

A call of another architecture ends the program.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from rota.errors import Unavailable
from rota.executors.shared.syscalls import (
    AARCH64,
    FAMILIES,
    FORBIDDEN,
    NEW_NAMESPACES,
    TERMINAL_TRICKS,
    X86_64,
)

X32 = 0x40000000


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture as the kernel calls it, and the numbers of its calls."""

    name: str
    architecture: int
    numbers: Mapping[str, int]


MACHINES = {
    "x86_64": Architecture("x86_64", 0xC000003E, X86_64),
    "aarch64": Architecture("aarch64", 0xC00000B7, AARCH64),
}


@cache
def filter_for(machine: str) -> bytes:
    """Return the filter for an architecture, by the name `uname -m` gives it."""
    if machine not in MACHINES:
        known = " or ".join(MACHINES)
        raise Unavailable(f"no filter of system calls for {machine}: sandbox needs {known}")
    return build(MACHINES[machine])


def build(machine: Architecture) -> bytes:
    """Return the filter as the kernel reads it."""
    numbers = machine.numbers
    made = BpfAssembler()
    made.load(ARCHITECTURE_AT)
    made.jump(IF_EQUAL, machine.architecture, "known", "foreign")
    made.label("foreign")
    made.end(KILL)
    made.label("known")
    made.load(NUMBER_AT)
    if machine.name == "x86_64":
        _decide(made, IF_AT_LEAST, X32, return_errno(errno.ENOSYS), "x32")
    for name in sorted(FORBIDDEN & numbers.keys()):
        _decide(made, IF_EQUAL, numbers[name], return_errno(errno.EPERM), name)
    _decide(made, IF_EQUAL, numbers["clone3"], return_errno(errno.ENOSYS), "clone3")
    _judge_ioctl(made, numbers["ioctl"])
    _judge_clone(made, numbers["clone"])
    _judge_family(made, numbers["socket"], "socket")
    _judge_family(made, numbers["socketpair"], "socketpair")
    made.end(ALLOW)
    return made.assemble()


def _decide(made: BpfAssembler, code: int, value: int, verdict: int, name: str) -> None:
    made.jump(code, value, None, f"not {name}")
    made.end(verdict)
    made.label(f"not {name}")


def _judge_ioctl(made: BpfAssembler, number: int) -> None:
    # The kernel reads 32 bits of the request; whatever a program puts above them is no disguise.
    made.jump(IF_EQUAL, number, None, "not ioctl")
    made.load(argument(1))
    for name, request in TERMINAL_TRICKS.items():
        _decide(made, IF_EQUAL, request, return_errno(errno.EPERM), name)
    made.end(ALLOW)
    made.label("not ioctl")


def _judge_clone(made: BpfAssembler, number: int) -> None:
    made.jump(IF_EQUAL, number, None, "not clone")
    made.load(argument(0))
    _decide(made, IF_ANY_BIT, NEW_NAMESPACES, return_errno(errno.EPERM), "namespace")
    made.end(ALLOW)
    made.label("not clone")


def _judge_family(made: BpfAssembler, number: int, name: str) -> None:
    made.jump(IF_EQUAL, number, None, f"not {name}")
    made.load(argument(0))
    for family in FAMILIES.values():
        made.jump(IF_EQUAL, family, f"{name} allowed", None)
    made.end(return_errno(errno.EAFNOSUPPORT))
    made.label(f"{name} allowed")
    made.end(ALLOW)
    made.label(f"not {name}")


LOAD = 0x20  # ld [k]
IF_EQUAL = 0x15  # jeq #k
IF_AT_LEAST = 0x35  # jge #k
IF_ANY_BIT = 0x45  # jset #k
RETURN = 0x06  # ret #k

ALLOW = 0x7FFF0000
KILL = 0x80000000
NUMBER_AT = 0
ARCHITECTURE_AT = 4
ARGUMENTS_AT = 16

MAX_JUMP = 255
MAX_FILTER = 4096


def return_errno(number: int) -> int:
    """Return the verdict that makes a call fail with an error."""
    return 0x00050000 | number


def argument(index: int) -> int:
    """Return where the lower half of an argument lies, on machines with the lower half first."""
    return ARGUMENTS_AT + 8 * index


@dataclass(frozen=True, slots=True)
class BpfInstruction:
    """One instruction; a jump names its labels, None goes on with the next step."""

    code: int
    value: int
    then: str | None = None
    otherwise: str | None = None


@dataclass(slots=True)
class BpfAssembler:
    """Collects steps and labels, and turns them into the bytes the kernel reads."""

    steps: list[BpfInstruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def load(self, offset: int) -> None:
        """Look at four bytes of the call."""
        self.steps.append(BpfInstruction(LOAD, offset))

    def jump(
        self, code: int, value: int, then: str | None = None, otherwise: str | None = None
    ) -> None:
        """Go on at one label or the other."""
        self.steps.append(BpfInstruction(code, value, then, otherwise))

    def end(self, verdict: int) -> None:
        """Decide the call."""
        self.steps.append(BpfInstruction(RETURN, verdict))

    def label(self, name: str) -> None:
        """Name the next step."""
        if name in self.labels:
            raise ValueError(name)
        self.labels[name] = len(self.steps)

    def assemble(self) -> bytes:
        """Return the filter."""
        if len(self.steps) > MAX_FILTER:
            raise ValueError(len(self.steps))
        return b"".join(_encoded(self.steps, self.labels))


def _encoded(steps: Sequence[BpfInstruction], labels: dict[str, int]) -> list[bytes]:
    made = []
    for position, step in enumerate(steps):
        jumps = [
            0 if name is None else labels[name] - position - 1
            for name in (step.then, step.otherwise)
        ]
        if any(not 0 <= jump <= MAX_JUMP for jump in jumps):
            raise ValueError(step)
        made.append(struct.pack("=HBBI", step.code, *jumps, step.value))
    return made

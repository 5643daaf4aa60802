"""The system call filter as BPF.

Jumps go forward to labels. A filter sees one call: its number, the architecture and six arguments
of 64 bits, which are loaded in halves. A call of another architecture kills the program.
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
    TERMINAL_REQUESTS,
    X86_64,
)

X32 = 0x40000000


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture and its system call numbers."""

    name: str
    architecture: int
    numbers: Mapping[str, int]


MACHINES = {
    "x86_64": Architecture("x86_64", 0xC000003E, X86_64),
    "aarch64": Architecture("aarch64", 0xC00000B7, AARCH64),
}


@cache
def filter_for(machine: str) -> bytes:
    """Return the filter for an architecture by its name in `uname -m`."""
    if machine not in MACHINES:
        known = " or ".join(MACHINES)
        raise Unavailable(f"no filter of system calls for {machine}: sandbox needs {known}")
    return build(MACHINES[machine])


def build(machine: Architecture) -> bytes:
    """Return the filter in binary form."""
    numbers = machine.numbers
    made = BpfAssembler()
    made.load(ARCHITECTURE_AT)
    made.jump(IF_EQUAL, machine.architecture, "known", "foreign")
    made.label("foreign")
    made.end(KILL)
    made.label("known")
    made.load(NUMBER_AT)
    if machine.name == "x86_64":
        _add_rule(made, IF_AT_LEAST, X32, return_errno(errno.ENOSYS), "x32")
    for name in sorted(FORBIDDEN & numbers.keys()):
        _add_rule(made, IF_EQUAL, numbers[name], return_errno(errno.EPERM), name)
    _add_rule(made, IF_EQUAL, numbers["clone3"], return_errno(errno.ENOSYS), "clone3")
    _add_ioctl_rules(made, numbers["ioctl"])
    _add_clone_rules(made, numbers["clone"])
    _add_family_rules(made, numbers["socket"], "socket")
    _add_family_rules(made, numbers["socketpair"], "socketpair")
    made.end(ALLOW)
    return made.assemble()


def _add_rule(made: BpfAssembler, code: int, value: int, verdict: int, name: str) -> None:
    made.jump(code, value, None, f"not {name}")
    made.end(verdict)
    made.label(f"not {name}")


def _add_ioctl_rules(made: BpfAssembler, number: int) -> None:
    # The kernel uses 32 bits of the request, so the upper half does not matter.
    made.jump(IF_EQUAL, number, None, "not ioctl")
    made.load(argument(1))
    for name, request in TERMINAL_REQUESTS.items():
        _add_rule(made, IF_EQUAL, request, return_errno(errno.EPERM), name)
    made.end(ALLOW)
    made.label("not ioctl")


def _add_clone_rules(made: BpfAssembler, number: int) -> None:
    made.jump(IF_EQUAL, number, None, "not clone")
    made.load(argument(0))
    _add_rule(made, IF_ANY_BIT, NEW_NAMESPACES, return_errno(errno.EPERM), "namespace")
    made.end(ALLOW)
    made.label("not clone")


def _add_family_rules(made: BpfAssembler, number: int, name: str) -> None:
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
    """Return the action that makes a call fail with an errno."""
    return 0x00050000 | number


def argument(index: int) -> int:
    """Return the offset of the lower half of an argument on little-endian machines."""
    return ARGUMENTS_AT + 8 * index


@dataclass(frozen=True, slots=True)
class BpfInstruction:
    """One instruction; labels of a jump that are None mean the next instruction."""

    code: int
    value: int
    then: str | None = None
    otherwise: str | None = None


@dataclass(slots=True)
class BpfAssembler:
    """Collects instructions and labels, and encodes them."""

    steps: list[BpfInstruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def load(self, offset: int) -> None:
        """Load four bytes of the call."""
        self.steps.append(BpfInstruction(LOAD, offset))

    def jump(
        self, code: int, value: int, then: str | None = None, otherwise: str | None = None
    ) -> None:
        """Continue at one of two labels."""
        self.steps.append(BpfInstruction(code, value, then, otherwise))

    def end(self, verdict: int) -> None:
        """Return an action."""
        self.steps.append(BpfInstruction(RETURN, verdict))

    def label(self, name: str) -> None:
        """Set a label at the next instruction."""
        if name in self.labels:
            raise ValueError(name)
        self.labels[name] = len(self.steps)

    def assemble(self) -> bytes:
        """Return the encoded filter."""
        if len(self.steps) > MAX_FILTER:
            raise ValueError(len(self.steps))
        return b"".join(_encode(self.steps, self.labels))


def _encode(steps: Sequence[BpfInstruction], labels: dict[str, int]) -> list[bytes]:
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

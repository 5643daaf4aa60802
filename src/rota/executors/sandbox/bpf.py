"""A small assembler for the kernel's packet filters, as far as system calls need it.

Jumps go forward to labels. A filter sees one call: its number, the machine's architecture and six
arguments of 64 bits, of which the kernel looks at one half at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

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

FARTHEST_JUMP = 255
LONGEST_FILTER = 4096


def errno(number: int) -> int:
    """Return the verdict that makes a call fail with an error."""
    return 0x00050000 | number


def argument(index: int) -> int:
    """Return where the lower half of an argument lies, on machines with the lower half first."""
    return ARGUMENTS_AT + 8 * index


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction; a jump names its labels, None goes on with the next step."""

    code: int
    value: int
    then: str | None = None
    otherwise: str | None = None


@dataclass(slots=True)
class Assembler:
    """Collects steps and labels, and turns them into the bytes the kernel reads."""

    steps: list[Step] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    def load(self, offset: int) -> None:
        """Look at four bytes of the call."""
        self.steps.append(Step(LOAD, offset))

    def jump(
        self, code: int, value: int, then: str | None = None, otherwise: str | None = None
    ) -> None:
        """Go on at one label or the other."""
        self.steps.append(Step(code, value, then, otherwise))

    def end(self, verdict: int) -> None:
        """Decide the call."""
        self.steps.append(Step(RETURN, verdict))

    def label(self, name: str) -> None:
        """Name the next step."""
        if name in self.labels:
            raise ValueError(name)
        self.labels[name] = len(self.steps)

    def assemble(self) -> bytes:
        """Return the filter."""
        if len(self.steps) > LONGEST_FILTER:
            raise ValueError(len(self.steps))
        return b"".join(_encoded(self.steps, self.labels))


def _encoded(steps: Sequence[Step], labels: dict[str, int]) -> list[bytes]:
    made = []
    for position, step in enumerate(steps):
        jumps = [
            0 if name is None else labels[name] - position - 1
            for name in (step.then, step.otherwise)
        ]
        if any(not 0 <= jump <= FARTHEST_JUMP for jump in jumps):
            raise ValueError(step)
        made.append(struct.pack("=HBBI", step.code, *jumps, step.value))
    return made

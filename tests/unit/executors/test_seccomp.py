"""The filter of system calls, run by an interpreter of our own."""

import errno
import re
import struct
from pathlib import Path

import pytest

from rota.errors import Unavailable
from rota.executors.sandbox import seccomp
from rota.executors.sandbox.seccomp import MACHINES, filter_for
from rota.executors.shared.syscalls import AARCH64, FORBIDDEN, NEW_NAMESPACES, X86_64

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
I386 = 0x40000003
EVERYDAY = {"x86_64": [0, 1, 9, 59, 231, 257], "aarch64": [56, 63, 64, 93, 221, 222]}


def decide(program, architecture, number, *arguments):
    """Return the verdict of a filter, as the kernel would come to it."""
    words = [(a or 0) & 0xFFFFFFFFFFFFFFFF for a in (*arguments, *[0] * 6)][:6]
    call = struct.pack("<II Q 6Q", number & 0xFFFFFFFF, architecture, 0, *words)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, held = 0, 0
    while True:
        code, then, otherwise, value = steps[at]
        at += 1
        if code == seccomp.LOAD:
            assert value % 4 == 0
            [held] = struct.unpack_from("<I", call, value)
        elif code == seccomp.RETURN:
            return value
        else:
            met = {
                seccomp.IF_EQUAL: held == value,
                seccomp.IF_AT_LEAST: held >= value,
                seccomp.IF_ANY_BIT: bool(held & value),
            }[code]
            at += then if met else otherwise


@pytest.fixture(params=MACHINES)
def machine(request):
    return MACHINES[request.param]


@pytest.fixture
def judge(machine):
    program = filter_for(machine.name)

    def judged(number, *arguments):
        return decide(program, machine.architecture, number, *arguments)

    return judged


def test_every_forbidden_call_fails_as_if_one_had_no_right(machine, judge):
    for name in FORBIDDEN & machine.numbers.keys():
        assert judge(machine.numbers[name]) == seccomp.return_errno(errno.EPERM), name


def test_everything_else_is_allowed(machine, judge):
    judged = set(machine.numbers.values())
    for number in range(500):
        if number not in judged:
            assert judge(number) == seccomp.ALLOW, number
    assert not judged & set(EVERYDAY[machine.name])


def test_another_architecture_ends_the_program(machine):
    for other in (I386, 0x40000028, 0):
        assert decide(filter_for(machine.name), other, 1) == seccomp.KILL


@pytest.mark.parametrize("name", ["ptrace", "mount", "keyctl", "read"])
def test_the_second_way_into_the_kernel_of_x86_does_not_exist(name):
    number = {"read": 0}.get(name) or X86_64.get(name, 0)
    verdict = decide(filter_for("x86_64"), 0xC000003E, number | 0x40000000)
    assert verdict == seccomp.return_errno(errno.ENOSYS)


@pytest.mark.parametrize("request_number", [0x5412, 0x541C, 0x5423])
@pytest.mark.parametrize("disguise", [0, 1 << 32, 0xFFFFFFFF << 32])
def test_typing_into_a_terminal_is_seen_through(machine, judge, request_number, disguise):
    ioctl = machine.numbers["ioctl"]
    assert judge(ioctl, 0, request_number | disguise) == seccomp.return_errno(errno.EPERM)
    assert judge(ioctl, request_number, 0x5401) == seccomp.ALLOW


@pytest.mark.parametrize("bit", [b for b in range(32) if NEW_NAMESPACES >> b & 1])
def test_no_new_namespace_by_clone(machine, judge, bit):
    clone = machine.numbers["clone"]
    assert judge(clone, 1 << bit | 17) == seccomp.return_errno(errno.EPERM)
    assert judge(clone, 0x003D0F00) == seccomp.ALLOW
    assert judge(machine.numbers["clone3"]) == seccomp.return_errno(errno.ENOSYS)


def test_only_sockets_that_a_network_namespace_holds(machine, judge):
    for name in ("socket", "socketpair"):
        for family in range(50):
            verdict = judge(machine.numbers[name], family)
            allowed = family in {1, 2, 10, 16}
            assert verdict == (
                seccomp.ALLOW if allowed else seccomp.return_errno(errno.EAFNOSUPPORT)
            ), family


def test_both_machines_forbid_the_same():
    assert set(X86_64) - set(AARCH64) == {"iopl", "ioperm"}
    assert set(AARCH64) <= set(X86_64)


def test_the_numbers_are_the_kernels(machine):
    header = HEADERS[machine.name]
    if not header.exists():
        pytest.skip(f"the kernel's headers are not installed: {header}")
    said = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    for name, number in machine.numbers.items():
        if name in said:  # newer than the headers otherwise
            assert int(said[name]) == number, name
    assert len(machine.numbers.keys() & said.keys()) > 40


def test_a_machine_without_a_table_is_refused():
    with pytest.raises(Unavailable, match="no filter of system calls for riscv64"):
        filter_for("riscv64")


def test_a_jump_that_is_too_far_or_backwards_is_refused():
    made = seccomp.BpfAssembler()
    made.label("here")
    made.jump(seccomp.IF_EQUAL, 1, "here", None)
    made.end(seccomp.ALLOW)
    with pytest.raises(ValueError, match="BpfInstruction"):
        made.assemble()

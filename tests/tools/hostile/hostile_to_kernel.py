"""Attacks on the kernel: its calls, its switches, its devices."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat
import struct

from hostile_tools import X86, call, in_child

ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__] = function
    return function


@attack
def type_into_the_terminal(facts):
    """B6: TIOCSTI and TIOCLINUX, also with bits above the 32 the kernel looks at."""
    master, slave = os.openpty()

    def push():
        os.setsid()
        fcntl.ioctl(slave, 0x540E, 0)
        for request in (0x5412, 0x541C):
            ioctl = 16 if X86 else 29
            letter = ctypes.create_string_buffer(b"\x02")
            for disguise in (0, 1 << 32):
                failed = call(
                    ioctl, slave, request | disguise, ctypes.cast(letter, ctypes.c_void_p).value
                )
                if failed not in {errno.EPERM, errno.ENOTTY} and not (
                    request == 0x541C and failed == errno.EINVAL
                ):
                    return f"ioctl {request | disguise:x}: {failed}"
        return ""

    try:
        return in_child(push)
    finally:
        os.close(master)
        os.close(slave)


@attack
def type_to_whoever_watches(facts):
    """B6: TIOCSTI through the terminal that it was given, or that it can open or take over."""
    ioctl = 16 if X86 else 29
    letter = ctypes.create_string_buffer(b"#")
    taken = []
    for path in ("/dev/tty", "/dev/console", "/proc/self/fd/1", "/proc/1/fd/1", "/dev/tty1"):
        try:
            taken.append((path, os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)))
        except OSError:
            continue
    standard = [(f"descriptor {number}", number) for number in range(3)]

    def push():
        for name, held in (*standard, *taken):
            if call(ioctl, held, 0x5412, ctypes.addressof(letter)) == 0:
                return f"{name} takes what is typed"
        return ""

    def take_over():
        os.setsid()
        for name, held in (*standard, *taken):
            if os.isatty(held) and call(ioctl, held, 0x540E, 1) == 0:
                return push() or f"{name} can be taken over"
        return ""

    return push() or in_child(take_over)


@attack
def trace_others(facts):
    """B7: ptrace of the parent, memory of others by process_vm_readv and /proc/PID/mem."""
    numbers = {"ptrace": 101, "read": 310} if X86 else {"ptrace": 117, "read": 270}
    for pid in {os.getppid(), 1, facts["pid"]}:
        if call(numbers["ptrace"], 16, pid, 0, 0) == 0:
            call(numbers["ptrace"], 17, pid, 0, 0)
            return f"attached to {pid}"
    vector = struct.pack("NN", 0, 0)
    space = ctypes.create_string_buffer(vector)
    address = ctypes.addressof(space)
    if call(numbers["read"], facts["pid"], address, 1, address, 1, 0) == 0:
        return "process_vm_readv works"
    return ""


@attack
def mount(facts):
    """B8: new mounts, old and new ways."""
    numbers = (
        {"mount": 165, "umount2": 166, "pivot_root": 155}
        if X86
        else {"mount": 40, "umount2": 39, "pivot_root": 41}
    )
    numbers |= {"open_tree": 428, "fsopen": 430, "mount_setattr": 442}
    names = ctypes.create_string_buffer(b"tmpfs\0")
    where = ctypes.create_string_buffer(b"/tmp\0")
    for name, number in numbers.items():
        failed = call(
            number, ctypes.addressof(names), ctypes.addressof(where), ctypes.addressof(names), 0, 0
        )
        if failed not in {errno.EPERM, errno.ENOSYS}:
            return f"{name}: {failed}"
    return ""


@attack
def new_namespaces(facts):
    """B8: unshare, setns, clone with each flag, clone3."""
    flags = [0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000]
    unshare, setns, clone = (272, 308, 56) if X86 else (97, 268, 220)
    for flag in flags:
        if in_child(lambda flag=flag: "open" if call(unshare, flag) == 0 else ""):
            return f"unshare {flag:x}"
        failed = call(clone, flag | signal.SIGCHLD, 0, 0, 0, 0)
        if failed == 0:
            return f"clone {flag:x}"
    own = os.open("/proc/self/ns/user", os.O_RDONLY)
    if call(setns, own, 0) not in {errno.EPERM, errno.ENOSYS}:
        return "setns"
    os.close(own)
    if call(435, 0, 0) != errno.ENOSYS:
        return "clone3"
    return ""


@attack
def doors_of_the_kernel(facts):
    """B8: keys, bpf, perf, userfaultfd, io_uring, kexec, modules, file handles."""
    shared = {"io_uring_setup": 425, "pidfd_getfd": 438}
    x86 = {
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "bpf": 321,
        "perf_event_open": 298,
        "userfaultfd": 323,
        "kexec_load": 246,
        "init_module": 175,
        "finit_module": 313,
        "open_by_handle_at": 304,
        "kcmp": 312,
        "swapon": 167,
        "reboot": 169,
    }
    arm = {
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "bpf": 280,
        "perf_event_open": 241,
        "userfaultfd": 282,
        "kexec_load": 104,
        "init_module": 105,
        "finit_module": 273,
        "open_by_handle_at": 265,
        "kcmp": 272,
        "swapon": 224,
        "reboot": 142,
    }
    for name, number in (shared | (x86 if X86 else arm)).items():
        failed = call(number, 0, 0, 0, 0, 0)
        if failed not in {errno.EPERM, errno.ENOSYS}:
            return f"{name}: {failed}"
    return ""


@attack
def gain_rights(facts):
    """Set-user-id programs, capabilities, becoming root."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    if int(status["CapEff"], 16) or int(status["CapPrm"], 16) or int(status["CapBnd"], 16):
        return f"capabilities {status['CapEff']}"
    if status["NoNewPrivs"].strip() != "1":
        return "new privileges can be gained"
    if os.getuid() == 0:
        return ""  # without a capability the name alone is worth nothing
    try:
        os.setuid(0)
    except OSError:
        return ""
    return "became root"


@attack
def device_nodes(facts):
    """Raw devices: those there are, and new ones."""
    for kind, number in ((stat.S_IFBLK, os.makedev(254, 0)), (stat.S_IFCHR, os.makedev(1, 1))):
        for folder in ("/tmp", facts["folder"], "/dev"):
            path = f"{folder}/node"
            try:
                os.mknod(path, kind | 0o600, number)
                os.close(os.open(path, os.O_RDONLY))
            except OSError:
                continue
            return f"{path} opens"
    for name in ("mem", "kmem", "port", "kmsg", "vda", "sda", "fuse", "kvm", "net/tun", "vsock"):
        if os.path.exists(f"/dev/{name}"):
            return f"/dev/{name} is there"
    return ""


@attack
def tune_the_kernel(facts):
    """What root may write below /proc/sys reaches every process of the machine."""
    for path in (
        "kernel/core_pattern",
        "kernel/modprobe",
        "vm/drop_caches",
        "fs/suid_dumpable",
        "kernel/hostname",
    ):
        try:
            os.close(os.open(f"/proc/sys/{path}", os.O_WRONLY))
        except OSError:
            continue
        return f"/proc/sys/{path} can be written"
    for path in (
        "/proc/sysrq-trigger",
        "/sys/kernel/uevent_helper",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/fs/cgroup/pids/pids.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ):
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError:
            continue
        return f"{path} can be written"
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1000")
    except OSError:
        return ""
    return "it cannot be chosen when memory runs out"

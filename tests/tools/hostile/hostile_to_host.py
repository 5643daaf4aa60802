"""Attacks on the host: its memory, processes, files, sockets and tools."""

from __future__ import annotations

import errno
import mmap
import os
import socket
import subprocess

from hostile_tools import MIB, in_child, readable, writable

ATTACKS = {}


def attack(function):
    ATTACKS[function.__name__] = function
    return function


@attack
def fork_bomb(facts):
    """B1: more children at once than the bound allows."""
    bound, alive = facts["processes"], []
    reading, writing = os.pipe()
    try:
        for _ in range(bound + 20):
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            alive.append(child)
    except OSError as fault:
        if fault.errno != errno.EAGAIN:
            raise
    os.close(writing)
    os.close(reading)
    for child in alive:
        os.waitpid(child, 0)
    return f"{len(alive)} children" if len(alive) >= bound else ""


@attack
def memory(facts):
    """B2: more memory than the bound allows."""

    def swallow():
        held = []
        for _ in range(facts["memory"] // (16 * MIB) + 4):
            block = mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for page in range(0, 16 * MIB, 4096):
                block[page] = 1
            held.append(block)
        return f"{len(held) * 16} MiB held"

    return in_child(swallow)


@attack
def fill_the_root(facts):
    """B2, B10: files where nobody counts them."""
    for path in ("/x", "/etc/x", "/usr/x", "/dev/x", "/run/x", "/proc/x", "/var/x", "/bin/x"):
        if writable(path):
            size = os.statvfs(os.path.dirname(path))
            os.unlink(path)
            if size.f_blocks * size.f_frsize > 256 * MIB:
                return f"{path} can be made"
    return ""


@attack
def see_processes_of_others(facts):
    """B7: a process of the host, its environment, its memory, and a signal to it."""
    pid = facts["pid"]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        if facts["marker"].encode() in readable(f"/proc/{entry}/cmdline"):
            return f"process {entry} can be seen"
        with_secret = b""
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                with_secret = file.read()
        except OSError:
            pass
        if facts["secret"].encode() in with_secret:
            return f"environment of {entry} can be read"
    if facts["marker"].encode() in readable(f"/proc/{pid}/cmdline"):
        os.kill(pid, 0)
        return f"process {pid} takes signals"
    return ""


@attack
def reach_the_network(facts):
    """C4: a listener of the host, the Internet, names, other kinds of network."""
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", facts["port"])),
        (socket.AF_INET, ("1.1.1.1", 53)),
        (socket.AF_INET, ("169.254.169.254", 80)),
        (socket.AF_INET6, ("::1", facts["port"])),
    ):
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.settimeout(2)
            try:
                tried.connect(address)
            except OSError:
                continue
            return f"{address} answers"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as tried:
        try:
            tried.sendto(b"x", ("1.1.1.1", 53))
        except OSError:
            pass
        else:
            return "datagrams leave"
    for family in (40, 38, 17, 44):
        try:
            socket.socket(family, socket.SOCK_STREAM if family != 38 else 5).close()
        except OSError:
            continue
        return f"sockets of family {family} can be made"
    return ""


@attack
def reach_sockets_of_the_host(facts):
    """B9: docker, dbus, X11, agents of ssh, tmux of others, abstract names."""
    paths = [
        "/var/run/docker.sock",
        "/run/docker.sock",
        "/run/podman/podman.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/tmp/.X11-unix/X0",
        f"/tmp/tmux-{os.getuid()}/default",
        "/tmp/tmux-0/default",
        facts["socket"],
        "\0" + facts["abstract"],
    ]
    for path in paths:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
            try:
                tried.connect(path)
            except OSError:
                continue
            return f"{path!r} answers"
    return ""


@attack
def read_secrets(facts):
    """C1: known secrets of the host in every place they could be found."""
    secret = facts["secret"].encode()
    for path in (
        facts["secret_file"],
        "/etc/shadow",
        "/root/.ssh/id_rsa",
        "/root/.bashrc",
        f"/proc/{facts['pid']}/environ",
    ):
        if readable(path):
            return f"{path} can be read"
    for variable, value in os.environb.items():
        if secret in value:
            return f"{variable} holds it"
    with open("/proc/self/mountinfo") as file:
        text = file.read()
    for place in ("/proc/1/environ", "/proc/1/cmdline", f"/proc/{os.getppid()}/environ"):
        try:
            with open(place, "rb") as file:
                if secret in file.read():
                    return f"{place} holds it"
        except OSError:
            continue
    return "mounts tell a secret" if facts["secret"] in text else ""


@attack
def plant_hooks(facts):
    """A14: what a tool of the host would run later, also by moving folders aside."""
    os.chdir(facts["folder"])
    for path in (
        ".git/hooks/pre-commit",
        ".git/config",
        ".claude/settings.json",
        ".vscode/tasks.json",
        ".envrc",
        ".mcp.json",
    ):
        top = path.split("/")[0]
        tricks = {
            "made": lambda path=path: os.makedirs(os.path.dirname(path)),
            "written": lambda path=path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT)),
            "moved": lambda top=top: os.rename(top, "aside"),
            "removed": lambda top=top: os.unlink(top),
            "emptied": lambda top=top: os.rmdir(top),
            "linked": lambda path=path: os.link(path, "second"),
            "changed": lambda path=path: os.chmod(path, 0o777),
            "replaced": lambda path=path: os.symlink("/tmp", path),
        }
        for how, trick in tricks.items():
            try:
                trick()
            except OSError:
                continue
            return f"{path} was {how}"
    return ""


@attack
def climb_out(facts):
    """Links, dots, left-open descriptors, other roots."""
    for number in range(3, 64):
        try:
            os.fstat(number)
        except OSError:
            continue
        return f"descriptor {number} was left open: {os.readlink(f'/proc/self/fd/{number}')}"
    link = f"{facts['folder']}/link"
    if not os.path.lexists(link):
        os.symlink(facts["secret_file"], link)
    for path in (
        link,
        f"{facts['folder']}/../../{os.path.basename(facts['secret_file'])}",
        f"/proc/1/root{facts['secret_file']}",
        f"/proc/self/cwd/../{os.path.basename(facts['secret_file'])}",
    ):
        if facts["secret"].encode() in readable(path):
            return f"{path} can be read"
    try:
        os.chroot("/tmp")
    except OSError:
        return ""
    return "chroot works"


@attack
def come_back_later(facts):
    """B3: what would start a program of its own again, once the attempt is over."""
    later = (
        *("/etc/crontab", "/etc/cron.d/x", "/var/spool/cron/crontabs/root", "/var/spool/cron/x"),
        *("/var/spool/cron/atjobs/x", "/var/spool/at/x", "/etc/systemd/system/x.service"),
        *("/run/systemd/system/x.service", "/run/systemd/transient/x.service"),
        *("/var/lib/systemd/linger/root", "/etc/rc.local", "/etc/profile.d/x.sh", "/root/.profile"),
    )
    for path in later:
        if writable(path):
            return f"{path} can be written"
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    tools = {"crontab": "-", "at": "now", "systemd-run": "true", "loginctl": "enable-linger"}
    for name, word in tools.items():
        tool = f"/usr/bin/{name}"
        if os.path.exists(tool) and not subprocess.call([tool, word], timeout=10, **quiet):
            return f"{name} took it"
    return ""


@attack
def see_the_state(facts):
    """A13: the attempt's own state, where the host reads and writes."""
    return f"{facts['state']} can be seen" if os.path.exists(facts["state"]) else ""

"""The walls, as words for bubblewrap: everything is named, nothing is optional, nothing inherited.

Beside bubblewrap's own words there are six that `enter` replaces just before it becomes
bubblewrap, because they need something open: `--show ROOT PATH` and `--lend ROOT PATH` (a path of
the host, read-only or writable, reached without following links), `--guard PATH NAME` (what a tool
of the host would run later), `--outlet SOCKET PATH`, `--folder FOLDER PATH` (that holds nothing but
a socket) and `--text PATH CONTENT` (a small file).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.executors.kit import forward, start
from rota.executors.kit.beneath import steps_below
from rota.executors.kit.executor import Interpreter, Outlet, Room
from rota.executors.kit.mounts import Mount
from rota.executors.kit.system import System
from rota.model.programs import MIB, Command
from rota.model.sites import Network

USER = 1000
OWN_MEMORY = {"/dev/shm": 256 * MIB, "/tmp": 1024 * MIB, "/var/tmp": 256 * MIB}  # noqa: S108
"""Folders in memory, bounded, gone with the program; none is larger than the memory it may use."""
START = str(Path(start.__file__))
START_INSIDE = "/run/rota/start.py"
FORWARD = str(Path(forward.__file__))
FORWARD_INSIDE = "/run/rota/forward.py"
SOCKET_INSIDE = "/run/rota/outlet.sock"
DESK_INSIDE = "/run/rota/desk"
FOLDER_INSIDE = "/run/rota/outlet"

NAMESPACES = (
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--assert-userns-disabled",
)
SESSION = ("--new-session", "--die-with-parent", "--cap-drop", "ALL")
FROM_ETC = (
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
)
"""What programs need of /etc to load libraries, trust certificates and tell the time."""
FROM_ETC_ONLINE = ("hosts", "resolv.conf", "gai.conf")
TELLTALE = ("keys", "key-users", "timer_list", "kallsyms", "latency_stats", "sched_debug", "scsi")
"""What /proc tells about the whole machine."""


@dataclass(frozen=True, slots=True)
class Host:
    """What the walls are built of here."""

    links: Sequence[tuple[str, str]]
    folders: Sequence[str]
    etc: Sequence[str]
    etc_online: Sequence[str]
    telltale: Sequence[str]

    @classmethod
    def here(cls, root: str = "/") -> Host:
        """Look at this machine."""
        system = System.here(root)
        found = {"etc": FROM_ETC, "online": FROM_ETC_ONLINE, "proc": TELLTALE}
        there = {
            kind: [n for n in names if Path(root, "etc" if kind != "proc" else kind, n).exists()]
            for kind, names in found.items()
        }
        return cls(
            links=list(system.links),
            folders=list(system.folders),
            etc=there["etc"],
            etc_online=there["online"],
            telltale=there["proc"],
        )


def walls(host: Host, python: Interpreter, room: Room, mounts: Sequence[Mount]) -> list[str]:
    """Return everything but the program: namespaces, files, devices, in the order they are made."""
    words = [*NAMESPACES]
    if room.network is Network.OPEN:
        words.append("--share-net")
    words += [*SESSION, "--uid", str(USER), "--gid", str(USER), "--hostname", "rota"]
    words += [*_system(host, python, room), *_kernel(host, room), *_own(room, mounts)]
    return words


def _system(host: Host, python: Interpreter, room: Room) -> list[str]:
    words = []
    for folder in host.folders:
        words += ["--ro-bind", folder, folder]
    for target, link in host.links:
        words += ["--symlink", target, link]
    online = host.etc_online if room.network is Network.OPEN else ()
    for name in (*host.etc, *online):
        words += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    words += ["--text", "/etc/passwd", f"agent:x:{USER}:{USER}::{room.home}:/bin/sh\n"]
    words += ["--text", "/etc/group", f"agent:x:{USER}:\n"]
    words += ["--text", "/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"]
    if "hosts" not in online:
        words += ["--text", "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"]
    if steps_below("/usr", python.prefix) is None:
        words += ["--ro-bind", python.prefix, python.prefix]
    return words


def _kernel(host: Host, room: Room) -> list[str]:
    # To whoever is root outside the files below /proc/sys are their own: all of /proc is read-only.
    words = ["--proc", "/proc"]
    for name in host.telltale:
        words += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    words += ["--remount-ro", "/proc", "--dev", "/dev"]
    for folder, size in OWN_MEMORY.items():
        words += ["--size", str(min(size, room.bounds.memory_bytes or size)), "--tmpfs", folder]
    return [*words, "--remount-ro", "/dev"]


def _own(room: Room, mounts: Sequence[Mount]) -> list[str]:
    words = []
    for mount in mounts:
        words += ["--lend" if mount.write else "--show", mount.root, mount.path]
    for mount in mounts:
        if mount.path == room.folder and mount.write:
            for name in room.guarded:
                words += ["--guard", room.folder, name]
    return words


def last_steps(
    python: Interpreter,
    limits: Sequence[str],
    outlet: Outlet | None,
    desk: Outlet | None = None,
) -> tuple[list[str], list[str]]:
    """Return what the last steps before the program need to see, and the steps themselves.

    Each costs a start of Python, so there is none without a reason.
    """
    seen: list[str] = []
    steps: list[str] = []
    if limits:
        seen += ["--ro-bind", START, START_INSIDE]
        steps += [*python.script(START_INSIDE), *limits, "--"]
    ways: list[str] = []
    if outlet or desk:
        seen += ["--ro-bind", FORWARD, FORWARD_INSIDE]
    if outlet:
        socket = SOCKET_INSIDE
        if outlet.alone:
            folder, _, name = outlet.socket.rpartition("/")
            seen += ["--folder", folder, FOLDER_INSIDE]
            socket = f"{FOLDER_INSIDE}/{name}"
        else:
            seen += ["--outlet", outlet.socket, SOCKET_INSIDE]
        ways += [str(outlet.port), socket]
    if desk:
        folder, _, name = desk.socket.rpartition("/")
        seen += ["--ro-bind", folder, DESK_INSIDE]
        ways += [str(desk.port), f"{DESK_INSIDE}/{name}"]
    if ways:
        steps += [*python.script(FORWARD_INSIDE), *ways, "--"]
    return seen, steps


def closing(command: Command) -> list[str]:
    """Return the last words: nothing of the root stays writable, and where the program starts."""
    return ["--remount-ro", "/", "--chdir", os.path.normpath(command.cwd)]

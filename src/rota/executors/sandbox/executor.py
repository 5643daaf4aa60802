"""The executor that runs programs in bubblewrap, and the arguments of bubblewrap.

Besides bubblewrap's own arguments there are six that the entrypoint replaces just before it becomes
bubblewrap, because they need an open descriptor: `--show ROOT PATH` and `--lend ROOT PATH` (mount a
path of the host read-only or writable, without following links), `--guard PATH NAME` (protect a
name that tools of the host would execute), `--egress SOCKET PATH`, `--folder FOLDER PATH` (a folder
that only has a socket) and `--text PATH CONTENT` (a small file).
"""

from __future__ import annotations

import base64
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.sandbox.seccomp import MACHINES, filter_for
from rota.executors.shared import exec_program, port_forward
from rota.executors.shared.mounts import (
    Mount,
    MountAllowlist,
    SystemFolders,
    environment,
    load_mounts,
)
from rota.executors.shared.resource_limits import (
    CgroupHierarchy,
    enforced_limits,
    find_hierarchy,
    limit_arguments,
    limited_separately,
    remove_cgroup,
)
from rota.keeper.build import Interpreter
from rota.keeper.paths import steps_below
from rota.model.executors import ExecutorCapabilities, Isolation
from rota.model.programs import MIB, LimitEnforcement, NetworkAccess, Program, Site
from rota.model.spaces import SpaceRole
from rota.ports.executor import (
    SEARCH_PATH,
    EgressSocket,
    ExecutionSpec,
    ExecutorHost,
    ExecutorPlugin,
    KeeperSpec,
    MissingRequirement,
    ProcessTreeMode,
    StopSignalTarget,
    refuse,
)

NEEDED_OPTIONS = (
    "--disable-userns",
    "--assert-userns-disabled",
    "--bind-fd",
    "--seccomp",
    "--size",
)
TRIAL_SECONDS = 10.0


class SandboxExecutor:
    """Runs a program in its own namespaces, with a system call filter.

    Without root the kernel counts the processes of a sandbox separately. Processes of root can only
    be limited by a cgroup; without one, a spec that limits them is rejected.
    """

    name = "sandbox"
    certain_kill = True

    def __init__(
        self,
        python: Interpreter,
        mounts: MountAllowlist,
        *,
        hierarchy: CgroupHierarchy | None = None,
        search_path: str = SEARCH_PATH,
        machine: str = "",
        host: HostFeatures | None = None,
    ) -> None:
        self._python = python
        self._mounts = mounts
        self._hierarchy = hierarchy
        self._search_path = search_path
        self._machine = machine or platform.machine()
        self._host = host or HostFeatures.here()

    def check(self) -> list[MissingRequirement]:
        """Run /bin/true in a sandbox, and return what prevents that."""
        missing = self._lacking()
        if missing:
            return missing
        told = _output_of([self._bubblewrap(), "--help"])
        lacking = [word for word in NEEDED_OPTIONS if f"    {word} " not in told]
        if lacking:
            return [
                MissingRequirement(
                    f"bubblewrap with {', '.join(lacking)}", self._bubblewrap(), "update it"
                )
            ]
        held = self._hierarchy.controllers if self._hierarchy else frozenset()
        unbounded = os.geteuid() == 0 and "pids" not in held
        missing = self._try_out() or ([UNBOUNDED] if unbounded else [])
        return missing or limited_separately(self._hierarchy, "memory", "cpu")

    def admit(self, site: Site, role: SpaceRole) -> None:
        """Refuse mounts that are not allowed."""
        for share in site.mounts:
            self._mounts.share(share, role)

    def holds(self, *, isolated: bool) -> Mapping[str, LimitEnforcement]:  # noqa: ARG002 - it has walls
        """Return how limits are enforced."""
        return enforced_limits(self._hierarchy, counts_alone=os.geteuid() != 0)

    def wrap(self, command: Program, room: ExecutionSpec) -> KeeperSpec:
        """Return the program in a sandbox."""
        refuse(self.name, self._lacking())
        held = limit_arguments(with_forwarders(room), self._hierarchy, counts_alone=True)
        if held.inside and os.geteuid() == 0:
            refuse(self.name, [UNBOUNDED])
        seen, steps = start_programs(self._python, held.inside, room.egress, room.desk)
        words = [
            *held.outside,
            self._bubblewrap(),
            base64.b64encode(filter_for(self._machine)).decode(),
            *bwrap_arguments(self._host, self._python, room, self._mounts.of(room)),
            *seen,
            *final_arguments(command),
            *("--", *steps, *command.argv),
        ]
        argv = self._python.module("rota.executors.sandbox.entrypoint", *words)
        env = environment(command, room)
        wrapped = replace(command, argv=argv, env=env, cwd="/")
        return KeeperSpec(
            name=room.name,
            command=wrapped,
            bounds=held.left,
            tree=ProcessTreeMode.AUTO,
            term=StopSignalTarget.ALL,
        )

    def sweep(self, spec: KeeperSpec) -> None:
        """Remove the attempt's cgroup; everything else ended with the namespaces."""
        if self._hierarchy:
            remove_cgroup(self._hierarchy, spec.name)

    def _bubblewrap(self) -> str:
        return shutil.which("bwrap", path=self._search_path) or ""

    def _lacking(self) -> list[MissingRequirement]:
        if self._machine not in MACHINES:
            known = " or ".join(MACHINES)
            return [MissingRequirement("a filter of system calls", self._machine, f"use {known}")]
        if not self._bubblewrap():
            return [
                MissingRequirement(
                    "bubblewrap", self._search_path, "install the package bubblewrap"
                )
            ]
        return []

    def _try_out(self) -> list[MissingRequirement]:
        bare = ExecutionSpec(
            name="check",
            state="/nonexistent",
            folder="/",
            home="/tmp",  # noqa: S108 - the sandbox's own
            role=SpaceRole.MEMBER,
            network=NetworkAccess.NONE,
        )
        seen, steps = start_programs(self._python, ("--limit", "NPROC", "64"), None)
        words = [
            self._bubblewrap(),
            base64.b64encode(filter_for(self._machine)).decode(),
            *bwrap_arguments(self._host, self._python, bare, ()),
            *seen,
            *final_arguments(Program(argv=())),
            *("--", *steps, "/bin/true"),
        ]
        said = _output_of(self._python.module("rota.executors.sandbox.entrypoint", *words))
        if not said:
            return []
        return [MissingRequirement("a working sandbox", said, "allow user namespaces to this user")]


def with_forwarders(room: ExecutionSpec) -> ExecutionSpec:
    """Return a spec whose process limit does not count the port forwarders.

    There is one process per socket, and one more while they are started.
    """
    ways, most = [way for way in (room.egress, room.desk) if way], room.bounds.processes
    if not ways or most is None:
        return room
    return replace(room, bounds=replace(room.bounds, processes=most + len(ways) + 1))


UNBOUNDED = MissingRequirement(
    "a limit on root's processes",
    "cgroup",
    "run Rota as a user of its own, or delegate a cgroup to it (Delegate=yes)",
)


def _output_of(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": SEARCH_PATH},
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"sandbox: {argv[0]} does not answer: {error}") from error
    text = done.stdout.decode(errors="replace").strip()
    return text if done.returncode == 0 else text or f"it ended with {done.returncode}"


USER = 1000
MEMORY_FOLDERS = {"/dev/shm": 256 * MIB, "/tmp": 1024 * MIB, "/var/tmp": 256 * MIB}  # noqa: S108
"""Folders in memory of limited size; none is larger than the program's memory limit."""
START = str(Path(exec_program.__file__))
START_INSIDE = "/run/rota/start.py"
FORWARD = str(Path(port_forward.__file__))
FORWARD_INSIDE = "/run/rota/forward.py"
SOCKET_INSIDE = "/run/rota/egress.sock"
DESK_INSIDE = "/run/rota/desk"
FOLDER_INSIDE = "/run/rota/egress"

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
"""Files of /etc that programs need to load libraries, verify certificates and tell the time."""
FROM_ETC_ONLINE = ("hosts", "resolv.conf", "gai.conf")
HOST_WIDE_PROC = (
    "keys",
    "key-users",
    "timer_list",
    "kallsyms",
    "latency_stats",
    "sched_debug",
    "scsi",
)
"""Files of /proc about the whole machine."""


@dataclass(frozen=True, slots=True)
class HostFeatures:
    """Files and folders of this machine that sandboxes use."""

    links: Sequence[tuple[str, str]]
    folders: Sequence[str]
    etc: Sequence[str]
    etc_online: Sequence[str]
    telltale: Sequence[str]

    @classmethod
    def here(cls, root: str = "/") -> HostFeatures:
        """Examine this machine."""
        system = SystemFolders.here(root)
        found = {"etc": FROM_ETC, "online": FROM_ETC_ONLINE, "proc": HOST_WIDE_PROC}
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


def bwrap_arguments(
    host: HostFeatures, python: Interpreter, room: ExecutionSpec, mounts: Sequence[Mount]
) -> list[str]:
    """Return namespaces, files and devices as arguments, in order."""
    words = [*NAMESPACES]
    if room.network is NetworkAccess.OPEN:
        words.append("--share-net")
    words += [*SESSION, "--uid", str(USER), "--gid", str(USER), "--hostname", "rota"]
    words += [*_system(host, python, room), *_kernel(host, room), *_own(room, mounts)]
    return words


def _system(host: HostFeatures, python: Interpreter, room: ExecutionSpec) -> list[str]:
    words = []
    for folder in host.folders:
        words += ["--ro-bind", folder, folder]
    for target, link in host.links:
        words += ["--symlink", target, link]
    online = host.etc_online if room.network is NetworkAccess.OPEN else ()
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


def _kernel(host: HostFeatures, room: ExecutionSpec) -> list[str]:
    # Files below /proc/sys belong to root, who may be running this: make all of /proc read-only.
    words = ["--proc", "/proc"]
    for name in host.telltale:
        words += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    words += ["--remount-ro", "/proc", "--dev", "/dev"]
    for folder, size in MEMORY_FOLDERS.items():
        words += ["--size", str(min(size, room.bounds.memory_bytes or size)), "--tmpfs", folder]
    return [*words, "--remount-ro", "/dev"]


def _own(room: ExecutionSpec, mounts: Sequence[Mount]) -> list[str]:
    words = []
    for mount in mounts:
        words += ["--lend" if mount.write else "--show", mount.root, mount.path]
    for mount in mounts:
        if mount.path == room.folder and mount.write:
            for name in room.guarded:
                words += ["--guard", room.folder, name]
    return words


def start_programs(
    python: Interpreter,
    limits: Sequence[str],
    egress: EgressSocket | None,
    desk: EgressSocket | None = None,
) -> tuple[list[str], list[str]]:
    """Return the mounts for the programs run before the actual one, and these programs.

    Each starts Python once, so they are only added when needed.
    """
    seen: list[str] = []
    steps: list[str] = []
    if limits:
        seen += ["--ro-bind", START, START_INSIDE]
        steps += [*python.script(START_INSIDE), *limits, "--"]
    ways: list[str] = []
    if egress or desk:
        seen += ["--ro-bind", FORWARD, FORWARD_INSIDE]
    if egress:
        socket = SOCKET_INSIDE
        if egress.alone:
            folder, _, name = egress.socket.rpartition("/")
            seen += ["--folder", folder, FOLDER_INSIDE]
            socket = f"{FOLDER_INSIDE}/{name}"
        else:
            seen += ["--egress", egress.socket, SOCKET_INSIDE]
        ways += [str(egress.port), socket]
    if desk:
        folder, _, name = desk.socket.rpartition("/")
        seen += ["--ro-bind", folder, DESK_INSIDE]
        ways += [str(desk.port), f"{DESK_INSIDE}/{name}"]
    if ways:
        steps += [*python.script(FORWARD_INSIDE), *ways, "--"]
    return seen, steps


def final_arguments(command: Program) -> list[str]:
    """Return the last arguments: the root becomes read-only, and the working folder."""
    return ["--remount-ro", "/", "--chdir", os.path.normpath(command.cwd)]


def _make(_settings: object, host: ExecutorHost) -> SandboxExecutor:
    mounts = load_mounts(host.home, host.mounts)
    return SandboxExecutor(Interpreter.running(), mounts, hierarchy=find_hierarchy())


PLUGIN = ExecutorPlugin(
    make=_make,
    capabilities=ExecutorCapabilities(
        isolation=Isolation.ALWAYS, default_for=frozenset({SpaceRole.MEMBER})
    ),
)

"""Process: checks the mounts of a container and becomes the engine's client.

Engines take paths, not descriptors, and a path can be replaced after it was checked. Podman makes
the mounts before it starts the program (`init`), so each mount is compared with a descriptor that
was held open all the time. With docker the paths can only be checked just before. Both first create
a container and then start it; errors until then are the engine's.

The program's environment is passed in memory, never on a command line. The environment of this
process is the program's; the client has its own.

A program with sockets of the host starts when its sidecar is running and all ports answer. The
client holds the sidecar's FIFO open, so that the sidecar ends with the client, however that ends.

Arguments: KIND STATE PROFILE [--client NAME=VALUE]... ENGINE... -- SIDECAR... -- ISOLATION...
-- IMAGE PROGRAM ARGUMENT...
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys

from rota.errors import NotPermitted, Refused, RotaError, Unavailable, shown
from rota.executors.shared.exec_program import CANNOT_START, NOT_STARTED, inherited_environment
from rota.keeper.paths import exists_in_root, guard_names, open_below

ENGINE_SECONDS = 60.0
SIDECAR_SECONDS = 30.0
ENGINE_FAILED = 125
"""Exit code as docker uses it: another attempt may find the engine in a better state."""
NO_IMAGE = ("image not known", "No such image")
"""Errors of podman and docker after which another attempt is useless."""
INSPECT_FORMAT = "{{.State.Pid}} {{json .Config}}"
"""Format of podman's inspect: the first process, and the resolved configuration."""


class InspectedPath:
    """A checked path, held open, and its mount point."""

    def __init__(self, source: str, held: int, inside: str, *, write: bool) -> None:
        self.source = source
        self.held = held
        self.inside = inside
        self.write = write

    def words(self) -> list[str]:
        """Return the mount as arguments of the engine."""
        parts = ["type=bind", f"source={self.source}", f"destination={self.inside}"]
        return ["--mount", ",".join([*parts, *([] if self.write else ["readonly"])])]

    def is_at(self, path: str) -> bool:
        """Whether another path refers to the same file."""
        return os.path.samestat(os.stat(path), os.fstat(self.held))  # noqa: PTH116


def main(words: list[str]) -> int:
    """Become the engine's client; returns only on failure."""
    kind, state, profile, *rest = words
    client = {}
    while rest[0] == "--client":
        name, value = rest[1].split("=", 1)
        client[name] = value
        rest = rest[2:]
    first = rest.index("--")
    second = rest.index("--", first + 1)
    third = rest.index("--", second + 1)
    engine, beside, walls = rest[:first], rest[first + 1 : second], rest[second + 1 : third]
    program = rest[third + 1 :]
    try:
        write_state(f"{state}/seccomp.json", profile)
        if beside:
            start_sidecar(client, engine, beside)
        seen, kept = open_mounts(walls)
        env = environment_file()
        told = [*kept, "--env-file", f"/proc/self/fd/{env}"]
        told += [*(word for each in seen for word in each.words()), *program]
        container = run_engine(client, *engine, "create", *told, given=(env,)).split()[-1]
        if kind == "podman":
            run_engine(client, *engine, "init", container)
            made = run_engine(client, *engine, "inspect", "--format", INSPECT_FORMAT, container)
            pid, _, config = made.partition(" ")
            check_mounts(seen, pid)
            check_program(f"/proc/{int(pid)}/root", program, config)
        start = [*engine, "start", "--attach", "--interactive", container]
        os.execve(engine[0], start, client)  # noqa: S606 - becoming the client is the point
    except (OSError, RotaError) as error:
        print(f"{CANNOT_START}container: {error}", file=sys.stderr)  # noqa: T201
        in_vain = not isinstance(error, Unavailable) or any(word in str(error) for word in NO_IMAGE)
        return NOT_STARTED if in_vain else ENGINE_FAILED


def start_sidecar(client: dict[str, str], engine: list[str], words: list[str]) -> None:
    """Start a sidecar and wait until its ports answer; it ends with this process's successors."""
    at = words.index("--held")
    fifo, inside = words[at + 1 : at + 3]
    os.mkfifo(fifo, 0o600)
    seen, kept = open_mounts(words[:at] + words[at + 3 :])
    shown = ["--mount", f"type=bind,source={fifo},destination={inside},readonly"]
    shown += [word for each in seen for word in each.words()]
    run = [*engine, "run", *shown, *kept]
    try:
        run_engine(client, *run)
    except Unavailable as error:
        restart_sidecar(client, engine, run, error)
    signal.signal(signal.SIGALRM, raise_timeout)
    signal.setitimer(signal.ITIMER_REAL, SIDECAR_SECONDS)
    held = os.open(fifo, os.O_WRONLY)  # returns once the sidecar has opened it
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.set_inheritable(held, True)


def restart_sidecar(
    client: dict[str, str], engine: list[str], run: list[str], fault: Unavailable
) -> None:
    """Start a sidecar again after importing its image, unless another attempt already has."""
    from rota.executors.container.sidecar import import_image  # noqa: PLC0415 - needed once

    brought = import_image(engine, client)
    try:
        run_engine(client, *run)
    except Unavailable as again:
        raise again if brought else fault from again


def raise_timeout(_number: int, _frame: object) -> None:
    """Raise Unavailable if a sidecar does not answer."""
    raise Unavailable("its sidecar does not answer: `rota doctor` checks the container executor")


def open_mounts(words: list[str]) -> tuple[list[InspectedPath], list[str]]:
    """Open every mount; return them and the arguments for the engine itself."""
    seen: dict[str, InspectedPath] = {}
    guarded: dict[str, list[str]] = {}
    kept = []
    rest = iter(words)
    for word in rest:
        if word not in {"--lend", "--show", "--guard", "--egress", "--folder"}:
            kept.append(word)
            continue
        first, second = next(rest), next(rest)
        if word == "--guard":
            guarded.setdefault(first, []).append(second)
        elif word == "--folder":
            seen[second] = InspectedPath(first, open_below(first, first), second, write=False)
        elif word == "--egress":
            held = open_below(os.path.dirname(first), first)  # noqa: PTH120
            if not stat.S_ISSOCK(os.fstat(held).st_mode):
                raise NotPermitted(f"{shown(first)} is no socket: start its server first")
            seen[second] = InspectedPath(first, held, second, write=False)
        else:
            held = open_below(first, second)
            seen[second] = InspectedPath(second, held, second, write=word == "--lend")
    for folder, names in guarded.items():
        for each in guard_names(folder, seen[folder].held, names):
            seen[each.path] = InspectedPath(each.path, each.descriptor, each.path, write=each.write)
    return list(seen.values()), kept


def environment_file() -> int:
    """Return the program's environment as an anonymous file that the client inherits.

    Rootless engines run in a user namespace and may not read this process's /proc files.
    """
    held = os.memfd_create("rota", 0)
    for name, value in inherited_environment().items():
        if "\n" in value:
            raise NotPermitted(f"{name} has several lines, which engines do not support")
        os.write(held, os.fsencode(f"{name}={value}\n"))
    os.lseek(held, 0, os.SEEK_SET)
    return held


def run_engine(client: dict[str, str], *words: str, given: tuple[int, ...] = ()) -> str:
    """Run a command of the engine and return its output; raise Unavailable with its errors."""
    try:
        done = subprocess.run(  # noqa: S603
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=client,
            timeout=ENGINE_SECONDS,
            check=False,
            pass_fds=given,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{words[0]} does not answer: {error}") from error
    if done.returncode:
        raise Unavailable(done.stderr.decode(errors="replace").strip() or f"{words[0]} failed")
    return done.stdout.decode(errors="replace").strip()


def check_mounts(seen: list[InspectedPath], pid: str) -> None:
    """Raise NotPermitted unless all mounts are the checked files."""
    for each in seen:
        if not each.is_at(f"/proc/{int(pid)}/root{each.inside}"):
            raise NotPermitted(f"{shown(each.source)} was replaced while the container was created")


def check_program(root: str, program: list[str], config: str) -> None:
    """Raise Refused unless the program exists in the container."""
    made = json.loads(config)
    env = dict(pair.split("=", 1) for pair in made["Env"])
    image, name = program[:2]
    folders = [made["WorkingDir"]] if "/" in name else env.get("PATH", "").split(":")
    if not any(exists_in_root(root, os.path.join(folder, name)) for folder in folders):  # noqa: PTH118
        raise Refused(f"{name} is not in the image {image}: name a program of the image")


def write_state(path: str, text: str) -> None:
    """Write a file of the attempt's state."""
    held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(held, "w") as file:
        file.write(text)

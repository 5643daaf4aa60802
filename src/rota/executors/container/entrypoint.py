"""Process: checks the mounts of a container and becomes the engine's client.

An engine takes paths, not descriptors, and a path can be swapped after it was looked at. Podman
makes the mounts before it starts the program (`init`): each is then compared with the folder that
was held open all the time. Docker cannot do that; there the paths are walked just before. Both
make a container first and start it then: until it is made, whatever fails is the engine's.

The program's environment goes through memory, never onto a command line. What this process was
given is the program's; the client gets its own.

A program that has ways out begins when its lobby is there and every way answers. The client holds
the lobby's FIFO, so that a lobby is gone when the client is, whoever ended it.

Words: KIND STATE PROFILE [--client NAME=VALUE]... ENGINE... -- LOBBY... -- WALL...
-- IMAGE PROGRAM WORD...
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

PATIENCE = 60.0
LOBBY_SECONDS = 30.0
ENGINE_FAILED = 125
"""As docker says it: another attempt may find the engine in a better state."""
NO_IMAGE = ("image not known", "No such image")
"""What podman and docker say where another attempt is in vain."""
MADE = "{{.State.Pid}} {{json .Config}}"
"""What podman tells of a container: its first process, and what became of the image's words."""


class InspectedPath:
    """One path as it was when it was looked at, and where it goes."""

    def __init__(self, source: str, held: int, inside: str, *, write: bool) -> None:
        self.source = source
        self.held = held
        self.inside = inside
        self.write = write

    def words(self) -> list[str]:
        """Return the mount in the engine's words."""
        parts = ["type=bind", f"source={self.source}", f"destination={self.inside}"]
        return ["--mount", ",".join([*parts, *([] if self.write else ["readonly"])])]

    def is_at(self, path: str) -> bool:
        """Say whether the same thing lies at another path."""
        return os.path.samestat(os.stat(path), os.fstat(self.held))  # noqa: PTH116


def main(words: list[str]) -> int:
    """Become the engine's client; return only when that cannot be."""
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
        keep(f"{state}/seccomp.json", profile)
        if beside:
            open_lobby(client, engine, beside)
        seen, kept = looked_at(walls)
        env = environment()
        told = [*kept, "--env-file", f"/proc/self/fd/{env}"]
        told += [*(word for each in seen for word in each.words()), *program]
        container = ask(client, *engine, "create", *told, given=(env,)).split()[-1]
        if kind == "podman":
            ask(client, *engine, "init", container)
            made = ask(client, *engine, "inspect", "--format", MADE, container)
            pid, _, config = made.partition(" ")
            compare(seen, pid)
            find(f"/proc/{int(pid)}/root", program, config)
        start = [*engine, "start", "--attach", "--interactive", container]
        os.execve(engine[0], start, client)  # noqa: S606 - becoming the client is the point
    except (OSError, RotaError) as error:
        print(f"{CANNOT_START}container: {error}", file=sys.stderr)  # noqa: T201
        in_vain = not isinstance(error, Unavailable) or any(word in str(error) for word in NO_IMAGE)
        return NOT_STARTED if in_vain else ENGINE_FAILED


def open_lobby(client: dict[str, str], engine: list[str], words: list[str]) -> None:
    """Start a lobby and wait until its ways answer; it goes when this process and its heirs do."""
    at = words.index("--held")
    fifo, inside = words[at + 1 : at + 3]
    os.mkfifo(fifo, 0o600)
    seen, kept = looked_at(words[:at] + words[at + 3 :])
    shown = ["--mount", f"type=bind,source={fifo},destination={inside},readonly"]
    shown += [word for each in seen for word in each.words()]
    run = [*engine, "run", *shown, *kept]
    try:
        ask(client, *run)
    except Unavailable as error:
        ask_again(client, engine, run, error)
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, LOBBY_SECONDS)
    held = os.open(fifo, os.O_WRONLY)  # as soon as the other side has opened it, too
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.set_inheritable(held, True)


def ask_again(
    client: dict[str, str], engine: list[str], run: list[str], fault: Unavailable
) -> None:
    """Start a lobby once more, with its image there: another attempt may have brought it."""
    from rota.executors.container.sidecar import furnish  # noqa: PLC0415 - needed once

    brought = furnish(engine, client)
    try:
        ask(client, *run)
    except Unavailable as again:
        raise again if brought else fault from again


def too_late(_number: int, _frame: object) -> None:
    """Say that a lobby does not answer."""
    raise Unavailable("its ways out do not answer: see what `rota doctor` says of the container")


def looked_at(words: list[str]) -> tuple[list[InspectedPath], list[str]]:
    """Return every mount, held open, and the words that are the engine's own."""
    seen: dict[str, InspectedPath] = {}
    guarded: dict[str, list[str]] = {}
    kept = []
    rest = iter(words)
    for word in rest:
        if word not in {"--lend", "--show", "--guard", "--outlet", "--folder"}:
            kept.append(word)
            continue
        first, second = next(rest), next(rest)
        if word == "--guard":
            guarded.setdefault(first, []).append(second)
        elif word == "--folder":
            seen[second] = InspectedPath(first, open_below(first, first), second, write=False)
        elif word == "--outlet":
            held = open_below(os.path.dirname(first), first)  # noqa: PTH120
            if not stat.S_ISSOCK(os.fstat(held).st_mode):
                raise NotPermitted(f"{shown(first)} is no socket: start what answers there first")
            seen[second] = InspectedPath(first, held, second, write=False)
        else:
            held = open_below(first, second)
            seen[second] = InspectedPath(second, held, second, write=word == "--lend")
    for folder, names in guarded.items():
        for each in guard_names(folder, seen[folder].held, names):
            seen[each.path] = InspectedPath(each.path, each.descriptor, each.path, write=each.write)
    return list(seen.values()), kept


def environment() -> int:
    """Return the program's environment as a file that only this process has, and its client.

    The client inherits it: without root it runs in a user namespace, and may not look at ours.
    """
    held = os.memfd_create("rota", 0)
    for name, value in inherited_environment().items():
        if "\n" in value:
            raise NotPermitted(f"{name} has more than one line, which engines cannot hand over")
        os.write(held, os.fsencode(f"{name}={value}\n"))
    os.lseek(held, 0, os.SEEK_SET)
    return held


def ask(client: dict[str, str], *words: str, given: tuple[int, ...] = ()) -> str:
    """Return what a command of the engine's says; raise Unavailable with its last words."""
    try:
        done = subprocess.run(  # noqa: S603
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=client,
            timeout=PATIENCE,
            check=False,
            pass_fds=given,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{words[0]} does not answer: {error}") from error
    if done.returncode:
        raise Unavailable(done.stderr.decode(errors="replace").strip() or f"{words[0]} failed")
    return done.stdout.decode(errors="replace").strip()


def compare(seen: list[InspectedPath], pid: str) -> None:
    """Raise NotPermitted unless every mount is what was looked at."""
    for each in seen:
        if not each.is_at(f"/proc/{int(pid)}/root{each.inside}"):
            raise NotPermitted(f"{shown(each.source)} was swapped while the container was made")


def find(root: str, program: list[str], config: str) -> None:
    """Raise Refused unless the program lies in the container, as its init will look for it."""
    made = json.loads(config)
    env = dict(pair.split("=", 1) for pair in made["Env"])
    image, name = program[:2]
    folders = [made["WorkingDir"]] if "/" in name else env.get("PATH", "").split(":")
    if not any(exists_in_root(root, os.path.join(folder, name)) for folder in folders):  # noqa: PTH118
        raise Refused(f"{name} is not in the image {image}: name a program that it has")


def keep(path: str, text: str) -> None:
    """Write a file of the attempt's state."""
    held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(held, "w") as file:
        file.write(text)

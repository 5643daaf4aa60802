"""Process: sets resource limits and becomes the program.

A file of its own, run with nothing but the standard library, because inside a sandbox there is
nothing else. It runs before every program: each import costs each of them.

Words: [--group FOLDER SETTINGS] [--limit NAME VALUE]... -- PROGRAM WORD...
"""

from __future__ import annotations

import os
import resource
import sys

NOT_STARTED = 126
CANNOT_START = "cannot start "
"""How the one line begins that is written instead of all that a program would have written."""


def main(words: list[str]) -> int:
    """Do what the words say; return only when the program could not be started."""
    program = bound(words)
    try:
        os.execvp(program[1], program[1:])  # noqa: S606 - becoming the program is the point
    except OSError as error:
        print(f"{CANNOT_START}{program[1]}: {error.strerror}", file=sys.stderr)  # noqa: T201
    return NOT_STARTED


def bound(words: list[str]) -> list[str]:
    """Bound this process and all it starts; return the words behind those that say how."""
    while words[0] in {"--group", "--limit"}:
        option, first, second, *words = words
        if option == "--group":
            join(first, second)
        else:
            number = getattr(resource, f"RLIMIT_{first}")
            resource.setrlimit(number, (int(second), int(second)))
    return words


def inherited_environment() -> dict[str, str]:
    """Return the environment exactly as it was given to this process."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = os.fsdecode(file.read()).split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def join(folder: str, settings: str) -> None:
    """Make a control group with its bounds, `file=value,...`, and step into it."""
    os.mkdir(folder, 0o755)  # noqa: PTH102 - pathlib would cost more than all of this
    for setting in filter(None, settings.split(",")):
        name, value = setting.split("=")
        write(f"{folder}/{name}", value)
    write(f"{folder}/cgroup.procs", "0")


def write(path: str, text: str) -> None:
    """Write into a file of the kernel's, in one go."""
    held = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(held, text.encode())
    finally:
        os.close(held)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

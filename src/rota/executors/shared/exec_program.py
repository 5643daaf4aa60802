"""Process: sets resource limits and becomes the program.

A file of its own that only needs the standard library, because a sandbox has nothing else. It runs
before every program, so it imports little.

Arguments: [--group FOLDER SETTINGS] [--limit NAME VALUE]... -- PROGRAM ARGUMENT...
"""

from __future__ import annotations

import os
import resource
import sys

NOT_STARTED = 126
CANNOT_START = "cannot start "
"""Start of the line that is written if the program cannot be started."""


def main(words: list[str]) -> int:
    """Set limits and become the program; returns only on failure."""
    program = apply_limits(words)
    try:
        os.execvp(program[1], program[1:])  # noqa: S606 - becoming the program is the point
    except OSError as error:
        print(f"{CANNOT_START}{program[1]}: {error.strerror}", file=sys.stderr)  # noqa: T201
    return NOT_STARTED


def apply_limits(words: list[str]) -> list[str]:
    """Apply limits to this process; return the remaining arguments."""
    while words[0] in {"--group", "--limit"}:
        option, first, second, *words = words
        if option == "--group":
            join_cgroup(first, second)
        else:
            number = getattr(resource, f"RLIMIT_{first}")
            resource.setrlimit(number, (int(second), int(second)))
    return words


def inherited_environment() -> dict[str, str]:
    """Return the environment exactly as this process got it."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = os.fsdecode(file.read()).split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


def join_cgroup(folder: str, settings: str) -> None:
    """Create a cgroup with its settings, `file=value,...`, and join it."""
    os.mkdir(folder, 0o755)  # noqa: PTH102 - pathlib would cost more than all of this
    for setting in filter(None, settings.split(",")):
        name, value = setting.split("=")
        write_file(f"{folder}/{name}", value)
    write_file(f"{folder}/cgroup.procs", "0")


def write_file(path: str, text: str) -> None:
    """Write to a file of the kernel with one call."""
    held = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(held, text.encode())
    finally:
        os.close(held)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

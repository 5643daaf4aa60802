"""Process: opens the mounts of a sandbox and becomes bubblewrap.

It is the first process of an attempt, so that nothing can happen between checking a folder and
binding it. The arguments of bubblewrap are passed in memory, because they contain the environment
and command lines are readable by all users. It runs before every program in a sandbox, so it
imports little.

Arguments: [--group FOLDER SETTINGS] [--limit NAME VALUE]... BUBBLEWRAP FILTER ISOLATION...
-- PROGRAM ARGUMENT...
"""

from __future__ import annotations

import binascii
import os
import stat
import sys

from rota.errors import NotPermitted, RotaError, shown
from rota.executors.shared.exec_program import (
    CANNOT_START,
    NOT_STARTED,
    apply_limits,
    inherited_environment,
)
from rota.keeper.paths import guard_names, open_below

OWN_WORDS = frozenset({"--show", "--lend", "--guard", "--text", "--egress", "--folder"})


def main(words: list[str]) -> int:
    """Become bubblewrap; returns only on failure."""
    try:
        words = apply_limits(words)
        end = words.index("--")
        told = [
            *environment_arguments(),
            *resolve_arguments(words[2:end]),
            *filter_arguments(words[1]),
        ]
        listed = memory_file(os.fsencode("".join(f"{word}\0" for word in told)))
        program = [words[0], "--args", str(listed), "--", *words[end + 1 :]]
        os.execv(words[0], program)  # noqa: S606 - becoming bubblewrap is the point
    except (OSError, RotaError) as error:
        print(f"{CANNOT_START}sandbox: {error}", file=sys.stderr)  # noqa: T201
    return NOT_STARTED


def environment_arguments() -> list[str]:
    """Return this process's environment, which is the program's, as arguments."""
    words = ["--clearenv"]
    for name, value in inherited_environment().items():
        words += ["--setenv", name, value]
    return words


def resolve_arguments(words: list[str]) -> list[str]:
    """Return arguments of bubblewrap, with open descriptors for Rota's own."""
    made: list[str] = []
    lent: dict[str, int] = {}
    guarded: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word not in OWN_WORDS:
            made.append(word)
            continue
        first, second = next(rest), next(rest)
        if word == "--text":
            made += ["--ro-bind-data", str(memory_file(second.encode())), first]
        elif word == "--egress":
            made += ["--ro-bind-fd", str(open_socket(first)), second]
        elif word == "--folder":
            made += ["--ro-bind-fd", str(make_inheritable(open_below(first, first))), second]
        elif word == "--guard":
            guarded.setdefault(first, []).append(second)
        else:
            lent[second] = make_inheritable(open_below(first, second))
            made += ["--bind-fd" if word == "--lend" else "--ro-bind-fd", str(lent[second]), second]
    return [*made, *guard_arguments(lent, guarded)]


def guard_arguments(lent: dict[str, int], guarded: dict[str, list[str]]) -> list[str]:
    """Return the binds that protect guarded names."""
    made = []
    for folder, names in guarded.items():
        for held in guard_names(folder, lent[folder], names):
            word = "--bind-fd" if held.write else "--ro-bind-fd"
            made += [word, str(make_inheritable(held.descriptor)), held.path]
    return made


def open_socket(path: str) -> int:
    """Open a socket of the host; raise NotPermitted for anything else."""
    held = open_below(os.path.dirname(path), path)  # noqa: PTH120
    if not stat.S_ISSOCK(os.fstat(held).st_mode):
        raise NotPermitted(f"{shown(path)} is no socket: start its server first")
    return make_inheritable(held)


def filter_arguments(encoded: str) -> list[str]:
    """Return the arguments with the system call filter."""
    return ["--seccomp", str(memory_file(binascii.a2b_base64(encoded)))]


def memory_file(content: bytes) -> int:
    """Return a descriptor from which these bytes can be read."""
    held = os.memfd_create("rota", 0)
    os.write(held, content)
    os.lseek(held, 0, os.SEEK_SET)
    return held


def make_inheritable(held: int) -> int:
    """Make a descriptor inheritable."""
    os.set_inheritable(held, True)
    return held

"""Process: opens the mounts of a sandbox and becomes bubblewrap.

Runs as the first process of an attempt, so that nothing lies between looking at a folder and
binding it. What bubblewrap is told goes through memory and not through its command line, which
everybody on the machine can read: it holds the environment. It runs before every program in a
sandbox: each import costs each of them.

Words: [--group FOLDER SETTINGS] [--limit NAME VALUE]... BUBBLEWRAP FILTER WALL...
-- PROGRAM WORD...
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
    bound,
    inherited_environment,
)
from rota.keeper.paths import guard_names, open_below

OWN_WORDS = frozenset({"--show", "--lend", "--guard", "--text", "--outlet", "--folder"})


def main(words: list[str]) -> int:
    """Become bubblewrap; return only when that cannot be."""
    try:
        words = bound(words)
        end = words.index("--")
        told = [*environment(), *furnished(words[2:end]), *filtered(words[1])]
        listed = remembered(os.fsencode("".join(f"{word}\0" for word in told)))
        program = [words[0], "--args", str(listed), "--", *words[end + 1 :]]
        os.execv(words[0], program)  # noqa: S606 - becoming bubblewrap is the point
    except (OSError, RotaError) as error:
        print(f"{CANNOT_START}sandbox: {error}", file=sys.stderr)  # noqa: T201
    return NOT_STARTED


def environment() -> list[str]:
    """Return this process's environment as words: all that the program will have."""
    words = ["--clearenv"]
    for name, value in inherited_environment().items():
        words += ["--setenv", name, value]
    return words


def furnished(words: list[str]) -> list[str]:
    """Return words that are all bubblewrap's, with open descriptors in place of our own."""
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
            made += ["--ro-bind-data", str(remembered(second.encode())), first]
        elif word == "--outlet":
            made += ["--ro-bind-fd", str(a_socket(first)), second]
        elif word == "--folder":
            made += ["--ro-bind-fd", str(inherited(open_below(first, first))), second]
        elif word == "--guard":
            guarded.setdefault(first, []).append(second)
        else:
            lent[second] = inherited(open_below(first, second))
            made += ["--bind-fd" if word == "--lend" else "--ro-bind-fd", str(lent[second]), second]
    return [*made, *guards(lent, guarded)]


def guards(lent: dict[str, int], guarded: dict[str, list[str]]) -> list[str]:
    """Return the binds that keep guarded names from being written or moved."""
    made = []
    for folder, names in guarded.items():
        for held in guard_names(folder, lent[folder], names):
            word = "--bind-fd" if held.write else "--ro-bind-fd"
            made += [word, str(inherited(held.descriptor)), held.path]
    return made


def a_socket(path: str) -> int:
    """Return a descriptor of a socket of the host's, and of nothing else."""
    held = open_below(os.path.dirname(path), path)  # noqa: PTH120
    if not stat.S_ISSOCK(os.fstat(held).st_mode):
        raise NotPermitted(f"{shown(path)} is no socket: start what answers there first")
    return inherited(held)


def filtered(encoded: str) -> list[str]:
    """Return how the filter of system calls is handed over."""
    return ["--seccomp", str(remembered(binascii.a2b_base64(encoded)))]


def remembered(content: bytes) -> int:
    """Return a descriptor that reads as these bytes."""
    held = os.memfd_create("rota", 0)
    os.write(held, content)
    os.lseek(held, 0, os.SEEK_SET)
    return held


def inherited(held: int) -> int:
    """Let a descriptor live on in the next program."""
    os.set_inheritable(held, True)
    return held

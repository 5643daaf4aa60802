"""Which programs a task may name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rota.errors import Invalid

ADVICE = "name a program on the path, or a file inside the space's folder, without .. in it"
CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)


def is_call(word: str) -> bool:
    """Whether a program is a function, `module:function`, and not a file."""
    return CALL.fullmatch(word) is not None


def check_script(spec: Mapping[str, Any]) -> None:
    """Refuse what cannot be a script: one line for a shell if it says so, else words."""
    words: Sequence[str] = spec.get("command") or ()
    if not spec.get("shell"):
        check_program(words)
    elif len(words) != 1 or not words[0].strip() or "\0" in words[0]:
        raise Invalid("command", " ".join(words), "give a shell exactly one line")


def check_folder(folder: str) -> None:
    """Refuse a working folder that is not below the space's own."""
    if {"", ".", ".."} & set(folder.split("/")) or "\0" in folder:
        raise Invalid("folder", folder, "name a folder inside the space's, without . and .. in it")


def check_program(words: Sequence[str]) -> None:
    """Refuse a program that lies outside: an absolute path, or one that climbs."""
    program = words[0] if words else ""
    if not program.strip() or program.startswith(("/", "-")) or ".." in program.split("/"):
        raise Invalid("command", program, ADVICE)
    for word in words:
        if "\0" in word:
            raise Invalid("command", word, "leave out NUL characters")

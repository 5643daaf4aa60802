"""Which programs a task may name."""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import Invalid

ADVICE = "name a program on the path, or a file inside the space's folder, without .. in it"


def check_program(words: Sequence[str]) -> None:
    """Refuse a program that lies outside: an absolute path, or one that climbs."""
    program = words[0] if words else ""
    if not program.strip() or program.startswith(("/", "-")) or ".." in program.split("/"):
        raise Invalid("command", program, ADVICE)
    for word in words:
        if "\0" in word:
            raise Invalid("command", word, "leave out NUL characters")

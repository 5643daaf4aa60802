"""Programs: what is to be started, and how much of everything it may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program to run: always a list of words, never a line for a shell.

    `env` is the whole environment; nothing is inherited.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    stdin: bytes = b""
    keep_stdin_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of everything an attempt may use; None is no bound of Rota's own."""

    hard_seconds: float | None = None
    idle_seconds: float | None = None
    grace_seconds: float = 10.0
    output_bytes: int = 64 * MIB
    memory_bytes: int | None = None
    processes: int | None = None
    open_files: int | None = None
    file_bytes: int | None = None
    cpus: float | None = None

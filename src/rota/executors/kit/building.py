"""The keeper as one compiled file, so that it starts in a few milliseconds.

Its parts are put together into one module. It is started by its path, with `-I -S`, and so knows
nothing of Rota's packages: an upgrade never changes a keeper that runs, and nothing a user has
installed slows it down.
"""

from __future__ import annotations
import __future__

import ast
import hashlib
import importlib.util
import marshal
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

from rota.executors.kit.spec import Tree

PACKAGE: Final = "rota.executors.kit.keeper"
PARTS: Final = ("words", "orders", "kernel", "processes", "spool", "inner", "program", "entry")
"""In the order of their imports."""
HEADER_BYTES: Final = 16
TRY_SECONDS: Final = 10.0
_ONE_AT_A_TIME = threading.Lock()
"""Python 3.11 counts the depth of its trees once for all threads, and fails if two make some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The compiled keeper, and the interpreter that it was compiled for."""

    python: str
    path: str

    def argv(self, *words: str) -> list[str]:
        """Return how it is started."""
        return [self.python, "-I", "-S", self.path, *words]


def build(folder: Path) -> Program:
    """Return the keeper, compiled into a folder if it is not there yet."""
    texts = _texts()
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = folder / f"keeper-{sys.implementation.cache_tag}-{digest}.pyc"
    with _ONE_AT_A_TIME:
        if not path.exists():
            _write(path, texts)
    python = getattr(sys, "_base_executable", sys.executable)  # a virtual environment costs time
    return Program(python=python, path=str(path))


def _write(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    header = importlib.util.MAGIC_NUMBER.ljust(HEADER_BYTES, b"\0")
    file, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(file, "wb") as written:
        written.write(header + marshal.dumps(_together(texts)))
        written.flush()
        os.fsync(written.fileno())
    Path(draft).rename(path)


def _texts() -> list[str]:
    folder = Path(__file__).with_name("keeper")
    return [(folder / f"{part}.py").read_text() for part in PARTS]


def _together(texts: list[str]) -> CodeType:
    whole = ast.Module(body=[], type_ignores=[])
    for text in texts:
        whole.body += [node for node in ast.parse(text).body if not _is_inside(node)]
    flags = __future__.annotations.compiler_flag
    code: CodeType = compile(whole, "<keeper>", "exec", flags, dont_inherit=True, optimize=2)
    return code


def _is_inside(node: ast.stmt) -> bool:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    return module == "__future__" or module.startswith(PACKAGE)


def certain_kill(tree: Tree, program: Program) -> bool:
    """Return whether a tree held like this is gone for certain, whoever is killed.

    The first question tries it for real; the answer stays for the life of this process.
    """
    return tree is not Tree.GUARD and _namespaces_work(program)


@cache
def _namespaces_work(program: Program) -> bool:
    words = program.argv("--try")
    quiet = subprocess.DEVNULL
    tried = subprocess.run(words, env={}, timeout=TRY_SECONDS, stderr=quiet, check=False)  # noqa: S603
    return tried.returncode == 0

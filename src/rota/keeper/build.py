"""Compiles the keeper into one file, and finds out whether namespaces work here.

Its parts are put together into one module. It is started by its path, with `-I -S`, and so knows
nothing of Rota's packages: an upgrade never changes a keeper that runs, and nothing a user has
installed slows it down.

A hundred keepers need some hundreds. Programs that wait with select(2) cannot use one above 1023,
and some close every one they may have, so they are given no more than usual.
"""

from __future__ import annotations
import __future__

import ast
import hashlib
import importlib.util
import marshal
import os
import resource
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Final

from rota.keeper.linux import namespaces_work
from rota.ports.executor import ProcessTreeMode

PACKAGE: Final = "rota.keeper"
PARTS: Final = ("protocol", "linux", "init", "process")
"""In the order of their imports."""
HEADER_BYTES: Final = 16
TRY_SECONDS: Final = 10.0
_ONE_AT_A_TIME = threading.Lock()
"""Python 3.11 counts the depth of its trees once for all threads, and fails if two make some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperBinary:
    """The compiled keeper, and the interpreter that it was compiled for."""

    python: str
    path: str

    def argv(self, *words: str) -> list[str]:
        """Return how it is started."""
        return [self.python, "-I", "-S", self.path, *words]


def build(folder: Path) -> KeeperBinary:
    """Return the keeper, compiled into a folder if it is not there yet."""
    texts = _texts()
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = folder / f"keeper-{sys.implementation.cache_tag}-{digest}.pyc"
    with _ONE_AT_A_TIME:
        if not path.exists():
            _write(path, texts)
    python = getattr(sys, "_base_executable", sys.executable)  # a virtual environment costs time
    return KeeperBinary(python=python, path=str(path))


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
    folder = Path(__file__).parent
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
    return module == "__future__" or module in {f"{PACKAGE}.{part}" for part in PARTS}


def certain_kill(tree: ProcessTreeMode, program: KeeperBinary) -> bool:
    """Return whether a tree held like this is gone for certain, whoever is killed.

    The first question tries it for real; the answer stays for the life of this process.
    """
    return tree is not ProcessTreeMode.GUARD and _namespaces_work(program)


@cache
def _namespaces_work(program: KeeperBinary) -> bool:
    words = program.argv("--try")
    quiet = subprocess.DEVNULL
    tried = subprocess.run(words, env={}, timeout=TRY_SECONDS, stderr=quiet, check=False)  # noqa: S603
    return tried.returncode == 0


PATIENCE = 10.0


def main(words: list[str]) -> int:  # noqa: ARG001 - how every module is run
    """Tell by the exit code."""
    return 0 if namespaces_work() else 1


@cache
def can_use_namespaces(python: Interpreter) -> bool:
    """Return whether the processes of an attempt can be held together for certain here."""
    words = python.module("rota.keeper.build")
    try:
        done = subprocess.run(  # noqa: S603
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


MOST = 65_536


@cache
def usual_files() -> int:
    """Return how many files this process could have open before it took more."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def take_descriptors() -> None:
    """Let this process have as many files open as it may; called once by a daemon."""
    usual, (_, hard) = usual_files(), resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if usual != resource.RLIM_INFINITY and usual < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python that starts things: its program, and the folder it needs to be whole."""

    program: str
    prefix: str
    library: str

    @classmethod
    def running(cls) -> Interpreter:
        """Return the one that runs Rota, without its virtual environment."""
        library = Path(__file__).resolve().parents[2]
        return cls(str(Path(sys.executable).resolve()), sys.base_prefix, str(library))

    def script(self, path: str, *words: str) -> list[str]:
        """Return how to run one file that needs nothing but the standard library."""
        return [self.program, "-I", "-S", path, *words]

    def module(self, name: str, *words: str) -> list[str]:
        """Return how to run a module of Rota's without any of its dependencies."""
        return [self.program, "-I", "-S", "-c", RUN_MODULE, self.library, name, *words]


RUN_MODULE = (
    "import sys;"
    "sys.path.append(sys.argv[1]);"
    "from importlib import import_module;"
    "sys.exit(import_module(sys.argv[2]).main(sys.argv[3:]))"
)

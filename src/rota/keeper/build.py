"""Compiles the keeper into one file, tests whether namespaces work, and raises the file limit.

The parts are compiled into one module, which is started by its path with `-I -S`. So a running
keeper does not depend on Rota's packages: an upgrade cannot change it, and no installed package
slows its start.

A daemon with a hundred keepers needs some hundreds of descriptors, so it raises its own limit.
Programs get the default limit: select(2) fails for descriptors above 1023, and some programs close
every descriptor they may have.
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
_COMPILE_LOCK = threading.Lock()
"""Python 3.11 counts the recursion depth of compile() across threads and may fail if two run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperBinary:
    """The compiled keeper and the interpreter it was compiled for."""

    python: str
    path: str

    def argv(self, *words: str) -> list[str]:
        """Return the command that starts it."""
        return [self.python, "-I", "-S", self.path, *words]


def build_keeper(folder: Path) -> KeeperBinary:
    """Return the keeper; compile it into a folder if it is not there."""
    texts = _sources()
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = folder / f"keeper-{sys.implementation.cache_tag}-{digest}.pyc"
    with _COMPILE_LOCK:
        if not path.exists():
            _write(path, texts)
    python = getattr(sys, "_base_executable", sys.executable)  # a virtual environment costs time
    return KeeperBinary(python=python, path=str(path))


def _write(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    header = importlib.util.MAGIC_NUMBER.ljust(HEADER_BYTES, b"\0")
    file, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(file, "wb") as written:
        written.write(header + marshal.dumps(_compile(texts)))
        written.flush()
        os.fsync(written.fileno())
    Path(draft).rename(path)


def _sources() -> list[str]:
    folder = Path(__file__).parent
    return [(folder / f"{part}.py").read_text() for part in PARTS]


def _compile(texts: list[str]) -> CodeType:
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
    """Whether a process tree of this kind is certainly gone even if its keeper is killed.

    The first call tests it; the result is cached for the life of this process.
    """
    return tree is not ProcessTreeMode.GUARD and _namespaces_work(program)


@cache
def _namespaces_work(program: KeeperBinary) -> bool:
    words = program.argv("--try")
    quiet = subprocess.DEVNULL
    tried = subprocess.run(words, env={}, timeout=TRY_SECONDS, stderr=quiet, check=False)  # noqa: S603
    return tried.returncode == 0


TRIAL_SECONDS = 10.0


def main(words: list[str]) -> int:  # noqa: ARG001 - how every module is run
    """Exit with 0 if namespaces work."""
    return 0 if namespaces_work() else 1


@cache
def can_use_namespaces(python: Interpreter) -> bool:
    """Whether attempts can run in PID namespaces on this machine."""
    words = python.module("rota.keeper.build")
    try:
        done = subprocess.run(  # noqa: S603
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


MAX_FILES = 65_536


@cache
def default_file_limit() -> int:
    """Return this process's limit on open files before it was raised."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raise_file_limit() -> None:
    """Raise this process's limit on open files as far as allowed; called once by a daemon."""
    usual, (_, hard) = default_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if usual != resource.RLIM_INFINITY and usual < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python interpreter that runs Rota's programs, with the folders it needs."""

    program: str
    prefix: str
    library: str

    @classmethod
    def running(cls) -> Interpreter:
        """Return the interpreter of this process, without its virtual environment."""
        library = Path(__file__).resolve().parents[2]
        return cls(str(Path(sys.executable).resolve()), sys.base_prefix, str(library))

    def script(self, path: str, *words: str) -> list[str]:
        """Return the command that runs a file that only needs the standard library."""
        return [self.program, "-I", "-S", path, *words]

    def module(self, name: str, *words: str) -> list[str]:
        """Return the command that runs a module of Rota without its dependencies."""
        return [self.program, "-I", "-S", "-c", RUN_MODULE, self.library, name, *words]


RUN_MODULE = (
    "import sys;"
    "sys.path.append(sys.argv[1]);"
    "from importlib import import_module;"
    "sys.exit(import_module(sys.argv[2]).main(sys.argv[3:]))"
)

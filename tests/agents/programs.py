"""The real agents, pinned, downloaded into `.agents/` when they are missing.

`python -m tests.agents.programs` fetches what is missing, says what could not be had, and fails
only if nothing is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".agents"
PATIENCE = 240
"""Seconds for one download."""


@dataclass(frozen=True)
class Program:
    """A program, where it is found, and how it is fetched."""

    name: str
    package: str
    version: str
    path: str
    fetch: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.name}-{self.version}"

    @property
    def executable(self) -> Path:
        return self.folder / self.path

    @property
    def here(self) -> bool:
        return os.access(self.executable, os.X_OK)


def by_uv(package: str, version: str) -> tuple[str, ...]:
    uv = shutil.which("uv") or str(ROOT / ".boot" / "bin" / "uv")
    return (uv, "pip", "install", "--quiet", "--no-deps", f"{package}=={version}", "--target")


def by_npm(package: str, version: str) -> tuple[str, ...]:
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    return ("npm", "install", *quiet, f"{package}@{version}", "--prefix")


CLAUDE, CODEX, PI = "claude-agent-sdk", "@openai/codex", "@mariozechner/pi-coding-agent"
PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "claude",
            CLAUDE,
            "0.2.182",
            "claude_agent_sdk/_bundled/claude",
            by_uv(CLAUDE, "0.2.182"),
        ),
        Program("codex", CODEX, "0.166.0", "node_modules/.bin/codex", by_npm(CODEX, "0.166.0")),
        Program("pi", PI, "0.73.1", "node_modules/.bin/pi", by_npm(PI, "0.73.1")),
    )
}


def fetch(program: Program) -> str | None:
    """Fetch a program if it is missing; return why it could not be had."""
    if program.here:
        return None
    fresh = program.folder.with_name(program.folder.name + ".part")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        done = subprocess.run(
            [*program.fetch, str(fresh)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except FileNotFoundError:
        why = f"{program.fetch[0]} is not installed"
    except subprocess.TimeoutExpired:
        why = f"it took more than {PATIENCE} s"
    if os.access(fresh / program.path, os.X_OK):
        shutil.rmtree(program.folder, ignore_errors=True)
        fresh.rename(program.folder)
        return None
    shutil.rmtree(fresh, ignore_errors=True)
    return why


def main() -> int:
    for program in PROGRAMS.values():
        why = fetch(program)
        state = "is here" if why is None else f"is LEFT OUT: {why}"
        sys.stdout.write(f"{program.name} ({program.package} {program.version}) {state}\n")
    if not any(program.here for program in PROGRAMS.values()):
        sys.stdout.write("no agent could be had, so nothing was tested\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

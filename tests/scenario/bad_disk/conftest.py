"""A small disk that a test can fill, and make read-only."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

PAGE = 4_096
SIZE = "32m"


class SmallDisk:
    """A file system of its own; needs the right to mount one."""

    def __init__(self, folder):
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, leave: int = 0):
        """Leave that many pages free."""
        self._filler.unlink(missing_ok=True)
        found = os.statvfs(self.folder)
        room = found.f_bavail * found.f_frsize - leave * PAGE
        with suppress(OSError), self._filler.open("wb") as file:  # somebody else took what was left
            file.write(bytes(max(0, room)))

    def free(self):
        self._filler.unlink(missing_ok=True)

    def remount(self, how):
        subprocess.run(["mount", "-o", f"remount,{how}", str(self.folder)], check=True)


@pytest.fixture
def disk():
    folder = Path(tempfile.mkdtemp(prefix="rota-disk-"))  # a server's user must get there too
    folder.chmod(0o755)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"a small disk needs the right to mount one: {mounted.stderr.strip()}")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.rmdir()

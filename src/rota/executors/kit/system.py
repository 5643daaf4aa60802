"""The system's own folders: what programs of the host need to see of it, to run somewhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


@dataclass(frozen=True, slots=True)
class System:
    """Folders to show, and links beside them as (where to, from where)."""

    links: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]

    @classmethod
    def here(cls, root: str = "/") -> System:
        """Look at this machine."""
        top = [Path(root, name) for name in TOP]
        links = tuple((str(path.readlink()), f"/{path.name}") for path in top if path.is_symlink())
        real = (f"/{path.name}" for path in top if path.is_dir() and not path.is_symlink())
        return cls(links, ("/usr", *real))

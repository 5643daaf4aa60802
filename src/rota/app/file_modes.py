"""File modes of a home: only the owner can access Rota's own files.

Files of people and everything below `spaces/` keep their modes. System folders are never changed,
even if they are named as a home.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rota.app.settings import Settings
from rota.flow.observe.time_text import count_text
from rota.store.sqlite.file_modes import excess, files_of, narrow

log = logging.getLogger(__name__)

FOLDER = 0o700
FILE = 0o600
FOLDERS = ("keepers", "logs", "gateway", "desk", "errors")
"""Folders that Rota creates; only their direct entries are checked."""
SECRETS = "secrets"
"""The modes of its files are not corrected automatically: others may have read the keys."""
FILES = ("admin.key", "api.json", "desk.key", "desk.port", "desk.inner-port")
SYSTEM = frozenset(
    Path("/", name)
    for name in (
        *("", "bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "run"),
        *("sbin", "srv", "sys", "tmp", "usr", "var", "var/lib", "var/tmp"),
    )
)


class Own(NamedTuple):
    """A path of Rota with the permissions that it may have."""

    path: Path
    allowed: int


class Narrowed(NamedTuple):
    """The changed modes, and whether others can still access the home."""

    paths: list[Path]
    open_home: Path | None

    def sentences(self) -> list[str]:
        """Return sentences about the changes, if there are any."""
        told = []
        if self.paths:
            first, rest = self.paths[0], len(self.paths) - 1
            more = f" and {count_text(rest, 'more file')} of Rota" if rest else ""
            told.append(f"Other users had access to {first}{more}: only you have access now.")
        if self.open_home is not None:
            told.append(
                f"Other users can read {self.open_home}, which is not Rota's alone: "
                "give --home a folder of its own."
            )
        return told

    def log(self) -> None:
        """Log the changes."""
        if self.paths:
            log.warning("home.made_private", extra={"paths": [str(path) for path in self.paths]})
        if self.open_home is not None:
            log.warning("home.open", extra={"path": str(self.open_home)})


def make_private(settings: Settings) -> Narrowed:
    """Remove the permissions of other users from Rota's own files in a home."""
    paths = [own.path for own in own_of(settings) if narrow(str(own.path), own.allowed)]
    return Narrowed(paths, open_home(settings.home))


def permissive(settings: Settings) -> Iterator[Own]:
    """Yield paths of Rota and this user with too many permissions."""
    for own in own_of(settings):
        with suppress(OSError):
            if excess(str(own.path), own.allowed) is not None:
                yield own


def own_of(settings: Settings) -> Iterator[Own]:
    """Yield the paths that Rota created in a home and beside its database, outer ones first."""
    home = Path(os.path.realpath(settings.home))
    if not _is_shared(home):
        yield Own(home, FOLDER)
    for name in (*FOLDERS, SECRETS):
        yield Own(home / name, FOLDER)
    yield from (Own(home / name, FILE) for name in FILES)
    for name in FOLDERS:
        yield from _files_in(home / name)
    if settings.store.startswith(f"sqlite:///{settings.home}/"):
        database = settings.store.removeprefix("sqlite:///")
        yield from (Own(Path(name), FILE) for name in files_of(database))


def open_home(home: Path) -> Path | None:
    """Return the home if others can access it and Rota does not change it, because it is shared."""
    real = Path(os.path.realpath(home))
    with suppress(OSError):
        if _is_shared(real) and real.stat().st_mode & 0o077:
            return real
    return None


def _files_in(folder: Path) -> Iterator[Own]:
    with suppress(OSError), os.scandir(folder) as found:
        for entry in sorted(found, key=lambda each: each.name):
            if not entry.is_dir(follow_symlinks=False):
                yield Own(Path(entry.path), FILE)


def _is_shared(home: Path) -> bool:
    """Return whether a folder belongs to the system or somebody else, or is public."""
    try:
        facts = home.stat()
    except OSError:
        return False
    elsewhere = home in SYSTEM or home in Path.home().parents
    return elsewhere or facts.st_uid != os.geteuid() or bool(facts.st_mode & stat.S_ISVTX)

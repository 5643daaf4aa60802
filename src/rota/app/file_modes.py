"""File modes of a home: Rota's own files are for their owner alone.

What people put there and everything below `spaces/` keeps the permissions that it has. Folders of
the system are nobody's home: they are left as they are, whoever names them.
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
"""In the home, made by Rota; only what lies right in them is looked at, programs fill the rest."""
SECRETS = "secrets"
"""What lies in it is not narrowed by itself: a key that others could read is not used any more."""
FILES = ("admin.key", "api.json", "desk.key", "desk.port", "desk.inner-port")
SYSTEM = frozenset(
    Path("/", name)
    for name in (
        *("", "bin", "boot", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "run"),
        *("sbin", "srv", "sys", "tmp", "usr", "var", "var/lib", "var/tmp"),
    )
)


class Own(NamedTuple):
    """Something of Rota's, and what may be allowed at it."""

    path: Path
    allowed: int


class Narrowed(NamedTuple):
    """What others were kept from, and whether they still get into the home."""

    paths: list[Path]
    open_home: Path | None

    def sentences(self) -> list[str]:
        """Tell people of it, if there is something to tell."""
        told = []
        if self.paths:
            first, rest = self.paths[0], len(self.paths) - 1
            more = f" and {count_text(rest, 'more file')} of Rota's" if rest else ""
            told.append(f"Other users had rights to {first}{more}: only you have them now.")
        if self.open_home is not None:
            told.append(
                f"Other users can look into {self.open_home}, which is not Rota's alone: "
                "give --home a folder of its own."
            )
        return told

    def log(self) -> None:
        """Write it into the log."""
        if self.paths:
            log.warning("home.made_private", extra={"paths": [str(path) for path in self.paths]})
        if self.open_home is not None:
            log.warning("home.open", extra={"path": str(self.open_home)})


def make_private(settings: Settings) -> Narrowed:
    """Take from others what is Rota's own in a home."""
    paths = [own.path for own in own_of(settings) if narrow(str(own.path), own.allowed)]
    return Narrowed(paths, open_home(settings.home))


def permissive(settings: Settings) -> Iterator[Own]:
    """Yield what is Rota's own and this user's, and allows others more than it may."""
    for own in own_of(settings):
        with suppress(OSError):
            if excess(str(own.path), own.allowed) is not None:
                yield own


def own_of(settings: Settings) -> Iterator[Own]:
    """Yield what Rota has made in a home and beside its database, the outer ones first."""
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
    """Return a home that others get into and that is not narrowed, because it is not Rota's."""
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
    """Whether a folder is the system's, somebody else's, or one in which everybody has files."""
    try:
        facts = home.stat()
    except OSError:
        return False
    elsewhere = home in SYSTEM or home in Path.home().parents
    return elsewhere or facts.st_uid != os.geteuid() or bool(facts.st_mode & stat.S_ISVTX)

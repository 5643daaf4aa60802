"""Rendered help pages, kept in the user's cache folder; without one, help is rendered each time."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from os import path

SOURCES = ("cli", "commands", "model", "rules")
"""The folders of this package that help is made from."""
PREFIX = "help-"
MAX_FOLDERS = 4
"""How many installations and versions keep their pages."""


def read_page(command: str) -> str | None:
    """Return the page of a command that was rendered before from the same sources."""
    folder = _folder()
    if folder is None or "/" in command:
        return None
    try:
        with open(path.join(folder, _name(command)), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def write_pages(pages: Mapping[str, str]) -> None:
    """Write pages by their commands, each in one step; what fails is rendered again next time.

    The page of a group is written after those of its commands: where there is one, all are there.
    """
    from tempfile import mkstemp  # noqa: PLC0415 - slow to load

    folder = _folder()
    if folder is None:
        return
    try:
        _make_folder(folder)
        for command in reversed(list(pages)):
            draft, name = mkstemp(dir=folder)
            with open(draft, "w", encoding="utf-8") as file:
                file.write(pages[command])
            os.replace(name, path.join(folder, _name(command)))
    except OSError:
        return


def _name(command: str) -> str:
    return f"{command.replace(' ', '-')}.txt"


def _make_folder(folder: str) -> None:
    """Make the folder of these sources, and remove those that were made the longest ago."""
    if path.isdir(folder):
        return
    os.makedirs(folder, exist_ok=True)
    parent = path.dirname(folder)
    with os.scandir(parent) as entries:
        known = [entry for entry in entries if entry.name.startswith(PREFIX)]
    known.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    for old in known[MAX_FOLDERS:]:
        for name in os.listdir(old.path):
            os.unlink(path.join(old.path, name))
        os.rmdir(old.path)


@cache
def _folder() -> str | None:
    parent = os.environ.get("XDG_CACHE_HOME") or path.expanduser("~/.cache")
    key = _key()
    return path.join(parent, "rota", PREFIX + key) if key and path.isabs(parent) else None


def _key() -> str:
    """Return what changes with the sources, told as Python tells it for bytecode: size and time."""
    package = path.dirname(path.dirname(__file__))
    found = []
    try:
        for folder in SOURCES:
            with os.scandir(path.join(package, folder)) as entries:
                found += [(e.name, e.stat()) for e in entries if e.name.endswith(".py")]
    except OSError:
        return ""
    found.sort()
    # Unlike that of text, the hash of numbers is the same in every process.
    numbers = tuple((stat.st_size, stat.st_mtime_ns) for _, stat in found)
    return f"{hash((sys.hexversion, numbers)) & 0xFFFF_FFFF_FFFF_FFFF:016x}"

"""Environment variables that are read before any settings; this loads next to nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PREFIX = "ROTA_"
DEFAULT_HOME = "~/.rota"
OF_COMMANDS = ("home", "url", "key", "thread_key")
"""Variables that are no settings."""

OF_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")
OF_TERMINALS = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnvironment:
    """The variables that say where a daemon is and who asks."""

    home: Path
    url: str | None
    key: str | None
    thread: str | None
    store: str | None
    color: bool = True


def read_environment(home: str | None = None) -> CommandEnvironment:
    """Read the variables of a command line; a home that was typed wins."""
    return CommandEnvironment(
        home=home_folder(home),
        color=not os.environ.get("NO_COLOR"),
        url=_variable("url"),
        key=_variable("key"),
        thread=_variable("thread_key"),
        store=_variable("store"),
    )


def home_folder(typed: str | None = None) -> Path:
    """Return the home folder: the one typed, that of ROTA_HOME, or ~/.rota."""
    return Path(typed or _variable("home") or DEFAULT_HOME).expanduser().absolute()


def home_was_named(typed: str | None) -> bool:
    """Tell whether somebody has said where the home is, so that it is not the usual one."""
    return bool(typed or _variable("home"))


def offered_variables() -> dict[str, str]:
    """Return the environment from which programs may be given something, by name."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def trust_environment() -> dict[str, str]:
    """Return what says whose certificates are to be trusted."""
    return {name: os.environ[name] for name in OF_TRUST if name in os.environ}


def terminal_environment() -> dict[str, str]:
    """Return what a program that draws on this terminal must know of it."""
    return {name: os.environ[name] for name in OF_TERMINALS if name in os.environ}


def _variable(name: str) -> str | None:
    return os.environ.get(f"{PREFIX}{name.upper()}") or None

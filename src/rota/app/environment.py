"""Environment variables that are read before the settings; this module imports very little."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PREFIX = "ROTA_"
DEFAULT_HOME = "~/.rota"
OF_COMMANDS = ("home", "url", "key", "thread_key")
"""Variables that are not settings."""

OF_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR")
OF_TERMINALS = ("TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "HOME")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnvironment:
    """The variables that identify daemon and caller."""

    home: Path
    url: str | None
    key: str | None
    thread: str | None
    store: str | None
    color: bool = True


def read_environment(home: str | None = None) -> CommandEnvironment:
    """Read the variables of a command line; the option --home takes precedence."""
    return CommandEnvironment(
        home=home_folder(home),
        color=not os.environ.get("NO_COLOR"),
        url=_variable("url"),
        key=_variable("key"),
        thread=_variable("thread_key"),
        store=_variable("store"),
    )


def home_folder(typed: str | None = None) -> Path:
    """Return the home folder: the option, ROTA_HOME, or ~/.rota."""
    return Path(typed or _variable("home") or DEFAULT_HOME).expanduser().absolute()


def home_was_named(typed: str | None) -> bool:
    """Return whether the home folder was named, by option or variable."""
    return bool(typed or _variable("home"))


def offered_variables() -> dict[str, str]:
    """Return the environment from which programs may get variables."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def trust_environment() -> dict[str, str]:
    """Return the variables that select trusted certificates."""
    return {name: os.environ[name] for name in OF_TRUST if name in os.environ}


def terminal_environment() -> dict[str, str]:
    """Return the terminal variables for a program with a terminal."""
    return {name: os.environ[name] for name in OF_TERMINALS if name in os.environ}


def _variable(name: str) -> str | None:
    return os.environ.get(f"{PREFIX}{name.upper()}") or None

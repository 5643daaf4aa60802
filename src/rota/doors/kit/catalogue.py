"""The catalogue: every command a door offers, said once.

A command is a function over an Office that takes one model and gives one model. Its annotations
and its docstring are all there is to say about it; HTTP routes, the OpenAPI file, the command line
and whatever door comes next read them from here.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Any, TypeVar, get_type_hints
from urllib.parse import unquote

from pydantic import BaseModel

from rota.doors.kit.office import Office
from rota.errors import NotFound
from rota.model.keys import KeyScope

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])

ROOT = "/v1/"
PACKAGE = "rota.doors.commands"
MODULES = (
    *("spaces", "keys", "tasks", "slots", "schedules"),
    *("runs", "artifacts", "talking", "sessions", "threads", "messages"),
    *("status", "machines", "state"),
    *("limits", "notify", "budgets", "secrets", "sql", "operations"),
)
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One operation, as every door sees it."""

    name: str
    group: str
    method: str
    path: str
    scope: KeyScope
    status: int
    writes: bool
    takes: type[BaseModel]
    gives: type[BaseModel]
    does: Callable[[Office, Any], Awaitable[Any]]
    about: str

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that stand in the path."""
        return tuple(_FIELD.findall(self.path))


def command(
    method: str, path: str, scope: KeyScope, *, status: int = 200, writes: bool | None = None
) -> Callable[[Function], Function]:
    """Put a function into the catalogue; whatever is no GET writes unless it says otherwise."""

    def keep(function: Function) -> Function:
        hints = get_type_hints(function)
        found = Command(
            name=function.__name__,
            group=function.__module__.rpartition(".")[2],
            method=method,
            path=path,
            scope=scope,
            status=status,
            writes=method != "GET" if writes is None else writes,
            takes=hints["asked"],
            gives=hints["return"],
            does=function,
            about=getdoc(function) or "",
        )
        _KNOWN.setdefault(found.group, []).append(found)
        return function

    return keep


_KNOWN: dict[str, list[Command]] = {}


def commands_of(group: str) -> list[Command]:
    """Return the commands of one module, which is loaded if needed."""
    import_module(f"{PACKAGE}.{group}")
    return _KNOWN[group]


def every_command() -> list[Command]:
    """Return the whole catalogue."""
    return [command for group in MODULES for command in commands_of(group)]


def find_command(method: str, path: str) -> tuple[Command, dict[str, str]]:
    """Return the command at a path, and what stands in the path's fields."""
    first = path.removeprefix(ROOT).partition("/")[0]
    groups: Iterable[str] = sorted(MODULES, key=lambda group: group != first)
    for group in groups:
        for known in commands_of(group):
            match = pattern_of(known.path).fullmatch(path) if known.method == method else None
            if match is not None:
                return known, {name: unquote(value) for name, value in match.groupdict().items()}
    raise NotFound("command", f"{method} {path}")


@cache
def pattern_of(path: str) -> re.Pattern[str]:
    """Return what the addresses of a command look like."""
    return re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", path))
